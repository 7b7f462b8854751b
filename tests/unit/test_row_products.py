"""Products of joined node values, part by part, beside what makes their factors."""

import numpy as np
import pytest

from tests.gpu import harness
from tests.gpu.programs import joined_layer
from tiga.backends.reference import evaluate
from tiga.backends.triton.executable import compile_program
from tiga.ops.contract import contract
from tiga.ops.feature import take
from tiga.ops.leaf import Input
from tiga.ops.pointwise import sub
from tiga.passes.canonicalize import Canonicalize
from tiga.passes.expand import Expand
from tiga.passes.hoist import Hoist
from tiga.passes.part_products import PartProducts
from tiga.passes.rows import LibraryCall, RowProgram
from tiga.trace.derivatives import gradient, training
from tiga.trace.program import Program
from tiga.types import GLOBAL, Type, float32, float64


def programs(dtype=float32, width=16):
    """A layer with a product of joined values, and its gradient."""
    program = Hoist()(joined_layer(dtype, width).program)
    wanted = tuple(range(len(program.inputs)))
    trained = training(program, wanted, harness.RULES)
    return trained, gradient(trained, wanted, (0,), harness.RULES).program


@pytest.mark.parametrize("number", [0, 1], ids=["forward", "gradient"])
def test_joined_values_are_multiplied_part_by_part(number):
    program = Canonicalize()(Hoist()(Canonicalize()(Expand()(programs(float64)[number]))))
    made = PartProducts()(program)
    rows = [n for n in made.order if n.op.name in ("contract", "outer_sum")]
    assert all(n.inputs[0].type.shape[-1] <= 16 for n in rows)
    rng = np.random.default_rng(2)
    where = harness.problem(rng, 30, 30, rng.integers(0, 6, 30))
    fields = harness.fields(rng, where, program.inputs)
    expected, got = (evaluate(p, fields, {harness.RELATION: where.edges}) for p in (program, made))
    for a, b in zip(got, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)


def test_nothing_joined_is_stored():
    for program in programs():
        steps = compile_program(program).plan.steps
        calls = [s.node for s in steps if isinstance(s, LibraryCall)]
        assert not [n for n in calls if n.op.name in ("contract", "outer_sum")]
        rows = [s for s in steps if isinstance(s, RowProgram)]
        assert max(n.type.size for s in rows for n in s.stores) == 16


def test_what_is_cheap_is_made_again():
    """The walk leaves sums; what is scaled of them is made where it is multiplied."""
    trained, _ = programs()
    (walk,) = (s for s in compile_program(trained).plan.steps if getattr(s, "relation", None))
    assert len(walk.stores) == 2


def test_a_matrix_that_is_computed_is_an_array_first():
    x = Input("x", Type(float32, (16,), harness.DST))()
    a, b = (Input(n, Type(float32, (16, 16), GLOBAL))() for n in "ab")
    program = Program((x, a, b), (contract(x, sub(take(a, 0, tuple(range(16))), b)),))
    executable = compile_program(program)
    assert [s.space for s in executable.plan.steps] == [GLOBAL, harness.DST]
    assert list(executable.sources())


def test_products_in_float64_go_to_a_library():
    steps = compile_program(programs(float64)[0]).plan.steps
    assert [s for s in steps if isinstance(s, LibraryCall) and s.node.op.name == "contract"]
