"""Values that are others one after another along their last axis: where they are joined, and ranges
of them, made of as little as possible."""

from itertools import pairwise

from tiga.ops.contract import contract, is_contract
from tiga.ops.feature import Take, broadcast, concat, reshape, take
from tiga.ops.leaf import constant
from tiga.ops.message import spread
from tiga.ops.pointwise import Mul
from tiga.trace.node import Node, reached
from tiga.trace.origin import Origin
from tiga.types import GLOBAL

Slices = dict[tuple[Node, int, int], Node]
"""Ranges that are known: of a value, from a position up to another."""


def is_of_nodes(x: Node) -> bool:
    """Whether a value is one of nodes."""
    return x.type.space != GLOBAL and not x.type.on_edges


def is_slice(node: Node) -> bool:
    """Whether a value is consecutive positions of another's last axis."""
    if not isinstance(node.op, Take):
        return False
    first, count = node.op.positions[0], len(node.op.positions)
    last = node.op.axis == len(node.type.shape) - 1
    return last and node.op.positions == tuple(range(first, first + count))


def unscaled(x: Node) -> tuple[Node, Node | None]:
    """A value, and the number of each row that it is multiplied by."""
    if isinstance(x.op, Mul):
        for value, scale in (x.inputs, x.inputs[::-1]):
            if scale.op.broadcasts and scale.inputs[0].type.size == 1:
                return value, scale.inputs[0]
    return x, None


def ranges_of(x: Node) -> list[tuple[int, int]]:
    """The ranges of the last axis that a value is joined from."""
    return list(pairwise(sorted({0, x.type.shape[-1], *_cuts(x)})))


def _cuts(x: Node) -> set[int]:
    """Where along its last axis a value is joined."""
    if joins(x):
        found, start = set[int](), 0
        for part in x.inputs:
            found |= {start, *(start + cut for cut in _cuts(part))}
            start += part.type.shape[-1]
        return found
    if is_folded(x):
        return _cuts(x.inputs[0])
    if x.op.pointwise:
        made_of = reached(x.inputs, lambda n: not n.op.pointwise)
        return {cut for n in made_of if not n.op.pointwise for cut in _cuts(n)}
    if is_slice(x):
        first, count = x.op.positions[0], len(x.op.positions)
        return {cut - first for cut in _cuts(x.inputs[0]) if first < cut < first + count}
    return set()


def joins(x: Node) -> bool:
    """Whether a value is others after one another along the last axis."""
    return bool(x.op.concatenates) and x.op.axis == len(x.type.shape) - 1


def is_folded(x: Node) -> bool:
    """Whether a value is another under a shape with the same last axis."""
    if not x.op.reshapes:
        return False
    source = x.inputs[0].type.shape
    return bool(source) and bool(x.type.shape) and source[-1] == x.type.shape[-1]


def sliced(x: Node, first: int, stop: int) -> Node:
    """A range of the last axis of a value, made of as little as possible."""
    return _sliced(x, first, stop, {})


def _sliced(x: Node, first: int, stop: int, known: Slices) -> Node:
    key = (x, first, stop)
    if key not in known:
        known[key] = _slice_of(x, first, stop, known)
    return known[key]


def _slice_of(x: Node, first: int, stop: int, known: Slices) -> Node:
    shape = x.type.shape
    if (first, stop) == (0, shape[-1]):
        return x
    lead, op = shape[:-1], x.op
    if joins(x):
        return _of_joined(x, first, stop, known)
    if op.pointwise:
        return op(*(_sliced(child, first, stop, known) for child in x.inputs), where=x.where)
    if op.origin is Origin.NUMBER:
        return constant(op.value, x.type.with_shape((*lead, stop - first)))
    if is_contract(x):
        y, matrix = x.inputs
        return contract(y, take(matrix, 1, tuple(range(first, stop))))
    if op.origin is Origin.GLOBAL:
        return spread(_sliced(x.inputs[0], first, stop, known), op.space)
    if is_folded(x):
        return reshape(_sliced(x.inputs[0], first, stop, known), (*lead, stop - first))
    if is_slice(x):
        start = op.positions[0]
        return _sliced(x.inputs[0], start + first, start + stop, known)
    if op.broadcasts and x.inputs[0].type.shape[-1:] in ((), (1,)):
        return broadcast(x.inputs[0], (*lead, stop - first))
    return take(x, len(lead), tuple(range(first, stop)))


def _of_joined(x: Node, first: int, stop: int, known: Slices) -> Node:
    parts, start = [], 0
    for part in x.inputs:
        end = start + part.type.shape[-1]
        low, high = max(first, start), min(stop, end)
        if low < high:
            parts.append(_sliced(part, low - start, high - start, known))
        start = end
    return concat(x.op.axis, *parts)
