"""Derivatives: against differences to second order, forward against reverse, batched, planned."""

import tempfile
from pathlib import Path

import numpy as np
import pytest

import tiga as tg
from tiga import errors
from tiga.ops.base import REGISTRY

ag = tg.autograd
STEP = 1e-5


def close(a: object, b: object, tolerance: float = 1e-6) -> None:
    np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=tolerance, atol=tolerance)


def differences(function, x: np.ndarray) -> np.ndarray:
    """The Jacobian by central differences: the result's axes, then x's."""
    columns = []
    for place in np.ndindex(x.shape):
        low, high = x.copy(), x.copy()
        low[place] -= STEP
        high[place] += STEP
        columns.append((function(high) - function(low)) / (2 * STEP))
    table = np.stack(columns, axis=-1)
    return table.reshape(*table.shape[:-1], *x.shape)


def check(function, x: np.ndarray, order: int = 2) -> None:
    """Compare derivatives up to an order with differences."""
    close(
        ag.jacobian(function, tg.tensor(x)),
        differences(lambda a: function(tg.tensor(a)).numpy(), x),
    )
    if order == 2:

        def slope(y: tg.Tensor) -> tg.Tensor:
            y = y if y.requires_grad else y.detach().requires_grad_()
            found = ag.grad(function(y).sum(), y, allow_unused=True)
            return y * 0 if found is None else found

        close(ag.jacobian(slope, tg.tensor(x)),
              differences(lambda a: slope(tg.tensor(a)).numpy(), x), 1e-5)  # fmt: skip


def points(low: float, high: float, shape: tuple[int, ...] = (2, 3)) -> np.ndarray:
    return np.random.default_rng(11).uniform(low, high, shape)


DOMAINS = {"acosh": (1.2, 3), "log1p": (-0.5, 2), "asin": (-0.8, 0.8), "acos": (-0.8, 0.8),
           "atanh": (-0.8, 0.8)}  # fmt: skip
SMOOTH = (
    "abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh", "erf", "exp", "expm1",
    "floor", "gelu", "log", "log10", "log1p", "log2", "negative", "reciprocal", "relu", "rsqrt",
    "sigmoid", "sign", "silu", "sin", "sinh", "softplus", "sqrt", "square", "tan", "tanh",
)  # fmt: skip


@pytest.mark.parametrize("name", SMOOTH)
def test_functions(name: str) -> None:
    low, high = DOMAINS.get(name, (0.3, 1.9))
    check(getattr(tg, name), points(low, high))


@pytest.mark.parametrize(
    "name",
    ["add", "subtract", "multiply", "divide", "pow", "atan2", "hypot", "logaddexp", "maximum",
     "minimum", "remainder", "copysign"],
)  # fmt: skip
def test_two_operands(name: str) -> None:
    other = tg.tensor(points(0.4, 1.7, (3,)))
    function = getattr(tg, name)
    check(lambda x: function(x, other), points(0.3, 1.9))
    check(lambda x: function(other, x), points(0.3, 1.9), order=2)


CASES = {
    "sum": lambda x: tg.sum(x * x, axis=0),
    "mean": lambda x: tg.mean(x * x, axis=1),
    "prod": lambda x: tg.prod(x, axis=1),
    "var": lambda x: tg.var(x, axis=1, correction=1),
    "std": lambda x: tg.std(x),
    "max": lambda x: tg.max(x * x, axis=1),
    "logsumexp": lambda x: tg.logsumexp(x, axis=0),
    "softmax": lambda x: tg.softmax(x, axis=1) * x,
    "log_softmax": lambda x: tg.log_softmax(x, axis=1),
    "cumulative_sum": lambda x: tg.cumulative_sum(x * x, axis=1),
    "cumulative_prod": lambda x: tg.cumulative_prod(x, axis=1),
    "norm": lambda x: tg.norm(x, axis=1),
    "norm3": lambda x: tg.norm(x, ord=3, axis=1),
    "layer_norm": lambda x: tg.layer_norm(x, 3, x[0], x[1]),
    "matmul": lambda x: x @ tg.matrix_transpose(x),
    "einsum": lambda x: tg.einsum("ij,kj,k->i", x, x, x[:, 0]),
    "views": lambda x: (x.T.reshape(6)[1:5] * x.reshape(6)[::-1][:4]).reshape(2, 2),
    "joining": lambda x: tg.concat([x * x, tg.stack([x[0], x[1] ** 3])]),
    "pad": lambda x: tg.pad(x * x, [(1, 0), (0, 2)]),
    "roll": lambda x: tg.roll(x, 1, axis=1) * x,
    "take": lambda x: tg.take(x * x, tg.tensor([1, 0, 1]), axis=0),
    "along": lambda x: tg.take_along_axis(x * x, tg.tensor([[0, 0], [2, 1]]), axis=1),
    "scatter": lambda x: tg.scatter_add(x * x, tg.tensor([1, 1]), 3),
    "scatter_along": lambda x: tg.scatter_add_along_axis(x, tg.tensor([[0, 0, 3], [1, 1, 1]]), 4),
    "indexing": lambda x: x[tg.tensor([0, 1]), tg.tensor([2, 2])] * x[0, 0],
    "sort": lambda x: tg.sort(x, axis=1) * x,
    "where": lambda x: tg.where(x > 1, x * x, tg.exp(x)),
    "clip": lambda x: tg.clip(x, 0.5, 1.5) * x,
    "mse": lambda x: tg.mse_loss(x, x * x),
    "huber": lambda x: tg.huber_loss(x, tg.zeros((2, 3), dtype=tg.float64)),
    "bce": lambda x: tg.binary_cross_entropy_with_logits(x, tg.ones((2, 3), dtype=tg.float64)),
    "cross_entropy": lambda x: tg.cross_entropy(x, tg.tensor([2, 0])),
    "tril": lambda x: tg.tril(x) @ x.T,
}


@pytest.mark.parametrize("name", sorted(CASES))
def test_compositions(name: str) -> None:
    check(CASES[name], points(0.3, 1.9))


@pytest.mark.parametrize("name", sorted(CASES))
def test_forward_mode_agrees_with_reverse_mode(name: str) -> None:
    function = CASES[name]
    x, t = tg.tensor(points(0.3, 1.9)), tg.tensor(points(-1, 1))
    value, tangent = ag.jvp(function, (x,), (t,))
    weights = tg.tensor(points(-1, 1, value.shape))
    _, pull = ag.vjp(function, x)
    close((tangent * weights).sum(), (pull(weights)[0] * t).sum())


@pytest.mark.parametrize("name", sorted(CASES))
def test_vmap_is_a_loop(name: str) -> None:
    function = CASES[name]
    x = points(0.3, 1.9, (4, 2, 3))
    want = np.stack([function(tg.tensor(one)).numpy() for one in x])
    close(ag.vmap(function)(tg.tensor(x)), want, 1e-12)


def test_vmap_axes_and_positions() -> None:
    a, b = tg.tensor(points(-1, 1, (3, 4))), tg.tensor(points(-1, 1, (4, 3)))
    outer = ag.vmap(lambda u, v: u * v, in_axes=(0, 1), out_axes=1)(a, b)
    close(outer, (a.numpy() * b.numpy().T).T)
    table = tg.tensor(points(-1, 1, (5, 2)))
    rows = tg.tensor([[0, 4], [1, 1], [2, 3]])
    close(ag.vmap(lambda i: table[i])(rows), table.numpy()[rows.numpy()])
    shared = ag.vmap(lambda u, v: (u * v).sum(), in_axes=(0, None))(a, b[:, 0])
    close(shared, a.numpy() @ b.numpy()[:, 0])
    both = tg.tensor(points(-1, 1, (3, 5, 2)))
    close(ag.vmap(lambda u, i: u[i])(both, rows),
          np.stack([u[i] for u, i in zip(both.numpy(), rows.numpy(), strict=True)]))  # fmt: skip
    added = ag.vmap(lambda u, i: tg.scatter_add(u, i, 5))(both[:, :2], rows)
    want = np.zeros((3, 5, 2))
    for n in range(3):
        np.add.at(want[n], rows.numpy()[n], both.numpy()[n, :2])
    close(added, want)
    with pytest.raises(errors.InvalidValue, match="inside vmap"):
        ag.vmap(lambda u: u if u.sum().item() > 0 else -u)(a)


def test_per_example_gradients() -> None:
    x, w = tg.tensor(points(-1, 1, (5, 3))), tg.tensor(points(-1, 1, (3,)))

    def loss(example: tg.Tensor) -> tg.Tensor:
        v = w.detach().requires_grad_()
        return ag.grad(tg.tanh((v * example).sum()), v)

    want = (1 - np.tanh(x.numpy() @ w.numpy()) ** 2)[:, None] * x.numpy()
    close(ag.vmap(loss)(x), want)


@pytest.mark.parametrize("zeros", [(), (1,), (0, 2)])
def test_products_are_exact_with_zeros(zeros: tuple[int, ...]) -> None:
    x = np.array([2.0, 3.0, 4.0])
    x[list(zeros)] = 0
    want = [np.prod(np.delete(x, i)) for i in range(3)]
    close(ag.jacobian(tg.prod, tg.tensor(x)), want)
    second = np.array([[0 if i == j else np.prod(np.delete(x, [i, j])) for j in range(3)]
                       for i in range(3)])  # fmt: skip
    close(ag.hessian(tg.prod, tg.tensor(x)), second)


def test_ties_share_the_derivative() -> None:
    x = tg.tensor([2.0, 2.0, 1.0], requires_grad=True)
    assert ag.grad(tg.max(x), x).tolist() == [0.5, 0.5, 0.0]


COMPLEX = {
    "mul": lambda z: z * z * (1 + 2j),
    "div": lambda z: 1 / (z + 3),
    "abs": lambda z: tg.abs(z) * z,
    "parts": lambda z: tg.real(z) * tg.imag(z) + 1j * tg.imag(z * z),
    "exp": lambda z: tg.exp(z) + tg.sin(z),
    "matmul": lambda z: tg.einsum("i,j->ij", z, tg.conj(z)).sum(1),
    "sign": lambda z: tg.sign(z),
}


@pytest.mark.parametrize("name", sorted(COMPLEX))
def test_complex_cotangents(name: str) -> None:
    """With L = Re(sum(conj(c) f(z))), the cotangent is dL/dRe(z) + i dL/dIm(z)."""
    function = COMPLEX[name]
    rng = np.random.default_rng(5)
    z = rng.normal(size=3) + 1j * rng.normal(size=3)
    x = tg.tensor(z, requires_grad=True)
    out = function(x)
    c = rng.normal(size=out.shape) + 1j * rng.normal(size=out.shape)
    got = ag.grad(out, x, grad_output=tg.tensor(c))

    def loss(parts: np.ndarray) -> np.ndarray:
        value = function(tg.tensor(parts[0] + 1j * parts[1])).numpy()
        return np.real(np.sum(np.conj(c) * value))

    slope = differences(loss, np.stack([z.real, z.imag]))
    close(got, slope[0] + 1j * slope[1])


def test_step_functions_have_derivatives_of_zero() -> None:
    x = tg.tensor([-np.inf, 0.5, np.nan], requires_grad=True)
    for function in (tg.floor, tg.ceil, tg.round, tg.trunc, tg.sign):
        assert ag.grad(function(x).sum(), x).tolist() == [0.0, 0.0, 0.0]
    with pytest.raises(errors.InvalidValue, match="does not depend"):
        ag.grad((x > 0).astype(tg.float32).sum() * 1.0, x)


def test_no_dependence_is_zero_beside_infinities() -> None:
    x, v = tg.tensor([np.inf, np.nan]), tg.ones(2)
    constant = tg.ones(2)
    assert ag.value_and_grad(lambda _: constant.sum())(x)[1].tolist() == [0.0, 0.0]
    assert ag.vjp(lambda _: constant, x)[1](v)[0].tolist() == [0.0, 0.0]
    assert ag.jvp(lambda _: x + 0, (v,), (v,))[1].tolist() == [0.0, 0.0]
    assert not ag.jacobian(lambda _: constant, x).numpy().any()
    assert not ag.hessian(lambda y: y.sum(), x).numpy().any()


def test_what_grad_refuses() -> None:
    x, y = tg.ones(2, requires_grad=True), tg.ones(2, requires_grad=True)
    with pytest.raises(errors.InvalidValue, match=r"does not depend.*test_autograd.py:\d+"):
        ag.grad(x.sum(), y)
    assert ag.grad(x.sum(), [x, y], allow_unused=True)[1] is None
    with pytest.raises(errors.InvalidValue, match="needs grad_output"):
        ag.grad(x * 2, x)
    with pytest.raises(errors.InvalidValue, match="grad_output expected"):
        ag.grad(x * 2, x, grad_output=tg.ones(3))
    with pytest.raises(errors.InvalidType, match="no derivative"):
        ag.grad(tg.argmax(x), x)
    with pytest.raises(errors.InvalidValue, match="checkpoint="):
        ag.grad(x.sum(), x, checkpoint="always")
    with pytest.raises(errors.InvalidType, match="expected a float"):
        tg.arange(3).requires_grad_()


def test_intermediate_values_are_inputs_too() -> None:
    x = tg.tensor([1.0, 2.0], requires_grad=True)
    middle = x * x
    loss = (middle * 3.0).sum()
    loss.realize()
    assert ag.grad(loss, middle).tolist() == [3.0, 3.0]


def deep(x: tg.Tensor, w: tg.Tensor) -> tg.Tensor:
    for _ in range(4):
        x = tg.tanh(x @ w) + tg.exp(-x)
    return (x * x).sum()


def test_plans_save_no_more_than_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    w = tg.tensor(points(-1, 1, (6, 6)), requires_grad=True)
    want = ag.grad(deep(tg.tensor(points(-1, 1, (5, 6))), w), w).numpy()
    saved = []
    for budget in (0, 240, 500, 1000, 2000, 5000, -1):
        monkeypatch.setenv("TIGA_CHECKPOINT_BUDGET_BYTES", str(budget))
        found = ag.grad(deep(tg.tensor(points(-1, 1, (5, 6))), w), w)
        close(found, want, 1e-12)
        saved.append(found.execution["saved_bytes"])
        assert budget == -1 or saved[-1] <= budget
    assert saved == sorted(saved)
    assert saved[0] == 0 < saved[-1]


def test_policies_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    w = tg.tensor(points(-1, 1, (6, 6)), requires_grad=True)
    results = {}
    for policy in ("auto", "save", "recompute"):
        found = ag.grad(deep(tg.tensor(points(-1, 1, (5, 6))), w), w, checkpoint=policy)
        results[policy] = found.numpy()
        close(results[policy], results["auto"], 1e-12)
    assert found.execution["checkpoint_plan"]["planned_saved_bytes"] == 0
    monkeypatch.setenv("TIGA_CHECKPOINT_BUDGET_BYTES", "0")
    monkeypatch.setenv("TIGA_CHECKPOINT_SPILL_BUDGET_BYTES", "5000")
    spilled = ag.grad(deep(tg.tensor(points(-1, 1, (5, 6))), w), w)
    close(spilled, results["auto"], 1e-12)
    assert spilled.execution["checkpoint_plan"]["planned_spilled_bytes"] > 0
    told = spilled.execution["checkpoint_plan"]
    assert told["spilled_bytes"] == told["planned_spilled_bytes"]
    assert {"planning_ms", "saved_compile_ms", "spill_ms"} <= told.keys()
    assert {"compile_ms", "saved_ms", "materialize_ms"} <= spilled.execution.keys()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "complex64"])
@pytest.mark.parametrize("backend", ["python", "native"])
def test_budgets_in_memory_and_on_disk(
    dtype: str, backend: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TIGA_TENSOR_BACKEND", backend)
    x = tg.tensor(points(0.2, 1, (40, 8))).astype(dtype).detach().requires_grad_()
    ones = tg.ones((40, 8)).astype(dtype)

    def slope() -> tg.Tensor:
        y = x
        for _ in range(5):
            y = tg.exp(y * 0.25) * x
        return ag.grad(y, x, grad_output=ones)

    want = slope().numpy()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for spill in (0, 700, 2000, 10000):
        monkeypatch.setenv("TIGA_CHECKPOINT_SPILL_BUDGET_BYTES", str(spill))
        saved = []
        for budget in range(0, 16001, 1600):
            monkeypatch.setenv("TIGA_CHECKPOINT_BUDGET_BYTES", str(budget))
            found = slope()
            np.testing.assert_allclose(
                found.numpy().astype(np.complex128), want.astype(np.complex128), rtol=0.02
            )
            report = found.execution["checkpoint_plan"]
            assert report["planned_saved_bytes"] <= budget
            assert report["planned_spilled_bytes"] <= spill
            saved.append(report["planned_saved_bytes"])
        assert spill or saved == sorted(saved)
    assert list(tmp_path.iterdir()) == []


def test_joint_plan() -> None:
    x = tg.tensor([1.0, 2.0], requires_grad=True)
    plan = ag.joint_plan((tg.exp(x) * x).sum(), [x], checkpoint="save")
    text = plan.explain()
    assert "backward:0 (autograd-backward) after forward" in text
    assert "save exp" in text
    value, (dx,) = plan.run()
    close(value, np.sum(np.exp([1, 2]) * [1, 2]))
    close(dx, np.exp([1, 2]) * [2, 3], 1e-6)
    with pytest.raises(errors.InvalidValue, match="at least one input"):
        ag.joint_plan(x.sum(), [])


def test_grad_mlir() -> None:
    x = tg.tensor([1.0, 2.0], requires_grad=True)
    assert "gf_tensor.grad" in ag.grad_mlir((x * x).sum(), x, lower=False)
    lowered = ag.grad_mlir((x * x).sum(), x)
    assert "gf_tensor.grad" not in lowered
    assert "gf_tensor.add" in lowered


def test_every_tensor_op_has_both_derivatives_or_none() -> None:
    for name, op_class in REGISTRY.items():
        if op_class.__module__.startswith("tiga.ops.tensor_") and name != "grad":
            assert "vjp" in dir(op_class)
            defined = [m for c in op_class.__mro__ for m in vars(c) if m in ("vjp", "jvp")]
            assert "vjp" in defined
            assert "jvp" in defined


SINGULAR = {
    "logaddexp": (np.logaddexp, [(np.inf, 0.0), (0.0, np.inf)], [(1.0, 0.0), (0.0, 1.0)]),
    "atan2": (np.arctan2, [(0.0, 0.0), (0.0, 1.0)], [(0.0, 0.0), (1.0, 0.0)]),
    "remainder": (np.remainder, [(0.7, 0.1), (-0.7, 0.1)], [(1.0, -6.0), (1.0, 7.0)]),
    "fmod": (np.fmod, [(0.7, 0.1), (-0.7, 0.1)], [(1.0, -6.0), (1.0, 6.0)]),
}  # fmt: skip


@pytest.mark.parametrize("name", SINGULAR)
def test_derivatives_of_two_operands_where_formulas_fail(name: str) -> None:
    of_numpy, points, slopes = SINGULAR[name]
    a, b = (tg.tensor(np.array(side), requires_grad=True) for side in zip(*points, strict=True))
    out = getattr(tg, name)(a, b)
    np.testing.assert_allclose(out.numpy(), of_numpy(a.numpy(), b.numpy()))
    for found, expected in zip(ag.grad(out.sum(), (a, b)), zip(*slopes, strict=True), strict=True):
        assert found.tolist() == list(expected)


def test_derivatives_keep_their_digits() -> None:
    x = tg.tensor(np.array([-30.0, -12.0], np.float32), requires_grad=True)
    for function in (tg.elu, tg.expm1):
        slope = ag.grad(function(x).sum(), x)
        np.testing.assert_allclose(slope.numpy(), np.exp(x.numpy()), rtol=1e-5)
    x = tg.tensor(np.array([1e-6, -1e-4, 0.4, 0.6], np.float32), requires_grad=True)
    values = x.numpy().astype(np.float64)
    for function, power in ((tg.asin, 1.5), (tg.atanh, 2.0)):
        bend = ag.grad(ag.grad(function(x).sum(), x).sum(), x)
        factor = 1 if function is tg.asin else 2
        np.testing.assert_allclose(
            bend.numpy(), factor * values / (1 - values**2) ** power, rtol=2e-6
        )
