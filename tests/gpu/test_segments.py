"""Reductions of single numbers over tiles of consecutive edges, against the numpy oracle."""

import numpy as np
import pytest

from tests.gpu import harness, programs
from tiga.backends.triton.choice import choose, edge_tile
from tiga.backends.triton.executable import compile_program
from tiga.backends.triton.segments import fits
from tiga.backends.triton.topology import NO_EDGES
from tiga.ops.leaf import Input
from tiga.ops.message import gather
from tiga.reducers import Max, Mean, Messages, Min, Prod, Sum
from tiga.trace.program import Program
from tiga.types import Type, bfloat16, float32, float64, int32

SIZE = 64


def degrees(rng: np.random.Generator, which: str) -> np.ndarray:
    """Rows that end at ends of tiles, rows over many tiles, runs of rows without edges."""
    if which == "one row":
        return np.array([700])
    if which == "whole tiles":
        return np.array([64, 128, 0, 1, 63, 32, 32, 0, 64])
    if which == "no edges":
        return np.zeros(150, np.int64)
    if which == "gaps":
        return np.where(rng.random(400) < 0.1, 9, 0)
    found = rng.integers(0, 9, 61)
    found[[0, 20, 21, 60]] = 0
    found[[2, 11]] = 300, 157
    return found


def by_edges(program, of):
    """Small tiles of edges wherever they fit."""
    return edge_tile(SIZE) if of != NO_EDGES and fits(program) else choose(program, of)


@pytest.mark.parametrize("which", ["mixed", "one row", "whole tiles", "no edges", "gaps"])
def test_weighted_sums(rng, which):
    counts = degrees(rng, which)
    where = harness.problem(rng, 23, len(counts), counts)
    program = programs.weighted_sum(float32, ()).program
    arrays = harness.fields(rng, where, program.inputs)
    executable = compile_program(program, by_edges)
    (step,) = executable.steps
    got = harness.run(program, arrays, where, executable)
    assert {"tiles"} <= {over for made in step.kernels.values() for over, _ in made}
    harness.assert_close(got[0], harness.oracle(program, arrays, where)[0], float32, which)


@pytest.mark.parametrize("dtype", [float32, float64, bfloat16, int32], ids=repr)
@pytest.mark.parametrize("made", [Sum(), Mean(), Max(), Min(), Prod()], ids=repr)
def test_reducers_of_single_numbers(rng, made, dtype):
    if dtype == int32 and isinstance(made, Mean):
        pytest.skip("means of integers are no integers")
    where = harness.problem(rng, 23, 61, degrees(rng, "mixed"))
    x = Input("x", Type(dtype, (), harness.SRC))()
    message = gather(harness.RELATION, "src", x)
    program = Program((x,), (made.rows(Messages(harness.RELATION, (message,))),))
    arrays = harness.fields(rng, where, program.inputs)
    executable = compile_program(program, by_edges)
    got = harness.run(program, arrays, where, executable)
    harness.assert_close(got[0], harness.oracle(program, arrays, where)[0], dtype, repr(made))


def test_sums_over_sources(rng):
    """The transpose: edge fields are read through edge numbers."""
    where = harness.problem(rng, 70, 31, rng.integers(0, 30, 31))
    w = Input("w", Type(float32, (), harness.RELATION.edge))()
    total = Sum().rows(Messages(harness.RELATION, (w,), side="src"))
    program = Program((w,), (total,))
    arrays = harness.fields(rng, where, program.inputs)
    got = harness.run(program, arrays, where, compile_program(program, by_edges))
    harness.assert_close(got[0], harness.oracle(program, arrays, where)[0], float32, "src")
