"""Which feature sums need one order in all kernels.

Triton's own sums depend on how a tile lies in registers. That is harmless unless the result is
compared with one from another walk, as gradients of maxima and minima do.
"""

from tiga.ops.base import Op
from tiga.ops.functions import Exp
from tiga.ops.leaf import StopGradient
from tiga.ops.pointwise import Eq, Sub, Where
from tiga.passes.rows import Plan
from tiga.trace.node import Node, topological, users
from tiga.trace.origin import Origin


def _sums_below(node: Node) -> set[Node]:
    return {n for n in topological([node]) if n.op.reduces and n.op.combine == "add"}


def _is_decided_by_a_bit(node: Node) -> bool:
    return isinstance(node.op, Eq) or node.op.finds is not None


def _carries_on(op: Op) -> bool:
    """Whether an op may stand between a maximum and what it shifts."""
    return op.renames or op.converts or op.origin is Origin.END or isinstance(op, Where)


def _only_shifts(node: Node, readers: dict[Node, list[Node]]) -> bool:
    """Whether all that a value does is to shift what is exponentiated."""
    if not readers[node]:
        return False
    for reader in readers[node]:
        if isinstance(reader.op, Sub) and reader.inputs[1] is node and readers[reader]:
            if any(not isinstance(n.op, Exp) for n in readers[reader]):
                return False
        elif isinstance(reader.op, StopGradient):
            continue  # no gradient compares messages with it
        elif not _carries_on(reader.op) or not _only_shifts(reader, readers):
            return False
    return True


def ordered_sums(plan: Plan) -> frozenset[Node]:
    """The feature sums of a plan whose bits are compared.

    The shift of a softmax is a maximum too, but only goes into exponentials: it needs no exact
    partner.
    """
    order = topological(plan.outputs)
    readers = users(order)
    found: set[Node] = set()
    for node in order:
        if node.op.origin is Origin.ROW and node.op.selects and not _only_shifts(node, readers):
            found |= _sums_below(node.inputs[0])
        if _is_decided_by_a_bit(node) and node.type.on_edges:
            found |= _sums_below(node)
    return frozenset(found)
