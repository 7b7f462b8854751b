"""Walks over the nodes of a trace."""

from tiga.ops.leaf import Input
from tiga.ops.pointwise import add, mul, neg
from tiga.trace.node import reached, topological
from tiga.types import GLOBAL, Type, float32

X, Y = (Input(name, Type(float32, (), GLOBAL))() for name in "xy")
SUM = add(X, Y)
PRODUCT = mul(SUM, neg(SUM))


def test_every_node_is_reached_once_whichever_ways_lead_to_it():
    found = list(reached([PRODUCT, SUM]))
    assert len(found) == len(set(found))
    assert set(found) == set(topological([PRODUCT]))


def test_nothing_below_the_end_is_reached():
    assert set(reached([PRODUCT], lambda node: node is SUM)) == {PRODUCT, SUM, neg(SUM)}
    assert list(reached([SUM], lambda node: node is SUM)) == [SUM]
    assert list(reached([])) == []


def test_what_is_below_may_be_told():
    halves = list(reached([6], below=lambda n: [n // 2, n // 3] if n else []))
    assert sorted(halves) == [0, 1, 2, 3, 6]
