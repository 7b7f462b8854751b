"""Native calls look programs up by structure: what may vary varies, what changed is seen."""

import numpy as np
import pytest

import tiga as tg
from tiga.frontends.tensor.graph_call import launch_of

ag = tg.autograd
RNG = np.random.default_rng(5)
SRC, DST = RNG.integers(0, 6, 20), RNG.integers(0, 6, 20)
GRAPH = tg.Graph.from_coo(SRC, DST, num_src=6, num_dst=6)
X = RNG.uniform(0.5, 2, (6, 3))


def summed(messages: np.ndarray) -> np.ndarray:
    total = np.zeros((6, *messages.shape[1:]))
    np.add.at(total, DST, messages)
    return total


class Scaled(tg.MessagePassing):
    factor = 0.5

    def edge(self, src, dst, edge):
        return tg.tanh(src.x) * self.factor + 3

    def node(self, dst, aggregate):
        return aggregate - dst.x * (self.factor + 1.0)


def made() -> int:
    return launch_of.cache_info().misses


def test_numbers_become_arguments() -> None:
    kernel, x = Scaled(), tg.tensor(X)

    def check(factor: float) -> None:
        kernel.factor = factor
        got = kernel(graph=GRAPH, ndata={"x": x}).numpy()
        want = summed(np.tanh(X[SRC]) * factor + 3) - X * (factor + 1)
        np.testing.assert_allclose(got, want, rtol=1e-12)

    check(0.5)
    check(0.25)
    before = made()
    for factor in (1.5, -2.0, 0.0, 0.5, 7.0):
        check(factor)
    assert made() == before


def test_derivatives_do_not_depend_on_how_numbers_are_kept() -> None:
    kernel = Scaled()
    found = []
    for factor in (0.3, 0.6, 0.9):
        kernel.factor = factor
        x = tg.tensor(X, requires_grad=True)
        out = kernel(graph=GRAPH, ndata={"x": x})
        found.append(ag.grad((out * out).sum(), x).numpy())
        eager = tg.tensor(X, requires_grad=True)
        messages = tg.tanh(eager[tg.tensor(SRC)]) * factor + 3
        total = tg.zeros((6, 3), dtype=tg.float64)
        rows = tg.segment_sum(messages, tg.tensor(DST), 6) + total - eager * (factor + 1.0)
        want = ag.grad((rows * rows).sum(), eager).numpy()
        np.testing.assert_allclose(found[-1], want, rtol=1e-10)


def test_a_warm_call_makes_no_program() -> None:
    class Twice(tg.MessagePassing):
        def edge(self, src, dst, edge):
            return src.x * 2.0

    Twice()(graph=GRAPH, src={"x": tg.tensor(X)})
    before = made()
    other = tg.Graph.from_coo(DST, SRC, num_src=6, num_dst=6)
    for graph in (GRAPH, other, tg.Graph.from_coo([0, 1], [1, 1], num_src=6, num_dst=2)):
        Twice()(graph=graph, src={"x": tg.tensor(X + 1.0)}).numpy()
    assert made() == before


def test_what_edge_reads_is_read_at_every_call() -> None:
    state = {"sign": 1.0, "double": False}
    matrix = tg.tensor(RNG.uniform(-1, 1, (3, 2)), requires_grad=True)

    class Reading(tg.MessagePassing):
        def edge(self, src, dst, edge):
            value = src.x @ matrix * state["sign"]
            return value + value if state["double"] else value

    kernel, x = Reading(), tg.tensor(X)
    plain = summed(X[SRC] @ matrix.numpy())
    for sign, double in ((1.0, False), (-1.0, False), (-1.0, True), (1.0, False)):
        state.update(sign=sign, double=double)
        out = kernel(graph=GRAPH, src={"x": x})
        np.testing.assert_allclose(out.numpy(), plain * sign * (2 if double else 1), rtol=1e-12)
        slope = ag.grad(kernel(graph=GRAPH, src={"x": x}).sum(), matrix).numpy()
        want = X[SRC].sum(0)[:, None] * sign * (2 if double else 1)
        np.testing.assert_allclose(slope, np.broadcast_to(want, (3, 2)), rtol=1e-12)


def test_trees_and_several_reducers() -> None:
    class Several(tg.MessagePassing):
        reducer = tg.multi(total=tg.sum(), top=tg.max(), where=tg.argmax())

        def edge(self, src, dst, edge):
            return {"a": src.x, "b": edge.w * src.x[:, :1]}

    w = RNG.uniform(-1, 1, (20, 1))
    got = Several()(graph=GRAPH, src={"x": tg.tensor(X)}, edge={"w": tg.tensor(w)})
    messages = w * X[SRC, :1]
    np.testing.assert_allclose(got["b"]["total"].numpy(), summed(messages), rtol=1e-12)
    for row in set(DST):
        own = np.flatnonzero(row == DST)
        best = own[messages[own, 0].argmax()]
        np.testing.assert_allclose(got["b"]["top"].numpy()[row, 0], messages[best, 0])
        assert got["b"]["where"].numpy()[row, 0] == best
    np.testing.assert_allclose(got["a"]["total"].numpy(), summed(X[SRC]), rtol=1e-12)


def test_a_number_as_message_counts_edges() -> None:
    class Count(tg.MessagePassing):
        def edge(self, src, dst, edge):
            return 1.0

    got = Count()(graph=GRAPH, src={"x": tg.tensor(X)}).numpy()
    np.testing.assert_array_equal(got, np.bincount(DST, minlength=6))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_short_floats(dtype: str) -> None:
    class Near(tg.MessagePassing):
        def edge(self, src, dst, edge):
            return tg.relu(src.x - dst.x)

    x = tg.tensor(X).astype(dtype)
    wide = x.numpy().astype(np.float64)
    got = Near()(graph=GRAPH, ndata={"x": x})
    assert str(got.dtype) == dtype
    want = summed(np.maximum(wide[SRC] - wide[DST], 0))
    np.testing.assert_allclose(got.numpy().astype(float), want, rtol=0.02, atol=0.02)
