"""Derivatives of hoisted values: none at nodes without edges.

What edges make of a node, `hoist` makes once per node: also of nodes that no edge reads. A function
that is infinite there, such as a logarithm of padding, has an infinite derivative, and a cotangent
of zero times that is no number. So what such a value is made of passes derivatives at nodes with
edges only, as it did on edges. Where nothing can become infinite the program stays as it is.
"""

from collections.abc import Iterable
from functools import reduce

from tiga.ops.align import expand_to
from tiga.ops.contract import is_contract
from tiga.ops.leaf import stop_gradient, zeros_like
from tiga.ops.message import degree
from tiga.ops.pointwise import gt, logical_or, where
from tiga.trace.node import Node, reached, rewrite
from tiga.trace.origin import Origin
from tiga.trace.program import Program
from tiga.types import Relation, float32

End = tuple[Relation, str]


def reached_only(program: Program) -> Program:
    """An equal program whose hoisted values have no derivative at nodes without edges."""
    ends: dict[Node, dict[End, None]] = {}
    for node in program.order:
        if node.op.origin is Origin.END and _is_steep(node.inputs[0]):
            ends.setdefault(node.inputs[0], {})[node.op.relation, node.op.side] = None

    def rule(node: Node, inputs: tuple[Node, ...]) -> Node | None:
        if node.op.origin is not Origin.END or node.inputs[0] not in ends:
            return None
        return node.op(_guarded(inputs[0], ends[node.inputs[0]]), where=node.where)

    return program.rewritten(rule) if ends else program


def _is_made(node: Node) -> bool:
    """Whether a value of nodes is made of others of them, entity by entity."""
    op = node.op
    return bool(node.inputs) and (op.pointwise or op.moves or op.reduces or is_contract(node))


def _is_steep(value: Node) -> bool:
    return any(node.op.steep for node in reached([value], _is_leaf))


def _is_leaf(node: Node) -> bool:
    return not _is_made(node)


def _guarded(value: Node, ends: Iterable[End]) -> Node:
    """The value, of leaves that pass derivatives at nodes with an edge at one of these ends.

    A matrix has a derivative at every entity that it multiplies: elsewhere it multiplies zeros, and
    no derivative comes from there.
    """
    counts = (degree(relation, side, float32) for relation, side in ends)
    read = reduce(logical_or, (gt(count, zeros_like(count)) for count in counts))

    def where_read(x: Node, other: Node) -> Node:
        return where(expand_to(read, x.type.shape, x.type.space), x, other)

    def rule(node: Node, inputs: tuple[Node, ...]) -> Node | None:
        is_of_nodes = node.type.space == value.type.space
        if not (is_of_nodes and is_contract(node) and _is_steep(node.inputs[0])):
            return None
        factor, matrix = inputs
        product = node.op(where_read(factor, zeros_like(factor)), matrix, where=node.where)
        return where_read(product, zeros_like(product))

    replaced = {}
    for leaf in filter(_is_leaf, reached([value], _is_leaf)):
        of, is_number = leaf.type, leaf.op.origin is Origin.NUMBER
        if of.space == value.type.space and of.dtype.is_float and not is_number:
            replaced[leaf] = where_read(leaf, stop_gradient(leaf))
    return rewrite([value], rule, replaced)[0]
