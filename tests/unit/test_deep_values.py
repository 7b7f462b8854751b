"""Values that are reached on 2^depth ways are looked at once: else these would not end."""

import pytest

from tests.gpu import harness
from tiga.backends.triton.executable import compile_program
from tiga.ops.contract import contract
from tiga.ops.feature import concat
from tiga.ops.functions import sigmoid
from tiga.ops.leaf import Input, constant
from tiga.ops.message import gather
from tiga.ops.pointwise import add, maximum, mul, sub
from tiga.passes.pipeline import PIPELINE, run_pipeline
from tiga.reducers import Max, Messages, Sum
from tiga.trace.derivatives import gradient, training
from tiga.trace.program import Program
from tiga.types import GLOBAL, Type, float32

RELATION, WIDTH, DEPTH = harness.RELATION, 32, 30
X = Input("x", Type(float32, (WIDTH,), harness.SRC))()
Y = Input("y", Type(float32, (WIDTH,), harness.DST))()
MATRIX = Input("m", Type(float32, (2 * WIDTH, WIDTH), GLOBAL))()


def bent(x):
    for _ in range(DEPTH):
        x = mul(x, sigmoid(x))
    return x


def rising(x):
    for _ in range(DEPTH):
        x = add(x, maximum(x, constant(0.0, x.type)))
    return x


def walked(reducer, of_source, message, after):
    ends = gather(RELATION, "src", of_source(X)), gather(RELATION, "dst", Y)
    total = reducer.rows(Messages(RELATION, (message(sub(*ends)),)))
    return contract(concat(0, after(total), after(Y)), MATRIX)


def same(x):
    return x


CASES = {
    "before the walk": (Sum(), bent, same, same),
    "in the walk": (Sum(), same, bent, same),
    "after the walk": (Sum(), same, same, bent),
    "rising, in the walk": (Max(), same, rising, same),
    "rising, after the walk": (Max(), same, same, rising),
}


@pytest.mark.parametrize("case", CASES)
def test_values_with_shared_operands(case):
    program = Program((X, Y, MATRIX), (walked(*CASES[case]),))
    trained = training(program, (0, 1, 2), harness.RULES)
    again = gradient(trained, (0, 1, 2), (0,), harness.RULES).program
    for made in (program, trained, again):
        assert compile_program(made).steps
        assert run_pipeline(made, PIPELINE)
