"""Tables that are indexed by a value of one end of an edge: looked up, and added to, at nodes."""

from tiga.ops.lookup import index_sum, lookup
from tiga.ops.message import gather, reduce
from tiga.trace.node import Node
from tiga.trace.program import Program


def _rule(node: Node, inputs: tuple[Node, ...]) -> Node | None:
    if node.op.name == "lookup" and inputs[1].op.name == "gather":
        table, index = inputs
        end = index.op
        return gather(end.relation, end.side, lookup(table, index.inputs[0]))
    if node.op.name == "index_sum" and inputs[0].op.name == "gather":
        index, y = inputs
        rows = reduce(index.op.relation, index.op.side, "sum", y)
        return index_sum(node.op.extent, index.inputs[0], rows)
    return None


def near_tables(program: Program) -> Program:
    """An equal program; indices that are made of one end's values are gathers of such already."""
    return program.rewritten(_rule)
