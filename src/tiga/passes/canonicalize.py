"""Canonical form: derived ops expanded, sums over edges taken by rows, signs outside sums."""

from tiga.ops.message import ExclusiveProd, reduce, reduce_all
from tiga.ops.pointwise import neg
from tiga.trace.node import Node, rewrite
from tiga.trace.program import Program


def _rule(node: Node, inputs: tuple[Node, ...]) -> Node | None:
    if isinstance(node.op, ExclusiveProd):
        return node.op.expand(*inputs)
    if node.op.name == "reduce_all" and inputs[0].type.space.kind == "edge":
        # By rows first: row sums are fixed whatever the threads, and need no edge array.
        relation = _relation_of(inputs[0])
        return reduce_all(_sum_rows(reduce(relation, "dst", "sum", inputs[0])))
    if node.op.name == "reduce" and node.op.kind == "sum":
        return _sum_rows(node.op(*inputs))
    return None


def _sum_rows(total: Node) -> Node:
    """A sum of negated messages as the negated sum: the same bits, and one sum for both signs."""
    if total.op.name != "reduce" or total.inputs[0].op.name != "neg":
        return total
    return neg(total.op(total.inputs[0].inputs[0]))


def _relation_of(edge_value: Node):
    """The relation whose edges `edge_value` lives on."""
    stack = [edge_value]
    while stack:
        node = stack.pop()
        relation = getattr(node.op, "relation", None)
        if relation is not None and relation.edge == edge_value.type.space:
            return relation
        stack.extend(node.inputs)
    raise AssertionError(f"{edge_value!r} has no relation")


def canonicalize(program: Program) -> Program:
    """An equal program in canonical form."""
    return Program(program.inputs, tuple(rewrite(program.outputs, _rule)))
