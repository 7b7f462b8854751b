"""Tables that are indexed by a value of one end of an edge: looked up, and added to, at nodes."""

from dataclasses import dataclass

from tiga.ops.lookup import IndexSum, Lookup, index_sum, lookup
from tiga.ops.message import gather, reduce
from tiga.passes.base import Pass
from tiga.trace.node import Node
from tiga.trace.origin import Origin
from tiga.trace.program import Program


def _rule(node: Node, inputs: tuple[Node, ...]) -> Node | None:
    if isinstance(node.op, Lookup) and inputs[1].op.origin is Origin.END:
        table, index = inputs
        end = index.op
        return gather(end.relation, end.side, lookup(table, index.inputs[0]))
    if isinstance(node.op, IndexSum) and inputs[0].op.origin is Origin.END:
        index, y = inputs
        rows = reduce(index.op.relation, index.op.side, "sum", y)
        return index_sum(node.op.extent, index.inputs[0], rows)
    return None


@dataclass(frozen=True)
class NearTables(Pass, name="gf-near-tables"):
    """Look up tables, and add to them, at nodes, where one end of the edges has the index.

    Indices that are made of such values alone are gathers already.
    """

    def __call__(self, form: Program) -> Program:
        return form.rewritten(_rule)
