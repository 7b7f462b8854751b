"""Small programs that random ones were cut down to."""

import numpy as np
import pytest

import tiga as tg
from tiga import errors

ag = tg.autograd


@pytest.mark.parametrize("backend", ["python", "native"])
def test_softmax_over_no_elements(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIGA_TENSOR_BACKEND", backend)
    x = tg.zeros((2, 0), requires_grad=True)
    for function in (tg.softmax, tg.log_softmax):
        out = function(x, axis=1)
        assert out.numpy().shape == (2, 0)
        assert ag.grad(out.sum(), x).numpy().shape == (2, 0)
    total = tg.logsumexp(x, axis=1)
    np.testing.assert_array_equal(total.numpy(), [-np.inf, -np.inf])
    assert ag.grad(total.sum(), x).numpy().shape == (2, 0)


SHARED = {
    "product": lambda p, m: p @ m,
    "running product": lambda p, m: tg.cumulative_prod(p, axis=0),
    "largest": lambda p, m: p * tg.max(m),
    "sorted": lambda p, m: tg.sort(p) * tg.take(p, tg.tensor([0]), axis=0),
}


@pytest.mark.parametrize("name", sorted(SHARED))
def test_what_all_edges_share_is_computed_before_the_walk(name: str) -> None:
    class Shared(tg.MessagePassing):
        def edge(self, src, dst, edge, p, m):
            return src.x * SHARED[name](p, m)

        def node(self, dst, aggregate, p, m):
            return aggregate + SHARED[name](p, m)

    rng = np.random.default_rng(3)
    p, m = (tg.tensor(rng.uniform(0.5, 2, n), requires_grad=True) for n in (3, (3, 3)))
    src, dst = np.array([0, 1, 1]), np.array([1, 1, 0])
    graph = tg.Graph.from_coo(src, dst, num_src=2, num_dst=2)
    x = tg.tensor(rng.uniform(0.5, 2, (2, 3)))
    got = Shared()(graph=graph, src={"x": x}, dst={"x": x}, p=p, m=m)
    rows = tg.scatter_add(tg.take(x, tg.tensor(src), axis=0) * SHARED[name](p, m), dst, 2)
    want = rows + SHARED[name](p, m)
    np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-12)
    for ours, theirs in zip(
        ag.grad((got * got).sum(), [p, m], allow_unused=True),
        ag.grad((want * want).sum(), [p, m], allow_unused=True),
        strict=True,
    ):
        assert (ours is None) == (theirs is None)
        if ours is not None:
            np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-10)


@pytest.mark.parametrize("backend", ["python", "native"])
def test_powers_of_integers(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIGA_TENSOR_BACKEND", backend)
    x = tg.tensor([-2, -1, 0, 1, 3])
    powers = {-3: [0, -1, 0, 1, 0], -2: [0, 1, 0, 1, 0], 3: [-8, -1, 0, 1, 27]}
    for exponent, want in powers.items():
        assert tg.pow(x, tg.full(5, exponent, dtype=tg.int64)).tolist() == want
    assert (2 ** tg.tensor([-1, 0, 5], dtype=tg.int8)).tolist() == [0, 1, 32]
    with pytest.raises(errors.InvalidValue, match=r"exponent of at least 0 for int64, got -1"):
        x**-1


def test_spread_of_complex_numbers_is_real() -> None:
    x = np.array([[1 + 2j, 3 - 1j], [0, 1j]])
    got = tg.std(tg.tensor(x), axis=0)
    assert got.dtype == tg.float64
    np.testing.assert_allclose(got.numpy(), x.std(0))


@pytest.mark.parametrize("backend", ["python", "native"])
def test_logsumexp_of_complex_numbers(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The principal logarithm, also where the largest number has an angle beyond pi."""
    monkeypatch.setenv("TIGA_TENSOR_BACKEND", backend)
    x = np.array([[1 + 4j, 0.5 - 2j], [300 + 1j, -np.inf]])
    got = tg.logsumexp(tg.tensor(x), axis=1).numpy()
    np.testing.assert_allclose(got, [np.log(np.exp(x[0]).sum()), 300 + 1j], rtol=1e-12)
    share = tg.softmax(tg.tensor(x[:1]), axis=1).numpy()
    np.testing.assert_allclose(share, np.exp(x[:1]) / np.exp(x[:1]).sum(), rtol=1e-12)


def test_bools_are_close() -> None:
    x, y = tg.tensor([True, False]), tg.tensor([True, True])
    assert tg.isclose(x, y).tolist() == [True, False]
    assert tg.allclose(x, x)
