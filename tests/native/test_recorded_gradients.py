"""Gradients are recorded by structure: a record serves equal expressions, and no others."""

from weakref import ref

import numpy as np
import pytest

import tiga as tg
from tiga import errors
from tiga.autograd import recorded
from tiga.trace import autodiff

ag = tg.autograd
RNG = np.random.default_rng(5)


@pytest.fixture
def derivations(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One entry per expression that was differentiated by its ops' rules."""
    monkeypatch.setattr(recorded, "RECORDS", {})
    made: list[int] = []
    rules = autodiff.vjp

    def counted(*args: object) -> object:
        made.append(1)
        return rules(*args)

    monkeypatch.setattr(autodiff, "vjp", counted)
    return made


def leaf(*shape: int) -> tg.Tensor:
    return tg.tensor(RNG.standard_normal(shape), requires_grad=True)


def softmax_loss(x: tg.Tensor, w: tg.Tensor) -> tg.Tensor:
    return (tg.softmax(x * w, axis=1) * tg.layer_norm(x, 3) + tg.exp(-x)).sum()


def test_equal_structures_are_derived_once(derivations: list[int]) -> None:
    for _ in range(3):
        x, w = leaf(4, 3), leaf(3)
        dx, dw = ag.grad(softmax_loss(x, w), (x, w))
        for found, given, place in ((dx, x, (1, 2)), (dw, w, (1,))):
            ends = []
            for step in (1e-6, -1e-6):
                moved = given.numpy().copy()
                moved[place] += step
                pair = (tg.tensor(moved), w) if given is x else (x, tg.tensor(moved))
                ends.append(softmax_loss(*pair).item())
            assert found.numpy()[place] == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-5)
    assert len(derivations) == 1


OTHERS = {
    "another operand": (lambda x, y: (x * y).sum(), lambda x, y: y),
    "another number": (lambda x, y: (x * x * 3.0).sum(), lambda x, y: 6 * x),
    "one more term": (lambda x, y: (x * x * 2.0).sum() + y.sum(), lambda x, y: 4 * x),
    "a part held fixed": (lambda x, y: (x * (x * 2.0).detach()).sum(), lambda x, y: 2 * x),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_structures_are_told_apart(derivations: list[int], name: str) -> None:
    other, slope = OTHERS[name]
    x, y = leaf(3), leaf(3)
    np.testing.assert_allclose(ag.grad((x * x * 2.0).sum(), x).numpy(), 4 * x.numpy())
    np.testing.assert_allclose(ag.grad(other(x, y), x).numpy(), slope(x.numpy(), y.numpy()))
    assert len(derivations) == 2


def test_the_wiring_counts(derivations: list[int]) -> None:
    a, b = leaf(2), leaf(2)
    # The same ops and types throughout: only who reads whom differs.
    for make, slope in (
        (lambda: (a * b) * a, 2 * a.numpy() * b.numpy()),
        (lambda: (a * b) * b, b.numpy() ** 2),
        (lambda: (a * a) * a, 3 * a.numpy() ** 2),
    ):
        np.testing.assert_allclose(ag.grad(make().sum(), a).numpy(), slope)
    assert len(derivations) == 3


def test_values_that_are_known_change_nothing(derivations: list[int]) -> None:
    for realized in (False, True):
        x = leaf(5)
        y = tg.exp(x)
        if realized:
            y.realize()
        np.testing.assert_allclose(ag.grad((y * y).sum(), x).numpy(), 2 * np.exp(2 * x.numpy()))
    assert len(derivations) == 1


def test_several_orders_and_cotangents(derivations: list[int]) -> None:
    for _ in range(2):
        x, g = leaf(3), leaf(3)
        dx = ag.grad(x * x * x, x, grad_output=g)
        np.testing.assert_allclose(dx.numpy(), 3 * x.numpy() ** 2 * g.numpy())
        ddx, dg = ag.grad(dx.sum(), (x, g))
        np.testing.assert_allclose(ddx.numpy(), 6 * x.numpy() * g.numpy())
        np.testing.assert_allclose(dg.numpy(), 3 * x.numpy() ** 2)
    assert len(derivations) == 2


def test_inputs_without_a_derivative(derivations: list[int]) -> None:
    for _ in range(2):
        x, unused = leaf(3), leaf(2)
        dx, none = ag.grad(x.sum(), (x, unused), allow_unused=True)
        assert none is None
        assert dx.tolist() == [1.0, 1.0, 1.0]
        with pytest.raises(errors.InvalidValue, match="does not depend on input 1"):
            ag.grad(x.sum(), (x, unused))
    assert len(derivations) == 1


def test_changed_values_are_caught_each_time() -> None:
    for change in (False, True, False, True):
        x, scale = leaf(3), tg.tensor(RNG.standard_normal(3))
        loss = (x * scale).sum()
        if not change:
            np.testing.assert_allclose(ag.grad(loss, x).numpy(), scale.numpy())
            continue
        scale.mul_(2.0)
        with pytest.raises(errors.InvalidValue, match="changed in place"):
            ag.grad(loss, x)


def test_records_keep_no_values_alive() -> None:
    x = leaf(4)
    y = tg.tanh(x)
    dx = ag.grad((y * y).sum(), x)
    dx.realize()
    gone = ref(x.numpy()), ref(y.realize().numpy()), ref(dx.numpy())
    del x, y, dx
    assert [r() for r in gone] == [None, None, None]


def test_results_name_the_line_that_asked() -> None:
    for _ in range(2):
        x = leaf(2)
        dx = ag.grad((x * x).sum(), x)
        assert dx.where is not None
        assert "test_recorded_gradients.py" in dx.where


FUNCTIONS = {
    "softmax": tg.softmax, "log_softmax": tg.log_softmax, "logsumexp": tg.logsumexp,
    "layer_norm": tg.layer_norm, "var": tg.var, "std": tg.std,
    "huber": lambda x: tg.huber_loss(x, x + 1.0, reduction="none"),
    "logits": lambda x: tg.binary_cross_entropy_with_logits(x, x * 0.5, reduction="none"),
}  # fmt: skip


@pytest.mark.parametrize("dtype", [tg.float16, tg.float64], ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_records_made_of_numbers_serve_no_values(name: str, dtype: tg.DType) -> None:
    x = tg.tensor(RNG.standard_normal((2, 13)), dtype=dtype)
    FUNCTIONS[name](tg.imag(x)).numpy()  # zeros without memory, of which whatever is made is folded
    got, exact = FUNCTIONS[name](x), FUNCTIONS[name](tg.tensor(x.numpy().astype(np.float64)))
    limit = 1e-12 if dtype == tg.float64 else 5e-3
    np.testing.assert_allclose(got.numpy(), exact.numpy(), rtol=limit, atol=limit)


def test_records_do_not_reach_below_their_operands() -> None:
    """Functions of a scalar are folded with what it is made of: here with numbers alone."""
    of_numbers = tg.var(tg.imag(tg.ones((3, 3), dtype=tg.float64)))
    assert tg.std(of_numbers, keepdims=False).item() == 0.0
    value = tg.tensor(0.25, dtype=tg.float64) * 1.5
    assert tg.std(value, keepdims=False).item() == 0.0
