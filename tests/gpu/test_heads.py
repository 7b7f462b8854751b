"""Walks cut into slices of heads, and steps of their loops that are on their way at once."""

from dataclasses import replace

import numpy as np
import pytest

from tests.gpu import harness, programs
from tiga.backends.triton.choice import choose
from tiga.backends.triton.executable import compile_program
from tiga.backends.triton.heads import may_slice
from tiga.backends.triton.topology import NO_EDGES
from tiga.ops.feature import feature_sum, reshape
from tiga.ops.leaf import Input
from tiga.ops.message import gather
from tiga.ops.pointwise import mul
from tiga.reducers import Messages, Softmax
from tiga.trace.derivatives import gradient, training
from tiga.trace.program import Program
from tiga.types import Type, float32, float64


def products(shape, dtype=float32):
    """Softmax of products of keys and queries, whose heads are told apart at the edges only."""
    size = (int(np.prod(shape)),)
    q = Input("q", Type(dtype, size, harness.DST))()
    k, v = (Input(name, Type(dtype, size, harness.SRC))() for name in "kv")
    at = [reshape(gather(harness.RELATION, side, n), shape) for side, n in
          (("dst", q), ("src", k), ("src", v))]  # fmt: skip
    score = feature_sum(mul(at[0], at[1]), 1)
    rows = Softmax().rows(Messages(harness.RELATION, (score, at[2])))
    return Program((q, k, v), (reshape(rows, size),))


def tiles(slices=1, ahead=0, rows=None):
    """The chosen tiles, in so many slices where they can be, so many steps ahead."""

    def change(program, degrees):
        tile = choose(program, degrees)
        if degrees == NO_EDGES or program.relation is None:
            return tile
        cut = slices if not tile.is_flat and may_slice(program, slices) else 1
        return replace(tile, slices=cut, ahead=ahead, rows=rows or tile.rows)

    return change


def check(rng, program, change, dtype=float32, longest=17):
    """Values and gradients against the oracle, with rows without edges."""
    counts = rng.integers(0, 5, 7)
    counts[2], counts[4] = longest, 0
    where = harness.problem(rng, 19, 7, counts)
    arrays = harness.fields(rng, where, program.inputs)
    wanted = list(range(len(program.inputs)))
    full = training(program, wanted, harness.RULES)
    made = [compile_program(full, change)]
    found = harness.run(full, arrays, where, made[0])
    expected = harness.oracle(full, arrays, where)
    for got, want in zip(found, expected, strict=True):
        harness.assert_close(got, want, dtype, "value")
    back = gradient(full, wanted, [0], harness.RULES)
    cotangent = {0: rng.standard_normal(found[0].shape).astype(found[0].dtype)}
    sides = (
        {"input": arrays, "output": outputs, "cotangent": cotangent}
        for outputs in (found, expected)
    )
    ours, theirs = ([side[kind][i] for kind, i in back.arguments] for side in sides)
    made.append(compile_program(back.program, change))
    gradients = harness.run(back.program, ours, where, made[1])
    for got, want in zip(gradients, harness.oracle(back.program, theirs, where), strict=True):
        harness.assert_close(got, want, dtype, "gradient")
    return made


def chosen(executables):
    """The tiles of the walks that ran."""
    walks = (s for made in executables for s in made.steps if s.program.relation is not None)
    return [shape.tile for step in walks for shape in step.kernels]


@pytest.mark.parametrize(
    ("shape", "slices"), [((4, 8), 2), ((4, 8), 4), ((3, 5), 3), ((6, 4), 2)], ids=repr
)
def test_slices_of_products_of_keys_and_queries(rng, shape, slices):
    made = check(rng, products(shape), tiles(slices))
    assert [tile.slices for tile in chosen(made)] == [slices] * 3


@pytest.mark.parametrize("slices", [2, 4])
def test_slices_that_meet_a_vector(rng, slices):
    """Additive scores read a global value with the axes of the heads."""
    program = programs.softmax(float32, (4, 5)).program
    made = check(rng, program, tiles(slices))
    assert slices in {tile.slices for tile in chosen(made)}


def test_slices_of_split_rows(rng):
    check(rng, products((2, 4)), tiles(2), longest=300)


def test_slices_in_double(rng):
    check(rng, products((2, 4), float64), tiles(2), float64)


@pytest.mark.parametrize("ahead", [2, 3])
def test_steps_ahead(rng, ahead):
    check(rng, products((4, 8)), tiles(ahead=ahead), longest=300)
    check(rng, programs.weighted_sum(float32, (6,)).program, tiles(ahead=ahead))
    check(rng, programs.farthest(float32).program, tiles(ahead=ahead))
