"""Folds of a row's edges in their order: reducers that are no known reduction, with derivatives."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from tests.gpu import harness, programs
from tests.gpu.harness import DST, RELATION, SRC
from tiga.backends.triton.choice import choose
from tiga.backends.triton.executable import compile_program
from tiga.ops.align import expand_to
from tiga.ops.contract import contract
from tiga.ops.feature import feature_sum, reshape
from tiga.ops.functions import tanh
from tiga.ops.leaf import Input, constant
from tiga.ops.message import gather, reduce_all, spread, sum_to
from tiga.ops.pointwise import add, mul
from tiga.reducers import Messages
from tiga.reducers.fold import Fold, scanned
from tiga.trace.derivatives import gradient, training
from tiga.trace.node import Node
from tiga.trace.program import Program
from tiga.types import GLOBAL, Shape, Type, bool_, float32, float64

EDGE = RELATION.edge
ON_GPU = harness.device() is not None and harness.device().type == "cuda"


def graphs(rng: np.random.Generator) -> dict[str, harness.Problem]:
    """Short and empty rows; rows of some blocks of edges; longer than a chunk; nothing at all."""
    short, long = rng.integers(0, 9, 21), rng.integers(0, 5, 21)
    short[[3, 7]], long[[2, 11]] = 0, (300, 257)
    middle = rng.integers(0, 5, 21)
    middle[[1, 5, 6, 12]] = 70, 64, 33, 32
    return {
        "middle": harness.problem(rng, 17, 21, middle),
        "short": harness.problem(rng, 17, 21, short),
        "long": harness.problem(rng, 17, 21, long),
        "no_edges": harness.problem(rng, 5, 4, np.zeros(4, np.int64)),
    }


GRAPHS = graphs(np.random.default_rng(11))


# reducers: `combine` of the components of two states, and the identity of each


def decay(left, right):
    return [add(mul(left[0], constant(0.5, left[0].type)), right[0])]


def bounded(left, right):
    return [tanh(add(left[0], right[0]))]


def affine(left, right):
    """Of maps x -> a x + b, one after the other."""
    return [mul(left[0], right[0]), add(mul(right[0], left[1]), right[1])]


def matrices(left, right):
    (n, _), space = left[0].type.shape, left[0].type.space
    rows = expand_to(reshape(left[0], (n, n, 1)), (n, n, n), space)
    return [feature_sum(mul(rows, expand_to(right[0], (n, n, n), space)), 1)]


REDUCERS: dict[str, tuple[Callable, tuple[float, ...], bool]] = {
    "decay": (decay, (0.0,), False),
    "bounded": (bounded, (0.25,), False),
    "affine": (affine, (1.0, 0.0), True),
    "matrices": (matrices, (0.5,), False),
}


def fold(name: str, types: list[Type], associative: bool | None = None, space=DST) -> Fold:
    combine, identity, claimed = REDUCERS[name]
    left, right = (
        [Input(f"{side}{i}", t.with_space(space))() for i, t in enumerate(types)] for side in "lr"
    )
    program = Program((*left, *right), tuple(combine(left, right)))
    start = tuple(constant(v, t.with_space(GLOBAL)) for v, t in zip(identity, types, strict=True))
    return Fold(program, start, associative=claimed if associative is None else associative)


def message(x: Node, y: Node, w: Node, factor: float) -> Node:
    """Made of both ends and of a field of the edge, small enough for long products."""
    both = mul(gather(RELATION, "src", x), gather(RELATION, "dst", y))
    return mul(tanh(mul(both, constant(factor, both.type))), expand_to(w, both.type.shape, EDGE))


def case(name: str, shape: Shape, dtype, masked: bool = False) -> programs.Case:
    x, y = (Input(n, Type(dtype, shape, s))() for n, s in (("x", SRC), ("y", DST)))
    w, keep = Input("w", Type(dtype, (), EDGE))(), Input("keep", Type(bool_, (), EDGE))()
    width = len(REDUCERS[name][1])
    parts = tuple(message(x, y, w, 0.6 / (i + 1)) for i in range(width))
    rule = fold(name, [p.type for p in parts])
    sent = Messages(RELATION, parts, keep=keep if masked else None)
    states = scanned(sent, rule, range(width))
    inputs = (x, y, w, keep) if masked else (x, y, w)
    return programs.Case(Program(inputs, (states[-1],)), (0, 1, 2))


def shapes(name: str) -> list[Shape]:
    return [(2, 2), (3, 3)] if name == "matrices" else [(), (3,), (70,)]


CASES = [(name, shape) for name in REDUCERS for shape in shapes(name)]


def interpreted(graph: str, shape: Shape) -> bool:
    """The interpreter is slow: it takes long rows of single numbers."""
    return ON_GPU or graph not in ("middle", "long") or shape == ()


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize(("name", "shape"), CASES, ids=repr)
@pytest.mark.parametrize("masked", [False, True], ids=["all", "masked"])
def test_values_and_gradients(rng, name, shape, masked, graph):
    if not interpreted(graph, shape):
        pytest.skip("too long for the interpreter")
    made, where = case(name, shape, float64, masked), GRAPHS[graph]
    arrays = harness.fields(rng, where, made.program.inputs)
    harness.check(made.program, arrays, where, made.wanted, order=1)


@pytest.mark.parametrize("name", ["decay", "affine"])
def test_programs_that_take_several_tiles(rng, name):
    """What a program keeps of a block of edges is written again for its next tile."""
    made, where = case(name, (), float64), GRAPHS["middle"]
    full = training(made.program, made.wanted, harness.RULES)
    back = gradient(full, made.wanted, [0], harness.RULES).program
    arrays = harness.fields(rng, where, back.inputs)
    few = compile_program(back, lambda p, d: fewer(choose(p, d)))
    assert any(step.program.scans for step in few.steps)
    found = harness.run(back, arrays, where, few)
    for got, want in zip(found, harness.oracle(back, arrays, where), strict=True):
        harness.assert_close(got, want, float64, name)


@pytest.mark.parametrize("name", ["decay", "affine"])
def test_edges_that_are_asked_for_at_once(rng, name):
    """However many: the bits are those of one after another."""
    made, where = case(name, (), float64), GRAPHS["middle"]
    full = training(made.program, made.wanted, harness.RULES)
    back = gradient(full, made.wanted, [0], harness.RULES).program
    arrays = harness.fields(rng, where, back.inputs)
    results = []
    for ahead in (1, 8):
        tiles = partial(lambda n, p, d: replace(choose(p, d), ahead=n * bool(p.scans)), ahead)
        found = harness.run(back, arrays, where, compile_program(back, tiles))
        results.append([array.tobytes() for array in found])
    assert results[0] == results[1]


@pytest.mark.parametrize("name", ["decay", "affine"])
def test_offsets_of_64_bits(rng, name, monkeypatch):
    monkeypatch.setattr("tiga.backends.triton.launch.LIMIT", 1)
    made, where = case(name, (3,), float64), GRAPHS["short"]
    arrays = harness.fields(rng, where, made.program.inputs)
    harness.check(made.program, arrays, where, made.wanted, order=1)


def fewer(tile):
    return replace(tile, rows=2, groups=3) if tile.groups else tile


def test_a_join_that_reads_a_number(rng):
    """Long rows in chunks: the product of all messages, each with a number between."""
    of = Type(float64, (), DST)
    left, right, between = (Input(n, of)() for n in ("left", "right", "between"))
    x, w = Input("x", Type(float64, (), SRC))(), Input("w", Type(float64, (), EDGE))()
    one, g = (Input(n, Type(float64, (), GLOBAL))() for n in ("one", "g"))
    body = Program((left, right, between), (mul(mul(left, between), right),))
    rule = Fold(body, (one,), (g,), associative=True)
    sent = mul(tanh(gather(RELATION, "src", x)), w)
    near = add(mul(sent, constant(0.01, sent.type)), spread(one, EDGE))
    (state,) = scanned(Messages(RELATION, (near,)), rule, [0])
    where, program = GRAPHS["long"], Program((x, w, one, g), (state,))
    arrays = harness.fields(rng, where, program.inputs)
    arrays[2:] = np.array(0.8), np.array(1.25)
    harness.check(program, arrays, where, (0, 1, 3), order=1)


@pytest.mark.parametrize("associative", [False, True])
def test_sums_around_a_fold(rng, associative):
    """A fold that reads a sum of its row, a sum that reads the fold, and a total of both."""
    x, w = Input("x", Type(float64, (), SRC))(), Input("w", Type(float64, (), EDGE))()
    sent = mul(tanh(gather(RELATION, "src", x)), w)
    near = tanh(gather(RELATION, "dst", sum_to(RELATION, "dst", sent)))
    rule = fold("affine", [sent.type] * 2, associative)
    states = scanned(Messages(RELATION, (tanh(mul(near, w)), sent)), rule, [0, 1])
    after = tanh(gather(RELATION, "dst", states[1]))
    again = sum_to(RELATION, "dst", mul(after, tanh(sent)))
    where, program = GRAPHS["long"], Program((x, w), (again, reduce_all(tanh(states[0]))))
    arrays = harness.fields(rng, where, program.inputs)
    harness.check(program, arrays, where, (0, 1), order=1)


def test_weights_within_a_fold(rng):
    """The gradient of a matrix is a sum of outer products over edges, in the walk of the fold."""
    x = Input("x", Type(float64, (5,), SRC))()
    matrix = Input("matrix", Type(float64, (5, 3), GLOBAL))()
    sent = tanh(contract(tanh(gather(RELATION, "src", x)), matrix))
    (state,) = scanned(Messages(RELATION, (sent,)), fold("bounded", [sent.type]), [0])
    where, program = GRAPHS["short"], Program((x, matrix), (state,))
    arrays = harness.fields(rng, where, program.inputs)
    harness.check(program, arrays, where, (0, 1), order=1)


def test_folds_over_the_edges_of_sources(rng):
    y, w = Input("y", Type(float64, (3,), DST))(), Input("w", Type(float64, (), EDGE))()
    sent = mul(tanh(gather(RELATION, "dst", y)), expand_to(w, (3,), EDGE))
    rule = fold("affine", [sent.type] * 2, space=SRC)
    states = scanned(Messages(RELATION, (tanh(sent), sent), side="src"), rule, [0, 1])
    where, program = GRAPHS["short"], Program((y, w), (states[1],))
    arrays = harness.fields(rng, where, program.inputs)
    harness.check(program, arrays, where, (0, 1), order=1)


@pytest.mark.parametrize("name", ["decay", "affine", "matrices"])
def test_float32(rng, name):
    made, where = case(name, shapes(name)[1], float32), GRAPHS["short"]
    arrays = harness.fields(rng, where, made.program.inputs)
    harness.check(made.program, arrays, where, made.wanted, order=1)


@pytest.mark.parametrize("name", ["bounded", "affine"])
def test_second_derivatives(rng, name):
    made, where = case(name, (3,), float64), GRAPHS["short"]
    arrays = harness.fields(rng, where, made.program.inputs)
    harness.check(made.program, arrays, where, made.wanted, order=2)
