"""Sums by an index into a few numbers, as the GPU computes them."""

import numpy as np
import pytest

from tiga.backends.reference import EdgeList, evaluate
from tiga.ops.functions import tanh
from tiga.ops.leaf import Input
from tiga.ops.lookup import IndexSum, index_sum
from tiga.ops.message import Reduce, gather, sum_to
from tiga.passes.small_tables import SmallTables
from tiga.trace.program import Program
from tiga.types import Relation, Space, Type, float64, int64

SRC, DST = Space("src", "node"), Space("dst", "node")
RELATION = Relation("edges", SRC, DST)
EDGES = EdgeList(np.array([0, 2, 1, 1, 2]), np.array([0, 0, 1, 3, 3]), 3, 4)


def program(extent, outer, inner, sides=()):
    """The sums of a function of source values by an index, and sums of it at some ends."""
    x = Input("x", Type(float64, (*outer, *inner), SRC))()
    index = Input("index", Type(int64, outer, RELATION.edge))()
    sent = tanh(gather(RELATION, "src", x))
    sums = (sum_to(RELATION, side, sent) for side in sides)
    return Program((x, index), (index_sum(extent, index, sent), *sums))


@pytest.mark.parametrize(
    ("extent", "outer", "inner"),
    [(5, (), ()), (1, (), (3,)), (3, (), (2, 2)), (4, (3,), ()), (2, (2,), (3,))],
)
def test_they_become_sums_over_edges_of_the_same_value(extent, outer, inner):
    given = program(extent, outer, inner)
    made = SmallTables()(given)
    assert not any(isinstance(n.op, IndexSum) for n in made.order)
    rng = np.random.default_rng(0)
    index = rng.integers(-1, extent + 1, (5, *outer))
    x = rng.normal(size=(3, *outer, *inner))
    if not outer:
        x[2], index[[1, 4]] = np.nan, extent  # a row that no index names counts nowhere
    results = (evaluate(p, [x, index], {RELATION: EDGES})[0] for p in (given, made))
    np.testing.assert_allclose(*results, rtol=1e-13)


@pytest.mark.parametrize("sides", [("src",), ("dst",), ("src", "dst")])
def test_they_join_the_walk_that_computes_what_is_added(sides):
    made = SmallTables()(program(5, (), (), sides))
    found = {n.op.side for n in made.order if isinstance(n.op, Reduce)}
    assert found == set(sides)


def test_larger_tables_stay():
    given = program(5, (), (13,))
    assert SmallTables()(given) == given
