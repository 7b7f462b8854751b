"""Products of edge values that are sums over both ends become products of node values."""

import numpy as np
import pytest

from tests.gpu import harness
from tiga.ops.contract import contract
from tiga.ops.feature import concat, reshape
from tiga.ops.leaf import Input, constant
from tiga.ops.message import gather, sum_to
from tiga.ops.pointwise import add, mul, sub
from tiga.passes.canonicalize import Canonicalize
from tiga.passes.hoist import Hoist
from tiga.trace.program import Program
from tiga.types import GLOBAL, Type, bfloat16, float64

R = harness.RELATION


def program(width, message, dtype=float64):
    x = Input("x", Type(dtype, (width,), harness.SRC))()
    y = Input("y", Type(dtype, (width,), harness.DST))()
    made = message(gather(R, "src", x), gather(R, "dst", y))
    matrix = Input("matrix", Type(dtype, (made.type.shape[-1], 5), GLOBAL))()
    # The square keeps the sum from being taken before the product.
    product = contract(made, matrix)
    return Program((x, y, matrix), (sum_to(R, "dst", mul(product, product)),))


def edge_products(form):
    return [n for n in form.order if n.op.name == "contract" and n.type.space == R.edge]


def node_products(form):
    return [n for n in form.order if n.op.name == "contract" and n.type.space != R.edge]


CASES = {
    "difference": (sub, 2),
    "sum of a difference": (lambda x, y: add(sub(x, y), x), 2),
    "joined with a difference": (lambda x, y: concat(0, y, sub(x, y)), 2),
    "joined and reshaped": (lambda x, y: reshape(concat(0, x, y), (1, 32)), 2),
}


@pytest.mark.parametrize("name", CASES)
def test_products_of_nodes(rng, name):
    message, count = CASES[name]
    before = program(16, message)
    after = Canonicalize()(Hoist()(Canonicalize()(before)))
    assert not edge_products(after)
    assert len(node_products(after)) == count
    where = harness.problem(rng, 7, 9, rng.integers(0, 4, 9))
    arrays = harness.fields(rng, where, before.inputs)
    (expected,), (got,) = (harness.oracle(p, arrays, where) for p in (before, after))
    np.testing.assert_allclose(got, expected, rtol=1e-12)


@pytest.mark.parametrize(("width", "dtype"), [(3, float64), (16, bfloat16)])
def test_differences_that_would_lose_digits_stay(width, dtype):
    """Differences of coordinates are exact where products of coordinates cancel."""
    form = program(width, sub, dtype)
    assert len(edge_products(Hoist()(form))) == 1


def test_a_matrix_of_one_number_stays_a_matrix():
    x = Input("x", Type(float64, (2,), harness.SRC))()
    ones = constant(1.0, Type(float64, (2, 3), GLOBAL))
    form = Hoist()(Program((x,), (sum_to(R, "dst", contract(gather(R, "src", x), ones)),)))
    assert len(node_products(form)) == 1
    assert not edge_products(form)
