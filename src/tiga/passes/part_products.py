"""Products of joined values, part by part, so that nobody need join them.

`cat([x, y]) @ w` is `x @ w[:k] + y @ w[k:]`: the joined array, often the widest of a layer, is
neither written nor read. What is made element by element of joined values is joined of what is made
of their parts. Gradients follow: of a matrix, the sums of outer products of each part, one below
the other; of the parts, products with a part of the matrix instead of parts of a product.

Values of nodes only: those of edges are taken apart by `hoist`, where ends are told apart.
"""

from dataclasses import dataclass
from functools import reduce as fold

from tiga.ops.contract import contract, is_contract, is_outer_sum, outer_sum
from tiga.ops.feature import broadcast, concat, reshape, take
from tiga.ops.pointwise import add, mul
from tiga.passes.base import Pass
from tiga.passes.joined_values import (
    is_folded,
    is_of_nodes,
    is_slice,
    ranges_of,
    sliced,
    unscaled,
)
from tiga.trace.node import Node, reached
from tiga.trace.program import Program

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


def _product(x: Node, matrix: Node) -> Node | None:
    ranges = ranges_of(x)
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
    rows, columns = ranges_of(x), ranges_of(y)
    if not _worth(rows, columns):
        return None
    left, right = ([sliced(z, a, b) for a, b in ranges] for z, ranges in ((x, rows), (y, columns)))
    return concat(0, *(concat(1, *(outer_sum(row, c) for c in right)) for row in left))


def _has_products(x: Node) -> bool:
    """Whether a value is made element by element of products with matrices."""

    def is_end(n: Node) -> bool:
        return not (n.op.pointwise or is_folded(n) or is_slice(n))

    return any(map(is_contract, reached([x], is_end)))


@dataclass(frozen=True)
class PartProducts(Pass, name="gf-part-products"):
    """Multiply joined values of nodes part by part: GPUs then write no joined array."""

    def __call__(self, form: Program) -> Program:
        return form.rewritten(_rule)
