"""Small cases from public bug reports, each as its whole kind, on native tensors: through graphs,
and as whole-tensor functions where they have the same fault."""

import math
import re
from itertools import product

import numpy as np
import pytest

import tiga as tg
from tests.sending import Send, SendEdge
from tiga import autograd as ag
from tiga import errors


@pytest.fixture(params=["auto", "native"], autouse=True)
def _backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIGA_TENSOR_BACKEND", request.param)


class Squared(Send):
    def edge(self, src, dst, edge):
        return src.x * src.x


def leaf(values, dtype=tg.float64) -> tg.Tensor:
    return tg.tensor(values, dtype=dtype, requires_grad=True)


def test_sums_over_nothing() -> None:
    """Case 1 as functions of whole tensors."""
    x = tg.zeros((3, 0), requires_grad=True)
    assert tg.sum(x, axis=1).tolist() == [0, 0, 0]
    assert tg.prod(x, axis=1).tolist() == [1, 1, 1]
    assert tg.softmax(x, axis=1).shape == (3, 0)
    assert ag.grad((tg.sum(x, axis=1) + tg.prod(x, axis=1)).sum(), x).shape == (3, 0)
    assert tg.scatter_add(tg.zeros(0), tg.zeros(0, dtype=tg.int64), 3).tolist() == [0, 0, 0]


def test_softmax_groups_do_not_influence_each_other() -> None:
    """Case 5."""
    rows = {(0, -100): (1, 0), (-90, -91): (0.731059, 0.268941), (1, -1): (0.880797, 0.119203),
            (-math.inf, 50): (0, 1), (100, 101): (0.268941, 0.731059),
            (-10000, -9999): (0.268941, 0.731059), (3e38, 3e38): (0.5, 0.5)}  # fmt: skip
    x = leaf(np.array(list(rows)), tg.float32)
    got = tg.softmax(x, axis=1)
    np.testing.assert_allclose(got.numpy(), list(rows.values()), atol=1e-6)
    slope = ag.grad((got * tg.tensor([1.0, 2.0])).sum(), x)
    assert np.isfinite(slope.numpy()).all()

    class Weigh(tg.MessagePassing):
        reducer = tg.softmax()

        def edge(self, src, dst, edge):
            return self.reducer(edge.score, edge.one)

    count = len(rows)
    graph = tg.Graph.from_coo(np.arange(2 * count), np.repeat(np.arange(count), 2),
                              num_src=2 * count, num_dst=count)  # fmt: skip
    score = leaf(np.array(list(rows)).reshape(-1), tg.float32)
    one = tg.tensor(np.tile(np.eye(2, dtype=np.float32), (count, 1)))
    shares = Weigh()(graph=graph, edge={"score": score, "one": one})
    np.testing.assert_allclose(shares.numpy(), list(rows.values()), atol=1e-6)
    assert np.isfinite(ag.grad(shares[:, 0].sum(), score).numpy()).all()


@pytest.mark.parametrize("width", [1, 5, 33])
def test_tail_lanes_do_not_add(width: int) -> None:
    """Case 6: every number of elements up to 65, over either axis."""
    for count in range(1, 66):
        x = tg.broadcast_to(tg.arange(1.0, count + 1.0)[:, None], (count, width))
        want = [count * (count + 1) / 2 + count / 2] * width
        assert (x + 0.5).sum(0).tolist() == want
        assert (x.T + 0.5).sum(1).tolist() == want
        assert tg.cumulative_sum(x.T + 0.5, axis=1)[:, -1].tolist() == want
        assert tg.cumulative_sum(x + 0.5, axis=0, reverse=True)[0].tolist() == want


def test_standard_deviation_of_constant_groups() -> None:
    """Case 10: 0 with derivative 0, in second order too."""
    graph = tg.Graph.from_coo([0] * 6, [0, 1, 1, 1, 2, 2], num_src=1, num_dst=4)
    m = leaf([5.0, 2.0, 2.0, 2.0, 1.0, 3.0])
    y = SendEdge(tg.std())(graph=graph, edge={"m": m})
    np.testing.assert_allclose(y.numpy(), [0, 0, 1, 0], atol=1e-12)
    slope = ag.grad(y.sum(), m)
    np.testing.assert_allclose(slope.numpy(), [0, 0, 0, 0, -0.5, 0.5], atol=1e-12)
    assert np.isfinite(ag.grad((slope * slope).sum(), m).numpy()).all()
    x = leaf([[2.0, 2.0, 2.0], [1.0, 3.0, 2.0]])
    slope = ag.grad(tg.std(x, axis=1).sum(), x)
    assert slope.numpy()[0].tolist() == [0, 0, 0]
    assert np.isfinite(ag.grad((slope * slope).sum(), x).numpy()).all()


def test_second_derivative_and_forward_mode() -> None:
    """Case 12."""
    graph = tg.Graph.from_coo([0, 1, 2], [1, 2, 2], num_src=3, num_dst=3)
    x, v = leaf([1.0, 2.0, 3.0]), tg.tensor([1.0, -1.0, 2.0], dtype=tg.float64)
    kernel = Squared(tg.sum())

    def value(x: tg.Tensor) -> tg.Tensor:
        return kernel(graph=graph, src={"x": x})

    y = value(x)
    assert y.tolist() == [0, 1, 13]
    slope = ag.grad((y * y).sum(), x)
    assert slope.tolist() == [4, 104, 156]
    assert ag.grad((slope * v).sum(), x).tolist() == [12, 12, 200]
    assert ag.jvp(value, (x,), (v,))[1].tolist() == [0, 2, 8]


@pytest.mark.parametrize("count", [10_000, 70_000])
def test_half_precision_means_and_sums(count: int) -> None:
    """Case 16: accumulation in float32; a mean never overflows through its sum."""
    graph = tg.Graph.from_coo(np.zeros(count, int), np.zeros(count, int), num_src=1, num_dst=1)
    ones = tg.ones(count, dtype=tg.float16)
    assert SendEdge(tg.mean())(graph=graph, edge={"m": ones}).tolist() == [1.0]
    assert ones.mean().item() == 1.0
    want = 10_000.0 if count == 10_000 else math.inf
    assert SendEdge(tg.sum())(graph=graph, edge={"m": ones}).tolist() == [want]
    assert ones.sum().item() == want
    assert tg.cumulative_sum(ones)[-1].item() == want
    assert tg.scatter_add(ones, tg.zeros(count, dtype=tg.int64), 1).tolist() == [want]
    assert tg.ones(300, dtype=tg.bfloat16).sum().item() == 300
    assert tg.cumulative_sum(tg.ones(300, dtype=tg.bfloat16))[-1].item() == 300


def test_bitwise_repeatability(monkeypatch: pytest.MonkeyPatch) -> None:
    """Case 19: the same bits for any number of threads, forward and backward."""
    rng = np.random.default_rng(0)
    nodes, count = 500, 20_000
    dst = np.minimum(rng.zipf(1.3, count) - 1, nodes - 1)
    graph = tg.Graph.from_coo(rng.integers(0, nodes, count), dst, num_src=nodes, num_dst=nodes)
    x = rng.standard_normal((nodes, 32)).astype(np.float32)
    found = set()
    for threads, _ in product(("1", "2", "3"), range(3)):
        monkeypatch.setenv("TIGA_NUM_THREADS", threads)
        a = leaf(x, tg.float32)
        y = Send(tg.sum())(graph=graph, src={"x": a})
        z = tg.scatter_add(tg.take(a, tg.tensor(dst), axis=0) * 0.3, tg.tensor(dst), nodes)
        slope = ag.grad((y * y).sum() + (z * z).sum(), a)
        found.add(b"".join(t.numpy().tobytes() for t in (y, z, slope)))
    assert len(found) == 1


def test_sizes_that_include_0_and_1() -> None:
    """Case 20: one kernel's code serves them all."""
    from tiga.frontends.tensor.messages.graph_call import launch_of

    kernel = Send(tg.sum())
    before = None
    for nodes, count in ((5, 7), (6, 9), (50, 300), (1, 1), (2, 0), (1, 0), (3, 1)):
        rng = np.random.default_rng(nodes)
        src, dst = rng.integers(0, nodes, count), rng.integers(0, nodes, count)
        x = leaf(rng.standard_normal((nodes, 4)))
        graph = tg.Graph.from_coo(src, dst, num_src=nodes, num_dst=nodes)
        y = kernel(graph=graph, src={"x": 2.0 * x})
        want = np.zeros((nodes, 4))
        np.add.at(want, dst, 2 * x.numpy()[src])
        np.testing.assert_allclose(y.numpy(), want)
        slope = ag.grad(y.sum(), x).numpy()
        np.testing.assert_allclose(slope, np.bincount(src, minlength=nodes)[:, None] * [[2.0] * 4])
        made = launch_of.cache_info().misses
        assert before is None or made == before
        before = made


def test_bad_indices_are_refused() -> None:
    """Case 23: with the position, and the next call works."""
    for edges, text in ((([0, 2], [1, 3]), "1.*3"), (([0], [-1]), "0.*-1")):
        with pytest.raises(errors.InvalidIndex, match=f"(?s){text}"):
            tg.Graph.from_coo(tg.tensor(edges[0]), tg.tensor(edges[1]), num_src=3, num_dst=3)
    x = tg.arange(3)
    later = tg.tensor([0, 1]) * 3
    for bad in (later, -later - 1):
        with pytest.raises(errors.InvalidIndex, match=r" (3|-4) is out of "):
            tg.take(x, bad, axis=0).realize()
    assert tg.take(x, later - later, axis=0).tolist() == [0, 0]


def test_offsets_are_computed_in_64_bits() -> None:
    """Case 14: no address of a kernel that reads at positions goes through 32 bits."""
    x, index = tg.zeros((70_000, 64)), tg.zeros(9, dtype=tg.int64)
    for made in (tg.take(x, index, axis=0) * 2.0, tg.scatter_add(x[:9], index, 9),
                 tg.take(x[:, 0], index, axis=0) * 2.0, tg.cumulative_sum(x, axis=1)):  # fmt: skip
        text = made.generated_code("llvm")
        pointers = [line for line in text.splitlines() if "getelementptr" in line]
        assert pointers
        steps = [line.rsplit(", ", 1)[-1] for line in pointers if "%" in line.rsplit(", ", 1)[-1]]
        assert all(re.match(r"i64 |<\d+ x i64> ", step) for step in steps), steps
        # Nothing shorter becomes a step again: what is cut off (columns, for masks) stays so.
        assert not re.search(r"\b[sz]ext (<\d+ x )?i\d+", text)
