"""Vectors joined from parts of one size and taken apart, in registers."""

import pytest

from tests.gpu import harness
from tiga.ops.feature import concat, put, take
from tiga.ops.leaf import Input
from tiga.ops.message import gather, sum_to
from tiga.ops.pointwise import add, mul
from tiga.trace.program import Program
from tiga.types import Type, bfloat16, float32, float64


def part(x, number, size):
    return take(x, 0, tuple(range(number * size, (number + 1) * size)))


@pytest.mark.parametrize("dtype", [float32, float64, bfloat16], ids=repr)
@pytest.mark.parametrize(("count", "size"), [(2, 8), (3, 4), (4, 1), (5, 2), (2, 3)])
def test_parts_of_one_size(rng, count, size, dtype):
    """Three parts leave room up to a power of two; those of three elements go another way."""
    x, y = (
        Input(name, Type(dtype, (size,), space))()
        for name, space in (("x", harness.SRC), ("y", harness.DST))
    )
    at = gather(harness.RELATION, "src", x), gather(harness.RELATION, "dst", y)
    made = [mul(*at)]
    while len(made) < count:
        made.append(add(made[-1], at[len(made) % 2]))
    whole = concat(0, *made)
    whole = mul(whole, whole)
    last = range((count - 1) * size, count * size)
    moved = add(whole, put(part(whole, 0, size), 0, tuple(last), count * size))
    sums = (sum_to(harness.RELATION, "dst", m) for m in (moved, part(whole, count - 1, size)))
    program = Program((x, y), tuple(sums))
    where = harness.problem(rng, 9, 7, rng.integers(0, 6, 7))
    arrays = harness.fields(rng, where, program.inputs)
    found = harness.run(program, arrays, where)
    for got, want in zip(found, harness.oracle(program, arrays, where), strict=True):
        harness.assert_close(got, want, dtype, f"{count} parts of {size}")
