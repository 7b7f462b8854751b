"""Sums at the far ends of a walk, which become a walk of their own."""

import pytest

pytest.importorskip("torch")

from tests.gpu import harness
from tiga.backends.triton.executable import prepare
from tiga.ops.leaf import Input
from tiga.ops.message import gather, sum_to
from tiga.ops.pointwise import mul
from tiga.passes.rows import Phase, Plan, RowProgram
from tiga.trace.program import Program
from tiga.types import Type, float32, float64

pytestmark = pytest.mark.skipif(
    harness.device() is None, reason="no GPU, and TRITON_INTERPRET=1 is not set"
)


@pytest.mark.parametrize("dtype", [float32, float64], ids=repr)
@pytest.mark.parametrize("shape", [(), (5,)], ids=repr)
def test_sums_at_both_ends_of_one_walk(rng, shape, dtype):
    relation = harness.RELATION
    x = Input("x", Type(dtype, shape, harness.SRC))()
    y = Input("y", Type(dtype, shape, harness.DST))()
    message = mul(gather(relation, "src", x), gather(relation, "dst", y))
    near, far = sum_to(relation, "dst", message), sum_to(relation, "src", message)
    walk = RowProgram(
        harness.DST, relation, "dst", (Phase((near,), scatters=(far,)),), (near,), (), (x, y)
    )
    executable = prepare(Plan((x, y), (near, far), (walk,)), (relation,))
    assert len(executable.steps) == 2
    assert executable.plan.intermediates == (message,)
    where = harness.problem(rng, 23, 29, rng.integers(0, 12, 29))
    program = Program((x, y), (near, far))
    arrays = harness.fields(rng, where, program.inputs)
    found = harness.run(program, arrays, where, executable)
    for got, want in zip(found, harness.oracle(program, arrays, where), strict=True):
        harness.assert_close(got, want, dtype, "sums")
