"""Canonical form: derived ops expanded, sums over edges taken by rows, signs outside sums."""

from tiga.ops.contract import contract
from tiga.ops.message import ExclusiveProd, reduce, reduce_all
from tiga.ops.pointwise import cast, neg
from tiga.trace.node import Node, rewrite
from tiga.trace.program import Program
from tiga.types import Relation

WIDENING = 4
"""Summing before a product may widen the summed messages by this factor."""


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
    """A sum with what commutes with it taken out.

    Negation: the same bits, and one sum for both signs. A product with a matrix: one product per
    row instead of one per edge, unless that makes the summed messages much wider.
    """
    if total.op.name != "reduce":
        return total
    (message,) = total.inputs
    if message.op.name == "neg":
        return neg(total.op(message.inputs[0]))
    wide = message.inputs[0] if message.op.name == "cast" else message
    if wide.op.name != "contract":
        return total
    x, matrix = wide.inputs
    if x.type.shape[-1] > WIDENING * matrix.type.shape[1]:
        return total
    dtype = message.type.dtype
    return contract(total.op(cast(x, dtype)), cast(matrix, dtype))


def _relation_of(edge_value: Node) -> Relation:
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
