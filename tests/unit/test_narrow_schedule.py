"""Narrow edge values: edges across lanes, whatever is left of a row, and the order of sums."""

from dataclasses import replace

import numpy as np
import pytest

from tiga.backends.reference import EdgeList, evaluate
from tiga.compiler import compile_program
from tiga.ops.feature import broadcast
from tiga.ops.functions import exp, tanh
from tiga.ops.leaf import Input
from tiga.ops.message import gather, reduce
from tiga.ops.pointwise import add, mul, sub
from tiga.passes.differentiate import RULES
from tiga.passes.schedule import Schedule
from tiga.reducers import LogSumExp, Max, Mean, Messages, Prod, Std, Sum
from tiga.relations import Graph
from tiga.relations.walk import Walk
from tiga.trace.derivatives import gradient, training
from tiga.trace.node import Node
from tiga.trace.program import Program
from tiga.types import GLOBAL, Relation, Space, Type, bfloat16, float32, float64, int32, int64

SRC, DST = Space("sources", "node"), Space("destinations", "node")
EDGES = Relation("edges", SRC, DST)
NUM_SRC = 41
DEGREES = [*range(34), 47, 48, 49, 0, 64, 100, 5]
HUB = 5000


def graph_of(degrees, seed: int = 0) -> tuple[Graph, EdgeList]:
    destinations = np.repeat(np.arange(len(degrees)), degrees)
    sources = np.random.default_rng(seed).integers(0, NUM_SRC, len(destinations))
    graph = Graph.from_coo(sources, destinations, num_src=NUM_SRC, num_dst=len(degrees))
    return graph, EdgeList(sources, destinations, NUM_SRC, len(degrees))


def make_input(name: str, dtype, shape, space) -> Node:
    return Input(name, Type(dtype, shape, space))()


def values(node: Node, graph, rng) -> np.ndarray:
    lead = {SRC: graph.num_src, DST: graph.num_dst, EDGES.edge: graph.num_edges}
    shape = (lead[node.type.space], *node.type.shape)
    if node.type.dtype.kind == "i":
        return rng.integers(-9, 9, shape).astype(node.type.dtype.numpy)
    return rng.uniform(-1, 1, shape).astype(node.type.dtype.numpy)


def run(program: Program, graph, arrays, threads: int = 2) -> list[np.ndarray]:
    """The outputs of the compiled program."""
    sizes = {GLOBAL: 1, SRC: graph.num_src, DST: graph.num_dst, EDGES.edge: graph.num_edges}
    outputs = []
    for node in program.outputs:
        lead = () if node.type.space == GLOBAL else (sizes[node.type.space],)
        outputs.append(np.full((*lead, *node.type.shape), 77).astype(node.type.dtype.numpy))
    addresses = [[a.ctypes.data for a in group] for group in (arrays, outputs)]
    graphs = [graph] * len(program.relations)
    compile_program(program).run(graphs, *addresses, threads, extents=sizes)
    return outputs


def schedules(program: Program) -> list[Schedule]:
    return list(compile_program(program).schedules)


def assert_matches(program: Program, graph, edges, arrays, scale: float = 1) -> None:
    outputs = run(program, graph, arrays)
    for node, got, want in zip(
        program.outputs, outputs, evaluate(program, arrays, {EDGES: edges}), strict=True
    ):
        if node.type.dtype.kind == "i":
            np.testing.assert_array_equal(got, want)
            continue
        # Sums of up to 100 terms of size 1, in any order.
        bound = scale * 64 * np.finfo(node.type.dtype.numpy).eps
        np.testing.assert_allclose(got, want, rtol=bound, atol=bound)


def weighted(dtype, shape=(), function=None) -> tuple[tuple[Node, ...], Node]:
    """Inputs, and the message w * f(x_src - y_dst)."""
    x, y = make_input("x", dtype, shape, SRC), make_input("y", dtype, shape, DST)
    w = make_input("w", dtype, (), EDGES.edge)
    difference = sub(gather(EDGES, "src", x), gather(EDGES, "dst", y))
    value = difference if function is None else function(difference)
    return (x, y, w), mul(broadcast(w, shape) if shape else w, value)


def sum_program(dtype, shape=(), function=None) -> Program:
    inputs, message = weighted(dtype, shape, function)
    return Program(inputs, (Sum().rows(Messages(EDGES, (message,))),))


# which schedule


def test_cheap_scalars_take_full_sets_of_lanes_only() -> None:
    assert schedules(sum_program(float32)) == [Schedule("edges", edge_lanes=16, few=16)]
    assert schedules(sum_program(float64)) == [Schedule("edges", edge_lanes=8, few=8)]


def test_costly_narrow_values_take_masked_lanes() -> None:
    assert schedules(sum_program(float32, (), tanh)) == [Schedule("edges", edge_lanes=16, few=4)]
    assert schedules(sum_program(float64, (2,), exp)) == [Schedule("edges", edge_lanes=8, few=2)]


def test_transposed_walks_gather_and_scatter_only_where_it_pays() -> None:
    def transposed(function, store: bool) -> list[Schedule]:
        inputs, message = weighted(float32, (), function)
        total = reduce(EDGES, "src", "sum", message)
        return schedules(Program(inputs, (total, message) if store else (total,)))

    assert [s.lanes for s in transposed(None, store=True)] == ["features"]
    assert transposed(tanh, store=False) == [Schedule("edges", edge_lanes=16, few=4)]
    assert transposed(tanh, store=True) == [Schedule("edges", edge_lanes=16, few=8)]


@pytest.mark.parametrize(
    ("dtype", "shape", "function"),
    [(float32, (2,), None), (float32, (3,), tanh), (bfloat16, (), exp)],
    ids=["cheap pair", "three elements", "16 bits"],
)
def test_others_take_edges_one_by_one(dtype, shape, function) -> None:
    (schedule,) = schedules(sum_program(dtype, shape, function))
    assert schedule.lanes == "features"


# values, for every number of edges left over


@pytest.mark.parametrize("shape", [(), (1,), (2,), (3,), (4,)], ids=str)
@pytest.mark.parametrize("function", [None, tanh], ids=["cheap", "costly"])
@pytest.mark.parametrize("dtype", [float32, float64], ids=lambda d: d.name)
def test_sums_match_the_oracle_at_every_degree(dtype, function, shape, rng) -> None:
    graph, edges = graph_of(DEGREES)
    program = sum_program(dtype, shape, function)
    assert_matches(program, graph, edges, [values(n, graph, rng) for n in program.inputs])


@pytest.mark.parametrize("dtype", [int32, int64], ids=lambda d: d.name)
def test_integers_match_the_oracle_at_every_degree(dtype, rng) -> None:
    graph, edges = graph_of(DEGREES)
    program = sum_program(dtype)
    assert_matches(program, graph, edges, [values(n, graph, rng) for n in program.inputs])


REDUCERS = [Sum(), Mean(), Max(), Std(), Prod(), LogSumExp()]


@pytest.mark.parametrize("function", [None, exp], ids=["cheap", "costly"])
@pytest.mark.parametrize("reducer", REDUCERS, ids=lambda r: type(r).__name__)
def test_every_reducer_matches_the_oracle(reducer, function, rng) -> None:
    graph, edges = graph_of(DEGREES)
    inputs, message = weighted(float64, (), function)
    program = Program(inputs, (reducer.rows(Messages(EDGES, (message,))),))
    assert_matches(program, graph, edges, [values(n, graph, rng) for n in inputs], scale=16)


@pytest.mark.parametrize("function", [None, tanh], ids=["cheap", "costly"])
@pytest.mark.parametrize("shape", [(), (2,)], ids=str)
def test_edge_values_are_stored_where_they_belong(shape, function, rng) -> None:
    graph, edges = graph_of(DEGREES)
    inputs, message = weighted(float32, shape, function)
    program = Program(inputs, (message,))
    assert_matches(program, graph, edges, [values(n, graph, rng) for n in inputs])


@pytest.mark.parametrize("function", [None, tanh], ids=["cheap", "costly"])
@pytest.mark.parametrize("shape", [(), (2,)], ids=str)
def test_gradients_match_the_oracle(shape, function, rng) -> None:
    graph, edges = graph_of(DEGREES)
    program = training(sum_program(float64, shape, function), [0, 1, 2], RULES)
    backward = gradient(program, [0, 1, 2], [0], RULES).program
    arrays = [values(n, graph, rng) for n in backward.inputs]
    assert_matches(backward, graph, edges, arrays, scale=16)


@pytest.mark.parametrize("function", [None, tanh], ids=["cheap", "costly"])
@pytest.mark.parametrize("shape", [(), (2,)], ids=str)
def test_transposed_walks_read_and_write_edges_by_their_id(shape, function, rng) -> None:
    """Sums at sources, and an edge value that needs such a sum: stored by the transposed walk."""
    graph, edges = graph_of([int(d) for d in np.roll(DEGREES, 7)])
    inputs, message = weighted(float64, shape, function)
    total = reduce(EDGES, "src", "sum", message)
    program = Program(inputs, (total, add(message, gather(EDGES, "src", total))))
    assert_matches(program, graph, edges, [values(n, graph, rng) for n in inputs], scale=16)


# 64-bit indices


class WideGraph:
    """A graph whose walks have 64-bit indices, as those of more than 2^31 edges have."""

    def __init__(self, graph: Graph) -> None:
        self.num_src, self.num_dst = graph.num_src, graph.num_dst
        self.num_edges = graph.num_edges
        self.walks = {side: self._widened(graph.walk(side)) for side in ("src", "dst")}

    @staticmethod
    def _widened(walk: Walk) -> Walk:
        ids = None if walk.edge_id is None else walk.edge_id.astype(np.int64)
        return replace(walk, index=walk.index.astype(np.int64), edge_id=ids)

    def walk(self, side: str) -> Walk:
        return self.walks[side]


@pytest.mark.parametrize("function", [None, tanh], ids=["cheap", "costly"])
@pytest.mark.parametrize("side", ["src", "dst"])
def test_wide_indices_give_the_same_bits(side, function, rng) -> None:
    graph, _ = graph_of([*DEGREES, HUB])
    inputs, message = weighted(float32, (), function)
    program = Program(inputs, (reduce(EDGES, side, "sum", message), message))
    arrays = [values(n, graph, rng) for n in inputs]
    pairs = zip(run(program, graph, arrays), run(program, WideGraph(graph), arrays), strict=True)
    for a, b in pairs:
        np.testing.assert_array_equal(a, b)


# what results may depend on


@pytest.mark.parametrize("function", [None, tanh], ids=["cheap", "costly"])
def test_any_number_of_threads_gives_the_same_bits(function, rng) -> None:
    graph, _ = graph_of([*DEGREES * 40, HUB, *DEGREES])
    program = sum_program(float32, (), function)
    arrays = [values(n, graph, rng) for n in program.inputs]
    (one,), *others = (run(program, graph, arrays, threads) for threads in (1, 2, 3))
    for (other,) in others:
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("function", [None, tanh], ids=["cheap", "costly"])
@pytest.mark.parametrize("degree", [3, 4, 15, 16, 17, 19, 20, 33])
def test_a_row_has_the_same_bits_among_other_rows(degree, function, rng) -> None:
    program = sum_program(float32, (), function)
    alone, _ = graph_of([degree])
    arrays = [values(n, alone, rng) for n in program.inputs]
    (want,) = run(program, alone, arrays)
    index = alone.walk("dst").index
    for before, after in ((1, 0), (7, 30), (16, 1)):
        sources = np.concatenate([np.zeros(before, np.int64), index, np.ones(after, np.int64)])
        destinations = np.repeat([0, 1, 2], [before, degree, after])
        graph = Graph.from_coo(sources, destinations, num_src=NUM_SRC, num_dst=3)
        x, y, w = arrays
        padded = np.concatenate([np.ones(before, w.dtype), w, np.ones(after, w.dtype)])
        (got,) = run(program, graph, [x, np.repeat(y, 3), padded])
        assert got[1] == want[0]


@pytest.mark.parametrize("function", [exp, tanh], ids=["exp", "tanh"])
def test_edge_values_have_the_same_bits_in_either_layout(function, rng) -> None:
    graph, _ = graph_of(DEGREES)
    scalar, triple = (weighted(float32, shape, function) for shape in ((), (3,)))
    x, y, w = (values(n, graph, rng) for n in scalar[0])
    (narrow,) = run(Program(scalar[0], (scalar[1],)), graph, [x, y, w])
    wide_arrays = [np.repeat(a[:, None], 3, axis=1) for a in (x, y)]
    (wide,) = run(Program(triple[0], (triple[1],)), graph, [*wide_arrays, w])
    np.testing.assert_array_equal(wide, np.repeat(narrow[:, None], 3, axis=1))


@pytest.mark.parametrize("function", [None, tanh], ids=["cheap", "costly"])
def test_lanes_without_an_edge_leave_no_trace(function) -> None:
    """Entities that no edge names may hold anything, as may the edges of the next row."""
    graph, _ = graph_of([5, 6, 21])
    graph = Graph.from_coo(
        np.ones(graph.num_edges, np.int64), np.repeat([0, 1, 2], [5, 6, 21]),
        num_src=NUM_SRC, num_dst=3,
    )  # fmt: skip
    program = sum_program(float32, (), function)
    x = np.full(NUM_SRC, np.nan, np.float32)
    x[1] = 0.5
    w = np.full(graph.num_edges, np.inf, np.float32)
    w[5:11] = 1
    (got,) = run(program, graph, [x, np.zeros(3, np.float32), w])
    assert np.isfinite(got).tolist() == [False, True, False]
