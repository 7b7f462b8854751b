"""Products of edges with a matrix of few elements, as the GPU computes them."""

import numpy as np
import pytest

from tiga.backends.reference import EdgeList, evaluate
from tiga.ops.contract import Contract, OuterSum, contract, outer_sum
from tiga.ops.leaf import Input
from tiga.ops.message import gather, sum_to
from tiga.passes.small_products import SmallProducts
from tiga.trace.program import Program
from tiga.types import GLOBAL, Relation, Space, Type, float32, float64

SRC, DST = Space("src", "node"), Space("dst", "node")
RELATION = Relation("edges", SRC, DST)
EDGES = EdgeList(np.array([0, 2, 1, 1, 2]), np.array([0, 0, 1, 3, 3]), 3, 4)


def program(shape, width, dtype=float64):
    """Messages times a matrix, summed, and the sum of their outer products."""
    x = Input("x", Type(dtype, shape, SRC))()
    matrix = Input("matrix", Type(dtype, (shape[-1], width), GLOBAL))()
    sent = gather(RELATION, "src", x)
    product = contract(sent, matrix)
    outputs = sum_to(RELATION, "dst", product), outer_sum(sent, product)
    return Program((x, matrix), outputs)


@pytest.mark.parametrize(("shape", "width"), [((4,), 4), ((1,), 64), ((3,), 1), ((2, 3), 5)])
def test_they_become_sums_of_products_of_the_same_value(shape, width):
    given = program(shape, width)
    made = SmallProducts()(given)
    assert not any(isinstance(n.op, Contract | OuterSum) for n in made.order)
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=(3, *shape)), rng.normal(size=(shape[-1], width))]
    results = (evaluate(p, arrays, {RELATION: EDGES}) for p in (given, made))
    for wanted, found in zip(*results, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-13)


@pytest.mark.parametrize(("shape", "width"), [((8,), 9), ((16,), 16), ((9, 8), 8)])
def test_larger_matrices_and_many_rows_stay(shape, width):
    given = program(shape, width, float32)
    assert SmallProducts()(given) == given
