"""Sums that read fewer values at other ends say the same, and find the same winners."""

import numpy as np
import pytest

from tests.gpu import harness
from tiga.backends.reference import evaluate
from tiga.ops.leaf import Input
from tiga.ops.message import gather, sum_to
from tiga.ops.pointwise import add, maximum, mul, sub
from tiga.passes.canonicalize import Canonicalize
from tiga.passes.expand import Expand
from tiga.passes.fewer_reads import FewerReads
from tiga.passes.hoist import Hoist
from tiga.reducers import Max, Messages, Min
from tiga.trace.derivatives import gradient, training
from tiga.trace.program import Program
from tiga.types import Type, float32

RELATION, WIDTH = harness.RELATION, 16
ENDS = {"src": harness.SRC, "dst": harness.DST}


def end(label, side):
    return gather(RELATION, side, Input(label, Type(float32, (WIDTH,), ENDS[side]))())


def leaf(node):
    return node.inputs[0]


def of_other(total):
    """What a sum reads at the other ends of its edges, by name if it is an input."""
    stack, found, side = [total.inputs[0]], [], total.op.side
    while stack:
        node = stack.pop()
        if node.op.name == "gather":
            found += [node.inputs[0]] if node.op.side != side else []
        else:
            stack.extend(node.inputs)
    return {getattr(n.op, "label", n) for n in found}


def extremum(message, reducer):
    """The program of an extremum of messages of x at the source and y at the destination."""
    x, y = end("x", "src"), end("y", "dst")
    best = reducer.rows(Messages(RELATION, (message(x, y),)))
    return Program((leaf(x), leaf(y)), (best,))


def gradient_to_source(program):
    """The gradient program of an extremum to the sources' values."""
    trained = training(Hoist()(program), (0,), harness.RULES)
    made = gradient(trained, (0,), (0,), harness.RULES).program
    return Canonicalize()(Hoist()(Canonicalize()(Expand()(made))))


MESSAGES = {
    "grows": (lambda x, y: add(y, x), True),
    "falls": (lambda x, y: sub(y, x), True),
    "twice": (lambda x, y: add(add(y, x), x), True),
    "both ways": (lambda x, y: sub(maximum(x, y), x), None),
    "alone": (lambda x, y: x, False),
    "bends": (lambda x, y: mul(y, x), False),
    "chosen": (lambda x, y: maximum(add(x, y), y), None),
}
"""Messages of x at the source and y at the destination, and whether a bound replaces them; None
where their derivative reads them all the same."""


@pytest.mark.parametrize("reducer", [Max(), Min()], ids=["max", "min"])
@pytest.mark.parametrize("name", MESSAGES)
def test_bounds_find_the_same_winners(name, reducer):
    message, bounded = MESSAGES[name]
    forward = extremum(message, reducer)
    program = gradient_to_source(forward)
    made = FewerReads()(program)
    (before,), (after,) = ([n for n in p.order if is_sum_of_sources(n)] for p in (program, made))
    if bounded:
        assert "y" in of_other(before)
        assert "y" not in of_other(after)
    elif bounded is False:
        assert made == program
    rng = np.random.default_rng(5)
    where = harness.problem(rng, 9, 40, rng.integers(0, 7, 40))
    # Whole numbers: many ties, and sums without rounding. Some messages are no number.
    x, y = (np.round(a * 2) for a in harness.fields(rng, where, forward.inputs))
    x[3, :4] = np.nan, np.inf, -np.inf, np.inf
    given = {"x": x, "y": y, "cotangent0": np.round(y)}
    with np.errstate(invalid="ignore"):
        (given["output0"],) = evaluate(forward, (x, y), {RELATION: where.edges})
        fields = [given[n.op.label] for n in program.inputs]
        expected, got = (evaluate(p, fields, {RELATION: where.edges}) for p in (program, made))
    np.testing.assert_array_equal(got[0], expected[0])


def is_sum_of_sources(node):
    return node.op.name == "reduce" and node.op.side == "src" and node.op.kind == "sum"


def test_products_with_sums_of_both_ends_read_one_value_of_the_other_for_each_of_the_row():
    b, p, a, q = end("b", "dst"), end("p", "dst"), end("a", "dst"), end("q", "src")
    total = sum_to(RELATION, "src", sub(mul(b, add(p, q)), a))
    program = Program((leaf(b), leaf(p), leaf(a), leaf(q)), (total,))
    made = FewerReads()(program)
    assert of_other(total) == {"a", "b", "p"}
    assert len(of_other(made.outputs[0])) == 2
    rng = np.random.default_rng(3)
    where = harness.problem(rng, 11, 23, rng.integers(0, 9, 23))
    fields = harness.fields(rng, where, program.inputs)
    expected, got = (evaluate(p, fields, {RELATION: where.edges}) for p in (program, made))
    np.testing.assert_allclose(got[0], expected[0], rtol=1e-5, atol=1e-5)


def test_what_reads_no_less_stays_as_it_is():
    b, p, q = end("b", "dst"), end("p", "dst"), end("q", "src")
    for message in (mul(b, q), mul(b, add(b, q)), add(b, maximum(p, q))):
        program = Program((leaf(b), leaf(p), leaf(q)), (sum_to(RELATION, "src", message),))
        assert FewerReads()(program) == program


def test_differences_of_coordinates_stay():
    b, p, a, q = (
        gather(RELATION, side, Input(label, Type(float32, (3,), ENDS[side]))())
        for label, side in (("b", "dst"), ("p", "dst"), ("a", "dst"), ("q", "src"))
    )
    total = sum_to(RELATION, "src", add(mul(b, sub(p, q)), a))
    program = Program((leaf(b), leaf(p), leaf(a), leaf(q)), (total,))
    assert FewerReads()(program) == program
