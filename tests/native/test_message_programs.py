"""Native calls look programs up by structure: what may vary varies, what changed is seen."""

import numpy as np
import pytest

import tiga as tg
from tiga.frontends.tensor.messages.graph_call import launch_of

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


class LogSum(tg.Reducer):
    associative = commutative = True

    def identity(self):
        return 0.0

    def lift(self, message):
        return tg.log(message)

    def combine(self, left, right):
        return left + right

    def finalize(self, state):
        return tg.exp(state)


class Welford(tg.Reducer):
    """Mean and variance: a state of three parts."""

    associative = True

    def identity(self):
        return {"n": 0.0, "mean": 0.0, "m2": 0.0}

    def lift(self, x):
        return {"n": x * 0 + 1.0, "mean": x, "m2": x * 0}

    def combine(self, left, right):
        n = left["n"] + right["n"]
        safe = tg.where(n == 0, tg.ones_like(n), n)
        delta = right["mean"] - left["mean"]
        mean = left["mean"] + delta * right["n"] / safe
        m2 = left["m2"] + right["m2"] + delta * delta * left["n"] * right["n"] / safe
        return {"n": n, "mean": mean, "m2": m2}

    def finalize(self, state):
        n = tg.where(state["n"] == 0, tg.ones_like(state["n"]), state["n"])
        return state["mean"], state["m2"] / n


class Decaying(tg.Reducer):
    """Not commutative: later edges count more."""

    def __init__(self, rate):
        super().__init__()
        self.rate = rate

    def identity(self):
        return 0.0

    def combine(self, left, right):
        return left * self.rate + right


class Sends(tg.MessagePassing):
    def __init__(self, reducer):
        self.reducer = reducer

    def edge(self, src, dst, edge):
        return src.x * edge.w


W = RNG.uniform(0.5, 1.5, (20, 1))


def rows_of(fold) -> list[np.ndarray]:
    messages = X[SRC] * W
    return [fold(messages[row == DST]) for row in range(6)]


def decayed(messages: np.ndarray, rate: float) -> np.ndarray:
    total = np.zeros(3)
    for one in messages:
        total = total * rate + one
    return total


def test_reducers_of_users() -> None:
    given = {"graph": GRAPH, "src": {"x": tg.tensor(X)}, "edge": {"w": tg.tensor(W)}}
    got = Sends(LogSum())(**given).numpy()
    np.testing.assert_allclose(got, rows_of(lambda m: m.prod(0)), rtol=1e-10)
    mean, var = Sends(Welford())(**given)
    full = [r for r in range(6) if (r == DST).any()]
    np.testing.assert_allclose(mean.numpy()[full], [rows_of(lambda m: m.mean(0))[r] for r in full])
    np.testing.assert_allclose(
        var.numpy()[full], [rows_of(lambda m: m.var(0))[r] for r in full], rtol=1e-9, atol=1e-12
    )
    for rate in (0.5, 0.25, 0.125):
        got = Sends(Decaying(rate))(**given).numpy()
        np.testing.assert_allclose(got, rows_of(lambda m, r=rate: decayed(m, r)), rtol=1e-12)


def test_derivatives_of_reducers_of_users() -> None:
    rate = tg.tensor(0.5, dtype=tg.float64, requires_grad=True)

    def loss(x: tg.Tensor) -> tg.Tensor:
        out = Sends(Decaying(rate))(graph=GRAPH, src={"x": x}, edge={"w": tg.tensor(W)})
        return (out * out).sum()

    x = tg.tensor(X, requires_grad=True)
    dx, dr = ag.grad(loss(x), (x, rate))
    step = 1e-6
    for place in ((0, 0), (3, 2)):
        shifted = []
        for sign in (1, -1):
            array = X.copy()
            array[place] += sign * step
            shifted.append(loss(tg.tensor(array)).item())
        want = (shifted[0] - shifted[1]) / (2 * step)
        np.testing.assert_allclose(dx.numpy()[place], want, rtol=1e-6, atol=1e-7)

    def at(value: float) -> float:
        total = rows_of(lambda m: decayed(m, value))
        return float((np.array(total) ** 2).sum())

    want = (at(0.5 + step) - at(0.5 - step)) / (2 * step)
    np.testing.assert_allclose(dr.item(), want, rtol=1e-6)


def test_a_mask_and_a_reducer_of_a_user() -> None:
    class Near(Sends):
        def edge(self, src, dst, edge):
            return tg.mask(src.x * edge.w, edge.w[:, 0] > 1.0)

    got = Near(LogSum())(graph=GRAPH, src={"x": tg.tensor(X)}, edge={"w": tg.tensor(W)})
    messages, keep = X[SRC] * W, W[:, 0] > 1
    want = [messages[(row == DST) & keep].prod(0) for row in range(6)]
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-10)


def test_reducers_that_are_wrong() -> None:
    class NoCombine(tg.Reducer):
        def identity(self):
            return 0.0

    class Widening(NoCombine):
        def combine(self, left, right):
            return (left, right)

    given = {"graph": GRAPH, "src": {"x": tg.tensor(X)}, "edge": {"w": tg.tensor(W)}}
    with pytest.raises(tg.errors.InvalidType, match="has no `combine`"):
        Sends(NoCombine())(**given)
    with pytest.raises(tg.errors.InvalidType, match="structure of the states"):
        Sends(Widening())(**given)


class Sorted(tg.MessagePassing):
    """Sorting features and looking a table up are in no walk."""

    def __init__(self, table, reducer=None):
        self.table = table
        self.reducer = reducer or tg.sum()

    def edge(self, src, dst, edge):
        return tg.sort(src.x, axis=1) * tg.take(self.table, edge.kind, axis=0)

    def node(self, dst, aggregate):
        return aggregate - dst.x


KIND = RNG.integers(0, 4, 20)
TABLE = RNG.uniform(-1, 1, (4, 3))


@pytest.mark.parametrize("bound", [None, 200])
def test_what_no_walk_holds_goes_through_memory(
    bound: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if bound is not None:
        monkeypatch.setenv("TIGA_MEMORY_BOUND", str(bound))
    table = tg.tensor(TABLE, requires_grad=True)
    kind = tg.tensor(KIND)
    x = tg.tensor(X, requires_grad=True)
    messages = np.sort(X[SRC], axis=1) * TABLE[KIND]
    out = Sorted(table)(graph=GRAPH, ndata={"x": x}, edge={"kind": kind})
    np.testing.assert_allclose(out.numpy(), summed(messages) - X, rtol=1e-12)
    slope = ag.grad(out.sum(), table).numpy()
    want = np.zeros((4, 3))
    np.add.at(want, KIND, np.sort(X[SRC], axis=1))
    np.testing.assert_allclose(slope, want, rtol=1e-12)
    best = Sorted(table, tg.max())(graph=GRAPH, ndata={"x": x}, edge={"kind": kind}).numpy() + X
    for row in set(DST):
        np.testing.assert_allclose(best[row], messages[row == DST].max(0), rtol=1e-12)


def test_strict_kernels_refuse_the_way_through_memory() -> None:
    kernel = Sorted(tg.tensor(TABLE))
    type(kernel).strict = True
    try:
        with pytest.raises(tg.errors.Unfusable, match=r"test_message_programs.py:\d+: .* fused"):
            kernel(graph=GRAPH, ndata={"x": tg.tensor(X)}, edge={"kind": tg.tensor(KIND)})
    finally:
        type(kernel).strict = False
