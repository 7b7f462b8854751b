"""Products of edge values with matrices: as exact as float32, the same in every walk."""

from dataclasses import replace

import numpy as np
import pytest

from tests.gpu import harness, programs
from tiga.backends.triton.choice import choose
from tiga.backends.triton.executable import compile_program
from tiga.backends.triton.products import are_kept
from tiga.backends.triton.schedule import products as products_of
from tiga.ops.contract import contract
from tiga.ops.functions import tanh
from tiga.ops.leaf import Input
from tiga.ops.message import gather, sum_to
from tiga.ops.pointwise import mul, sub
from tiga.passes.rows import RowProgram
from tiga.reducers import Max, Messages, Sum
from tiga.trace.derivatives import gradient, training
from tiga.trace.program import Program
from tiga.types import GLOBAL, Type, bfloat16, float16, float32

R = harness.RELATION


def network(reducer, inner, outer):
    """A product per edge: that of a difference alone would be one of node values."""
    x = Input("x", Type(float32, (inner,), harness.SRC))()
    w = Input("w", Type(float32, (inner,), R.edge))()
    matrix = Input("matrix", Type(float32, (inner, outer), GLOBAL))()
    message = contract(sub(gather(R, "src", x), w), matrix)
    return Program((x, w, matrix), (reducer.rows(Messages(R, (message,))),))


def graph(rng):
    return harness.problem(rng, 9, 40, rng.integers(0, 9, 40))


@pytest.mark.parametrize(("inner", "outer"), [(64, 64), (3, 16), (40, 5), (130, 70)])
def test_products_are_as_exact_as_float32(rng, inner, outer):
    program, where = network(Max(), inner, outer), graph(rng)
    arrays = harness.fields(rng, where, program.inputs)
    (got,) = harness.run(program, arrays, where)
    matrix = arrays[2].astype(np.float64)
    source, dst = where.edges.src, where.edges.dst
    order = np.argsort(dst, kind="stable")
    messages = (arrays[0][source[order]] - arrays[1]).astype(np.float64) @ matrix
    expected = np.zeros_like(got, np.float64)
    for row in range(len(got)):
        own = messages[dst[order] == row]
        expected[row] = own.max(0) if len(own) else 0
    scale = np.linalg.norm(matrix, axis=0).max() * np.sqrt(2 * inner)
    assert np.abs(got - expected).max() <= 4e-7 * scale


def deep_network(layers, width):
    """So many products of an edge's values one after another."""
    x = Input("x", Type(float32, (width,), harness.SRC))()
    w = Input("w", Type(float32, (width,), R.edge))()
    kind = Type(float32, (width, width), GLOBAL)
    matrices = [Input(f"m{i}", kind)() for i in range(layers)]
    message = mul(gather(R, "src", x), w)
    for matrix in matrices:
        message = tanh(contract(message, matrix))
    return Program((x, w, *matrices), (sum_to(R, "dst", message),))


@pytest.mark.parametrize(
    ("layers", "width"), [(5, 64), pytest.param(4, 128, marks=pytest.mark.slow)]
)
def test_matrices_that_do_not_fit_are_read_in_steps(rng, layers, width):
    program = deep_network(layers, width)
    where = harness.problem(rng, 9, 40, np.array([*range(9)] * 4 + 4 * [1]))
    wanted = tuple(range(len(program.inputs)))
    full = training(program, wanted, harness.RULES)
    found = gradient(full, wanted, [0], harness.RULES)
    arrays = harness.fields(rng, where, program.inputs)
    arrays[2:] = [m / np.float32(width**0.5) for m in arrays[2:]]
    outputs = harness.run(full, arrays, where)
    given = {"input": arrays, "output": outputs, "cotangent": {0: np.ones_like(outputs[0])}}
    taken = [given[kind][i] for kind, i in found.arguments]
    executable = compile_program(found.program)
    steps = [s for s in executable.plan.steps if isinstance(s, RowProgram) and products_of(s)]
    assert not all(are_kept({n.inputs[1] for n in products_of(step)}) for step in steps)
    got = harness.run(found.program, taken, where, executable)
    for one, other in zip(got, harness.oracle(found.program, taken, where), strict=True):
        scale = np.abs(other).max()
        assert np.abs(one - other).max() <= 3e-5 * scale
    again = harness.run(found.program, taken, where, executable)
    assert all(np.array_equal(a, b) for a, b in zip(got, again, strict=True))


def test_rows_meet_their_matrices_tile_by_tile(rng):
    """A program goes from tile to tile, the last of which is not full."""
    program, where = programs.joined_layer(float32, 16).program, graph(rng)

    def small(step, degrees):
        tile = choose(step, degrees)
        return replace(tile, rows=16, groups=2) if tile.stages else tile

    arrays = harness.fields(rng, where, program.inputs)
    (got,) = harness.run(program, arrays, where, compile_program(program, small))
    (expected,) = harness.oracle(program, arrays, where)
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [bfloat16, float16])
def test_products_of_16_bits(rng, dtype):
    program, where = programs.joined_layer(dtype, 16).program, graph(rng)
    arrays = harness.fields(rng, where, program.inputs)
    (got,) = harness.run(program, arrays, where)
    (expected,) = harness.oracle(program, arrays, where)
    np.testing.assert_allclose(got.astype(float), expected.astype(float), rtol=0.0, atol=0.1)


def test_special_values_pass_through(rng):
    program, where = network(Sum(), 16, 16), graph(rng)
    arrays = harness.fields(rng, where, program.inputs)
    arrays[0][0, 0], arrays[0][1, 1] = np.inf, np.nan
    arrays[2] = np.abs(arrays[2]) + 1
    (got,), (expected,) = (
        harness.run(program, arrays, where),
        harness.oracle(program, arrays, where),
    )
    assert (np.isnan(got) == np.isnan(expected)).all()
    assert (np.isposinf(got) == np.isposinf(expected)).all()


def test_every_winner_is_found_again(rng):
    """Gradients of a maximum compare messages of other walks with it, in every bit."""
    program, where = network(Max(), 64, 64), graph(rng)
    arrays = harness.fields(rng, where, program.inputs)
    arrays[2] = np.abs(arrays[2]) + np.float32(0.1)
    full = training(program, (0, 1), harness.RULES)
    found = gradient(full, (0, 1), [0], harness.RULES)
    outputs = harness.run(full, arrays, where)
    given = {"input": arrays, "output": outputs, "cotangent": {0: np.ones_like(outputs[0])}}
    taken = [given[kind][i] for kind, i in found.arguments]
    to_source = harness.run(found.program, taken, where)[0]
    rows = (np.bincount(where.edges.dst, minlength=40) > 0).sum()
    # Each row hands on one cotangent per feature; a lost winner would miss a whole one.
    assert to_source.sum(dtype=np.float64) == pytest.approx(rows * arrays[2].sum(), rel=1e-5)
