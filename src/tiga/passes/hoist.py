"""Hoist: what depends on one end of the edges only is computed on nodes, before the gather."""

from tiga.ops.base import Pointwise
from tiga.ops.contract import contract
from tiga.ops.feature import take
from tiga.ops.leaf import constant
from tiga.ops.message import gather, spread
from tiga.ops.pointwise import add
from tiga.trace.node import Node, rewrite
from tiga.trace.program import Program
from tiga.types import Space

MOVABLE = ("contract", "concat", "feature_sum", "feature_max", "feature_min")


def _movable(node: Node) -> bool:
    op = node.op
    return isinstance(op, Pointwise) or hasattr(op, "lanes") or op.name in MOVABLE


def _one_end(inputs: tuple[Node, ...]) -> Node | None:
    """The gather that all varying inputs share the end of, if there is one."""
    gathers = [n for n in inputs if n.op.name == "gather"]
    others = [n for n in inputs if n.op.name not in ("gather", "spread", "constant")]
    if not gathers or any(n.type.space.kind == "edge" for n in others):
        return None
    ends = {(g.op.relation, g.op.side) for g in gathers}
    return gathers[0] if len(ends) == 1 else None


def _on_nodes(node: Node, space: Space) -> Node:
    """The operand `node` of an edge op, as a value of the node space."""
    if node.op.name == "gather":
        return node.inputs[0]
    if node.op.name == "constant":
        return constant(node.op.value, node.type.with_space(space))
    return spread(node.inputs[0], space) if node.op.name == "spread" else node


def _split_concat(x: Node, matrix: Node) -> Node:
    """A product with a concatenation as the sum of the parts' products."""
    total, start = None, 0
    for part in x.inputs:
        stop = start + part.type.shape[-1]
        rows = take(matrix, 0, tuple(range(start, stop)))
        product = _hoist(contract(part, rows))
        total = product if total is None else add(total, product)
        start = stop
    assert total is not None
    return total


def _hoist(node: Node) -> Node:
    if node.type.space.kind != "edge" or not _movable(node):
        return node
    end = _one_end(node.inputs)
    if end is None:
        return node
    space = end.inputs[0].type.space
    moved = node.op(*(_on_nodes(n, space) for n in node.inputs), where=node.where)
    return gather(end.op.relation, end.op.side, moved)


def _rule(node: Node, inputs: tuple[Node, ...]) -> Node | None:
    if node.type.space.kind != "edge" or not node.inputs:
        return None
    if node.op.name == "contract" and _is_last_axis_concat(inputs[0]):
        return _split_concat(*inputs)
    return _hoist(node.op(*inputs, where=node.where))


def _is_last_axis_concat(x: Node) -> bool:
    return x.op.name == "concat" and x.op.axis == len(x.type.shape) - 1


def hoist(program: Program) -> Program:
    """An equal program with one-sided work on node values."""
    return Program(program.inputs, tuple(rewrite(program.outputs, _rule)))
