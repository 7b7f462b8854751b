"""Hoist: what depends on one end of the edges only is computed on nodes, before the gather."""

from dataclasses import dataclass

from tiga.ops.contract import Contract, is_contract
from tiga.ops.feature import reshape, take
from tiga.ops.leaf import constant
from tiga.ops.message import gather, spread
from tiga.ops.pointwise import add, neg, sub
from tiga.passes.base import Pass
from tiga.trace.node import Node
from tiga.trace.origin import Origin
from tiga.trace.program import Program
from tiga.types import Space

LEAST_SPLIT = 16
"""Inner extent from which a product with a sum of both ends' values becomes two products of node
values. Coordinates are narrower: their differences keep what would cancel between the products."""


def _movable(node: Node) -> bool:
    op = node.op
    return op.pointwise or op.moves or op.reduces or is_contract(node)


def _one_end(inputs: tuple[Node, ...]) -> Node | None:
    """The gather that all varying inputs share the end of, if there is one."""
    gathers = [n for n in inputs if n.op.origin is Origin.END]
    others = [n for n in inputs if n.op.origin is not Origin.END and not n.op.is_uniform]
    if not gathers or any(n.type.on_edges for n in others):
        return None
    ends = {(g.op.relation, g.op.side) for g in gathers}
    return gathers[0] if len(ends) == 1 else None


def _on_nodes(node: Node, space: Space) -> Node:
    """The operand `node` of an edge op, as a value of the node space."""
    if node.op.origin is Origin.END:
        return node.inputs[0]
    if node.op.origin is Origin.NUMBER and node.type.on_edges:
        return constant(node.op.value, node.type.with_space(space))
    return spread(node.inputs[0], space) if node.op.origin is Origin.GLOBAL else node


def _joined(x: Node) -> tuple[Node, ...]:
    """The values that `x` is along its last axis, one after another; () if it is no such value."""
    source = x.inputs[0] if x.op.reshapes else x
    if not source.op.concatenates or source.op.axis != len(source.type.shape) - 1:
        return ()
    if source.type.shape[-1] != x.type.shape[-1]:
        return ()
    lead = x.type.shape[:-1]
    return tuple(hoisted(reshape(p, (*lead, p.type.shape[-1]))) for p in source.inputs)


def _terms(x: Node, matrix: Node) -> list[tuple[bool, Node, Node]]:
    """The products whose sum is `x @ matrix`: whether one is taken away, and its factors."""
    found, start = [], 0
    for part in _joined(x):
        stop = start + part.type.shape[-1]
        found += _terms(part, take(matrix, 0, tuple(range(start, stop))))
        start = stop
    if found:
        return found
    if not _is_sum_of_ends(x) or x.type.shape[-1] < LEAST_SPLIT or x.type.dtype.itemsize < 4:
        return [(False, x, matrix)]
    return [
        ((sign < 0) != taken, y, m)
        for sign, part in zip(x.op.signs, x.inputs, strict=True)
        for taken, y, m in _terms(part, matrix)
    ]


def _is_sum_of_ends(x: Node) -> bool:
    """Whether a value is a sum or difference of values that are each of one end."""
    return len(x.op.signs) > 1 and all(
        n.op.origin is Origin.END or _is_sum_of_ends(n) for n in x.inputs
    )


def _product(x: Node, matrix: Node, where: str | None) -> Node:
    """A product of edge values with a matrix, as products of node values where that is possible.

    What one value meets is added up first: one product is left of `x_i @ a + (x_j - x_i) @ b`.
    """
    groups: dict[Node, Node] = {}
    signs: dict[Node, bool] = {}
    for taken, y, factor in _terms(x, matrix):
        if y not in groups:
            groups[y], signs[y] = factor, taken
        else:
            groups[y] = (add if taken == signs[y] else sub)(groups[y], factor)
    order = sorted(groups, key=signs.__getitem__)  # what is taken away comes last
    products = [hoisted(Contract()(y, groups[y], where=where)) for y in order]
    total = neg(products[0]) if signs[order[0]] else products[0]
    for y, product in zip(order[1:], products[1:], strict=True):
        total = (sub if signs[y] else add)(total, product)
    return total


def hoisted(node: Node) -> Node:
    """An edge value, computed on nodes if what it is made of is all of one end."""
    if not node.type.on_edges or not _movable(node):
        return node
    end = _one_end(node.inputs)
    if end is None:
        return node
    space = end.inputs[0].type.space
    moved = node.op(*(_on_nodes(n, space) for n in node.inputs), where=node.where)
    return gather(end.op.relation, end.op.side, moved)


def _rule(node: Node, inputs: tuple[Node, ...]) -> Node | None:
    if not node.type.on_edges or not node.inputs:
        return None
    if is_contract(node):
        x, matrix = inputs
        return _product(x, matrix, node.where)
    return hoisted(node.op(*inputs, where=node.where))


@dataclass(frozen=True)
class Hoist(Pass, name="gf-hoist"):
    """Compute on nodes what depends on one end of the edges only."""

    def __call__(self, form: Program) -> Program:
        return form.rewritten(_rule)
