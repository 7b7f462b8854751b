"""Which feature sums need one order in all kernels.

Triton's own sums depend on how a tile lies in registers. That is harmless unless the result is
compared with one from another walk, as gradients of maxima and minima do.
"""

from tiga.passes.rows import Plan
from tiga.trace.node import Node, topological, users

COMPARED = ("eq", "is_max", "is_min")
"""Comparisons that a last bit decides."""


def _sums_below(node: Node) -> set[Node]:
    return {n for n in topological([node]) if n.op.name == "feature_sum"}


def _selects(node: Node) -> bool:
    return node.op.name == "reduce" and node.op.monoid.selects


def ordered_sums(plan: Plan) -> frozenset[Node]:
    """The feature sums of a plan whose bits are compared.

    The shift of a softmax is a maximum too, but only goes into exponentials (through
    stop_gradient): it needs no exact partner.
    """
    order = topological(plan.outputs)
    readers = users(order)
    found: set[Node] = set()
    for node in order:
        compared = [n for n in readers[node] if n.op.name != "stop_gradient"]
        if _selects(node) and (compared or not readers[node]):
            found |= _sums_below(node.inputs[0])
        if node.op.name in COMPARED and node.type.space.kind == "edge":
            found |= _sums_below(node)
    return frozenset(found)
