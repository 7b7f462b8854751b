"""Small programs that random ones were cut down to."""

import numpy as np
import pytest

import tiga as tg

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
