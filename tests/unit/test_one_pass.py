"""Sums that are linear in values of their rows go in one pass, and say the same."""

import numpy as np
import pytest

from tests.gpu import harness
from tiga.ops.align import expand_to
from tiga.ops.feature import reshape
from tiga.ops.functions import exp
from tiga.ops.leaf import Input, constant
from tiga.ops.message import gather, sum_to
from tiga.ops.pointwise import add, div, gt, mul, sub, where
from tiga.passes.canonicalize import Canonicalize
from tiga.passes.expand import Expand
from tiga.passes.form_rows import FormRows
from tiga.passes.hoist import Hoist
from tiga.passes.one_pass import OnePass
from tiga.passes.rows import RowProgram
from tiga.reducers import Max, Messages
from tiga.trace.derivatives import gradient, training
from tiga.trace.program import Program
from tiga.types import Type, float64

EDGE, DST, RELATION = harness.RELATION.edge, harness.DST, harness.RELATION


def normal(program):
    return Canonicalize()(Hoist()(Canonicalize()(Expand()(program))))


def passes(program) -> int:
    """The most passes of a walk over its edges."""
    return max(len(s.phases) for s in FormRows()(program).steps if isinstance(s, RowProgram))


def shares():
    """A softmax whose shares are made edge by edge, as layers of others write it."""
    score = Input("score", Type(float64, (2,), EDGE))()
    value = Input("value", Type(float64, (2, 3), harness.SRC))()
    peak = Max().rows(Messages(RELATION, (score,)))
    weight = exp(sub(score, gather(RELATION, "dst", peak)))
    total = sum_to(RELATION, "dst", weight)
    total = add(total, constant(1e-16, total.type))
    share = div(weight, gather(RELATION, "dst", total))
    heads = expand_to(reshape(share, (2, 1)), (2, 3), EDGE)
    message = mul(heads, gather(RELATION, "src", value))
    return Program((score, value), (sum_to(RELATION, "dst", message),))


def centred():
    """Deviations from the mean of a row where they are positive, and something besides."""
    x = Input("x", Type(float64, (3,), EDGE))()
    mean = sum_to(RELATION, "dst", x)
    off = sub(x, mul(constant(0.25, x.type), gather(RELATION, "dst", mean)))
    chosen = where(gt(x, constant(0, x.type)), off, mul(x, x))
    return Program((x,), (sum_to(RELATION, "dst", chosen),))


def graph(rng):
    degrees = rng.integers(0, 5, 17)
    degrees[[2, 8]] = 0
    return harness.problem(rng, 11, 17, degrees)


@pytest.mark.parametrize("make", [shares, centred])
def test_values_are_the_same(rng, make):
    before = normal(make())
    after = OnePass()(before)
    assert passes(after) < passes(before)
    where_ = graph(rng)
    arrays = harness.fields(rng, where_, before.inputs)
    (expected,), (got,) = (harness.oracle(p, arrays, where_) for p in (before, after))
    np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-12)


def test_gradients_are_the_same(rng):
    program = shares()
    wanted = tuple(range(len(program.inputs)))
    full = training(normal(program), wanted, harness.RULES)
    before = normal(gradient(full, wanted, [0], harness.RULES).program)
    after = OnePass()(before)
    assert passes(after) < passes(before)
    where_ = graph(rng)
    arrays = harness.fields(rng, where_, before.inputs)
    pairs = zip(*(harness.oracle(p, arrays, where_) for p in (before, after)), strict=True)
    for expected, got in pairs:
        np.testing.assert_allclose(got, expected, rtol=1e-11, atol=1e-11)


def test_what_is_not_linear_stays():
    x = Input("x", Type(float64, (3,), EDGE))()
    total = gather(RELATION, "dst", sum_to(RELATION, "dst", x))
    for message in (exp(total), mul(total, total), div(x, add(total, x))):
        program = Program((x,), (sum_to(RELATION, "dst", message),))
        assert OnePass()(program).outputs == program.outputs
