"""Sums by an index of the edges into a few numbers, as sums over edges of what each adds."""

from dataclasses import dataclass
from functools import partial

from tiga.ops.align import expand_to
from tiga.ops.feature import concat, feature_sum, reshape
from tiga.ops.leaf import constant, zeros_like
from tiga.ops.lookup import IndexSum
from tiga.ops.message import reduce_all, sum_to
from tiga.ops.pointwise import eq, where
from tiga.passes.base import Pass
from tiga.trace.node import Node, reached, topological
from tiga.trace.origin import Origin
from tiga.trace.program import Program
from tiga.types import GLOBAL, Type

MOST_ELEMENTS = 16
"""Elements of a table to which an edge adds by looking at all of them: a loop over edges carries as
many beside its other sums. A step with 40 in its walk took 0.95 ms on an H200, one with 320 that
were added apart 0.68."""


def is_small(node: Node) -> bool:
    """Whether a value is a sum by an index into so few numbers."""
    if not isinstance(node.op, IndexSum) or not node.type.dtype.is_float:
        return False
    return node.inputs[1].type.size * node.op.extent <= MOST_ELEMENTS


def _added(node: Node, inputs: tuple[Node, ...]) -> Node:
    """What an edge adds to the whole table: y [*I, *K] at rows that its indices [*I] name."""
    index, y = inputs
    outer, inner, space = index.type.shape, node.type.shape[1:], y.type.space
    shape = (*outer, node.op.extent, *inner)
    one = Type(index.type.dtype, (1,), GLOBAL)
    rows = concat(0, *(constant(row, one) for row in range(node.op.extent)))
    rows = reshape(rows, (node.op.extent, *(1,) * len(inner)))
    at = reshape(index, (*outer, 1, *(1,) * len(inner)))
    named = eq(expand_to(at, shape, space), expand_to(rows, shape, space))
    value = expand_to(reshape(y, (*outer, 1, *inner)), shape, space)
    added = where(named, value, zeros_like(value))
    for _ in outer:
        added = feature_sum(added, 0)
    return added


def _side(program: Program, y: Node) -> str:
    """The rows by which edges are summed: those of a walk that computes what they add already."""
    made = {n for n in topological([y]) if n.inputs}
    scanned = [n.op.side for n in made if n.op.carries]
    if scanned:
        return str(scanned[0])

    def shared(side: str) -> int:
        sums = [n for n in program.order if n.op.origin is Origin.ROW and n.op.side == side]
        sums = [n for n in sums if n not in made and not n.op.carries]
        own = reached([n.inputs[0] for n in sums], lambda n: n.op.origin is Origin.ROW)
        return (len(made.intersection(own)) + 1) * bool(sums)

    return max(("dst", "src"), key=shared)


def _rule(program: Program, node: Node, inputs: tuple[Node, ...]) -> Node | None:
    if not is_small(node):
        return None
    relation = program.edges.get(inputs[1].type.space)
    if relation is None:
        return None
    side = _side(program, node.inputs[1])
    return reduce_all(sum_to(relation, side, _added(node, inputs)))


@dataclass(frozen=True)
class SmallTables(Pass, name="gf-small-tables"):
    """Add what edges add to a few numbers by an index in the walk that computes it."""

    def __call__(self, form: Program) -> Program:
        return form.rewritten(partial(_rule, form))
