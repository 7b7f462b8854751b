"""Values and matrices that are too large for four warps, or for any program."""

import pytest

from tests.gpu import harness
from tests.gpu.harness import DST, RELATION, SRC
from tiga.backends.triton.executable import compile_program
from tiga.backends.triton.layout import padded
from tiga.errors import Unfusable
from tiga.ops.align import expand_to
from tiga.ops.contract import contract, outer_sum
from tiga.ops.feature import feature_sum
from tiga.ops.functions import tanh
from tiga.ops.leaf import Input
from tiga.ops.message import gather, sum_to
from tiga.ops.pointwise import mul
from tiga.trace.program import Program
from tiga.types import GLOBAL, Type, float32, float64

EDGE = RELATION.edge


def ends(shape, dtype):
    return Input("x", Type(dtype, shape, SRC))(), Input("y", Type(dtype, shape, DST))()


def dots(width, dtype=float32):
    """Products of both ends by the tanh of their features' sum."""
    x, y = ends((width,), dtype)
    both = mul(gather(RELATION, "src", x), gather(RELATION, "dst", y))
    share = tanh(feature_sum(both, 0))
    message = mul(expand_to(share, (width,), EDGE), gather(RELATION, "src", x))
    return Program((x, y), (sum_to(RELATION, "dst", message),))


def check(program, where, rng, dtype):
    executable = compile_program(program)
    arrays = harness.fields(rng, where, program.inputs)
    arrays = [0.01 * a for a in arrays]
    found = harness.run(program, [a.astype(dtype.numpy) for a in arrays], where, executable)
    wanted = harness.oracle(program, [a.astype(dtype.numpy) for a in arrays], where)
    for got, want in zip(found, wanted, strict=True):
        harness.assert_close(got, want, dtype, "values")
    return executable


@pytest.mark.parametrize("width", [20000, 100000])
def test_values_that_mix_many_features(rng, width):
    where = harness.problem(rng, 4, 3, [2, 0, 5])
    executable = check(dots(width), where, rng, float32)
    (tile,) = {source.tile for _, source in executable.steps[0].sources(_shape(executable))}
    assert tile.warps == (8 if width == 20000 else 32)


def _shape(executable):
    return executable.steps[0].typical(4, has_chunks=False)


def test_few_states_of_wide_values_are_combined_at_a_time(rng):
    executable = compile_program(dots(3000))
    step = executable.steps[0]
    combine = [s for _, s in step.sources(step.typical(64)) if "combine" in s.name]
    assert [s.tile.edges for s in combine] == [4]
    check(dots(3000), harness.problem(rng, 4, 2, [300, 3]), rng, float32)


def product_of(width, columns):
    """Products of edge values of so many elements with a matrix."""
    x, _ = ends((width,), float32)
    w = Input("w", Type(float32, (width,), EDGE))()
    matrix = Input("matrix", Type(float32, (width, columns), GLOBAL))()
    sent = tanh(contract(mul(gather(RELATION, "src", x), w), matrix))
    return Program((x, w, matrix), (sum_to(RELATION, "dst", sent),))


def test_products_of_values_too_wide_for_shared_memory(rng):
    """So few edges at a time that their values fit it, without matrix units."""
    width = 3000
    program = product_of(width, 16)
    (step,) = compile_program(program).steps
    assert step.typical().tile.edges * step.typical().tile.rows * padded(width) <= 32768
    check(program, harness.problem(rng, 4, 3, [1, 0, 2]), rng, float32)


def test_values_beyond_are_refused():
    with pytest.raises(Unfusable, match="at most 131072"):
        compile_program(dots(131073))


@pytest.mark.parametrize(
    "shape", [(129, 90), (5, 4000), pytest.param((300, 300), marks=pytest.mark.slow)], ids=repr
)
def test_large_matrices_are_summed_in_parts(rng, shape):
    x = Input("x", Type(float64, shape[:1], SRC))()
    y = Input("y", Type(float64, shape[1:], DST))()
    total = outer_sum(tanh(gather(RELATION, "src", x)), tanh(gather(RELATION, "dst", y)))
    rows = sum_to(RELATION, "dst", gather(RELATION, "src", x))
    where = harness.problem(rng, 7, 5, [4, 0, 9, 1, 3])
    executable = check(Program((x, y), (total, rows)), where, rng, float64)
    for step in executable.plan.steps:
        sums = getattr(step, "outer_sums", ())
        assert sum(n.type.size for n in sums) <= 2 * 16384
