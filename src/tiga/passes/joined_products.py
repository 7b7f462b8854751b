"""Products of joined values, part by part, so that nobody need join them.

`cat([x, y]) @ w` is `x @ w[:k] + y @ w[k:]`: the joined array, often the widest of a layer, is
neither written nor read. What is made element by element of joined values is joined of what is made
of their parts. Gradients follow: of a matrix, the sums of outer products of each part, one below
the other; of the parts, products with a part of the matrix instead of parts of a product.

Values of nodes only: those of edges are taken apart by `hoist`, where ends are told apart.
"""

from dataclasses import dataclass
from functools import reduce as fold
from itertools import pairwise

from tiga.ops.contract import contract, is_contract, is_outer_sum, outer_sum
from tiga.ops.feature import Take, broadcast, concat, reshape, take
from tiga.ops.leaf import constant
from tiga.ops.message import spread
from tiga.ops.pointwise import Mul, add, mul
from tiga.passes.base import Pass
from tiga.trace.node import Node, reached
from tiga.trace.origin import Origin
from tiga.trace.program import Program
from tiga.types import GLOBAL

LEAST_PART = 16
"""The narrowest part that gets a product of its own: matrix units take no less."""


def _rule(node: Node, inputs: tuple[Node, ...]) -> Node | None:
    if is_contract(node) and is_of_nodes(inputs[0]):
        return _product(*inputs) or _scaled(*inputs)
    if is_outer_sum(node) and is_of_nodes(inputs[0]):
        return _outer_products(*inputs)
    if is_slice(node) and is_of_nodes(inputs[0]):
        (x,) = inputs
        first = node.op.positions[0]
        return sliced(x, first, first + len(node.op.positions)) if _has_products(x) else None
    return None


def is_of_nodes(x: Node) -> bool:
    """Whether a value is one of nodes."""
    return x.type.space != GLOBAL and x.type.space.kind != "edge"


def is_slice(node: Node) -> bool:
    """Whether a value is consecutive positions of another's last axis."""
    if not isinstance(node.op, Take):
        return False
    first, count = node.op.positions[0], len(node.op.positions)
    last = node.op.axis == len(node.type.shape) - 1
    return last and node.op.positions == tuple(range(first, first + count))


def _product(x: Node, matrix: Node) -> Node | None:
    ranges = _ranges(x)
    if not _worth(ranges):
        return None
    parts = [(sliced(x, a, b), take(matrix, 0, tuple(range(a, b)))) for a, b in ranges]
    return fold(add, [_scaled(*part) or contract(*part) for part in _grouped(parts)])


def _scaled(x: Node, matrix: Node) -> Node | None:
    """A product of what one number of each row scales: the product of it without, scaled. So the
    products of one value, scaled in several ways, have one factor."""
    shape = x.type.shape
    if is_folded(x):
        inner = _scaled(x.inputs[0], matrix)
        return None if inner is None else reshape(inner, (*shape[:-1], matrix.type.shape[1]))
    value, scale = unscaled(x)
    if scale is None or x.type.dtype.itemsize < 4:
        return None
    product = contract(value, matrix)
    return mul(product, broadcast(scale, product.type.shape))


def unscaled(x: Node) -> tuple[Node, Node | None]:
    """A value, and the number of each row that it is multiplied by."""
    if isinstance(x.op, Mul):
        for value, scale in (x.inputs, x.inputs[::-1]):
            if scale.op.broadcasts and scale.inputs[0].type.size == 1:
                return value, scale.inputs[0]
    return x, None


def _worth(*ranges: list[tuple[int, int]]) -> bool:
    """Whether there are parts, and none so narrow that its product does little with what it
    reads."""
    widths = [b - a for found in ranges if len(found) > 1 for a, b in found]
    return bool(widths) and min(widths) >= LEAST_PART


def _grouped(parts: list[tuple[Node, Node]]) -> list[tuple[Node, Node]]:
    """Factors made of the same values one after another: these are read once, and soon done."""
    groups: dict[frozenset[Node], list[tuple[Node, Node]]] = {}
    for part in parts:
        groups.setdefault(frozenset(_wide_values(part[0])), []).append(part)
    return [part for group in groups.values() for part in group]


def _wide_values(x: Node) -> list[Node]:
    """The values of several elements that a value is made of element by element."""
    ends = reached([x], lambda n: not (n.op.pointwise or n.op.reshapes))
    return [n for n in ends if not (n.op.pointwise or n.op.reshapes or n.op.broadcasts)
            and n.type.size > 1]  # fmt: skip


def _outer_products(x: Node, y: Node) -> Node | None:
    rows, columns = _ranges(x), _ranges(y)
    if not _worth(rows, columns):
        return None
    left, right = ([sliced(z, a, b) for a, b in ranges] for z, ranges in ((x, rows), (y, columns)))
    return concat(0, *(concat(1, *(outer_sum(row, c) for c in right)) for row in left))


# joined values


def _ranges(x: Node) -> list[tuple[int, int]]:
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


def _has_products(x: Node) -> bool:
    """Whether a value is made element by element of products with matrices."""

    def is_end(n: Node) -> bool:
        return not (n.op.pointwise or is_folded(n) or is_slice(n))

    return any(map(is_contract, reached([x], is_end)))


def sliced(x: Node, first: int, stop: int) -> Node:
    """A range of the last axis of a value, made of as little as possible."""
    return _sliced(x, first, stop, {})


Slices = dict[tuple[Node, int, int], Node]


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


@dataclass(frozen=True)
class PartProducts(Pass, name="gf-part-products"):
    """Multiply joined values of nodes part by part: GPUs then write no joined array."""

    def __call__(self, form: Program) -> Program:
        return form.rewritten(_rule)
