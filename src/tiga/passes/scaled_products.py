"""Products of values joined with scaled copies of themselves: the copies are never written.

Degree scalers join a value with what numbers of each row make of it: `cat([x, a, s * a, t * a])`.
A product of that with a matrix is one of `a` with parts of the matrix side by side, whose parts
are scaled and added. Gradients follow: of the matrix, a sum of outer products of `a` with what
comes back, scaled once for each part; of `a`, one product with the same.

Values of nodes only. Part by part, as `part_products` does it for GPUs, there would be four times
as many kernels to compile, each of which reads and writes a sum.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce as fold
from operator import itemgetter

from tiga.ops.contract import contract, is_contract, is_outer_sum, outer_sum
from tiga.ops.feature import broadcast, concat, reshape, take
from tiga.ops.pointwise import Add, add, mul
from tiga.passes.base import Pass
from tiga.passes.joined_values import (
    is_folded,
    is_of_nodes,
    is_slice,
    joins,
    sliced,
    unscaled,
)
from tiga.trace.node import Node, users
from tiga.trace.program import Program


@dataclass(frozen=True)
class JoinedTerm:
    """A range of a joined value: `value`, times a number of each row if there is a `scale`."""

    value: Node
    scale: Node | None
    start: int

    @property
    def range(self) -> tuple[int, int]:
        """Where along the last axis of the joined value it is."""
        return self.start, self.start + self.value.type.shape[-1]

    def moved(self, start: int) -> "JoinedTerm":
        return JoinedTerm(self.value, self.scale, self.start + start)


def _rule(node: Node, inputs: tuple[Node, ...]) -> Node | None:
    if is_contract(node) and is_of_nodes(inputs[0]):
        return _product(*inputs)
    if is_outer_sum(node) and is_of_nodes(inputs[0]):
        return _outer_sum(*inputs)
    return None


# products


def _product(x: Node, matrix: Node) -> Node | None:
    groups = _groups(x, matrix.type.shape[1])
    if groups is None:
        return None
    parts = [part for group in groups for part in _products(group, matrix)]
    return fold(add, parts)


def _products(group: Sequence[JoinedTerm], matrix: Node) -> list[Node]:
    """The products of one value with the parts of a matrix that its copies meet, scaled."""
    value, width = group[0].value, matrix.type.shape[1]
    value = reshape(value, value.type.shape[-1:])
    pieces = [take(matrix, 0, tuple(range(*term.range))) for term in group]
    if len(group) == 1 and group[0].scale is None:
        return [contract(value, pieces[0])]
    product = contract(value, pieces[0] if len(pieces) == 1 else concat(1, *pieces))
    found = []
    for i, term in enumerate(group):
        part = take(product, 0, tuple(range(i * width, (i + 1) * width)))
        found.append(_times(part, term.scale))
    return found


def _outer_sum(x: Node, y: Node) -> Node | None:
    """Sums of outer products with a joined value, on either side."""
    for side, (joined, other) in enumerate(((x, y), (y, x))):
        groups = _groups(joined, other.type.size)
        if groups is None or len(other.type.shape) != 1:
            continue
        found = [part for group in groups for part in _outer_parts(group, other, side)]
        return concat(side, *(part for _, part in sorted(found, key=itemgetter(0))))
    return None


def _outer_parts(group: Sequence[JoinedTerm], other: Node, side: int) -> Iterator[tuple[int, Node]]:
    """The sums of outer products with copies of one value, by where the copies are: one sum, in
    which what they scale stands side by side."""
    width, value = other.type.size, reshape(group[0].value, group[0].value.type.shape[-1:])
    factor = _copies(other, [term.scale for term in group])
    total = outer_sum(value, factor) if side == 0 else outer_sum(factor, value)
    if len(group) == 1:
        yield group[0].start, total
        return
    for i, term in enumerate(group):
        yield term.start, take(total, 1 - side, tuple(range(i * width, (i + 1) * width)))


def _sum_of_slices(node: Node, inputs: tuple[Node, ...], narrow: frozenset[Node]) -> Node | None:
    """Scaled slices of one product, added: a product of scaled copies. `narrow` are products that
    nothing reads but slices."""
    slices: dict[Node, list[tuple[int, int, Node | None]]] = {}
    rest: list[Node] = []
    for operand in _operands(node.op(*inputs)):
        found = _slice_of_product(operand)
        if found is None or found[0] not in narrow:
            rest.append(operand)
        else:
            product, first, stop, scale = found
            slices.setdefault(product, []).append((first, stop, scale))
    merged = {p for p, found in slices.items() if _pays(node.type.size, len(found), p.inputs[0])}
    if not merged:
        return None
    added = [_merged(product, slices[product], node) for product in slices if product in merged]
    alone = [_as_operand(p, *at, node) for p in slices if p not in merged for at in slices[p]]
    return fold(add, [*added, *alone, *rest])


def _pays(width: int, copies: int, other: Node | int) -> bool:
    """Whether copies of a value take more memory than it and as many of another width."""
    narrow = other if isinstance(other, int) else other.type.size
    return copies > 1 and width + copies * narrow < copies * width


def _merged(product: Node, where: Sequence[tuple[int, int, Node | None]], like: Node) -> Node:
    x, matrix = product.inputs
    where = sorted(where, key=itemgetter(0))
    pieces = [take(matrix, 1, tuple(range(a, b))) for a, b, _ in where]
    factor = _copies(x, [scale for _, _, scale in where])
    return reshape(contract(factor, concat(0, *pieces)), like.type.shape)


def _as_operand(product: Node, a: int, b: int, scale: Node | None, like: Node) -> Node:
    return _times(reshape(sliced(product, a, b), like.type.shape), scale)


def _operands(node: Node) -> list[Node]:
    """What a sum of sums adds."""
    if not isinstance(node.op, Add):
        return [node]
    return [operand for child in node.inputs for operand in _operands(child)]


def _slice_of_product(x: Node) -> tuple[Node, int, int, Node | None] | None:
    """The product with a matrix that a value is a range of, and what scales that."""
    value, scale = unscaled(x)
    first, stop = 0, value.type.shape[-1] if value.type.shape else 0
    while is_slice(value) or is_folded(value):
        if is_slice(value):
            first, stop = first + value.op.positions[0], stop + value.op.positions[0]
        (value,) = value.inputs
    proper = is_contract(value) and is_of_nodes(value) and len(value.type.shape) == 1
    if not proper or stop - first == value.type.shape[-1]:
        return None
    return value, first, stop, scale


def _without_slices(program: Program) -> Program:
    """Products of which slices alone are read, as products with slices of the matrix."""
    readers, narrow = users(program.order), _read_by_slices(program)

    def is_of_narrow(node: Node) -> bool:
        while is_slice(node) or is_folded(node):
            (node,) = node.inputs
        return node in narrow and _slices_of(node, readers) == 1

    def rule(node: Node, inputs: tuple[Node, ...]) -> Node | None:
        if not is_slice(node) or not is_of_narrow(node):
            return None
        first = node.op.positions[0]
        return sliced(inputs[0], first, first + len(node.op.positions))

    return program.rewritten(rule)


def _read_by_slices(program: Program) -> frozenset[Node]:
    """The products that nothing reads but slices."""
    readers = users(program.order)

    def are_slices(node: Node) -> bool:
        return all(
            is_slice(reader) or (is_folded(reader) and are_slices(reader))
            for reader in readers[node]
        )  # fmt: skip

    return frozenset(
        node for node in program.order
        if is_contract(node) and is_of_nodes(node) and node not in program.outputs
        and len(node.type.shape) == 1 and readers[node] and are_slices(node)
    )  # fmt: skip


def _slices_of(node: Node, readers: dict[Node, list[Node]]) -> int:
    """How many slices are taken of a value."""
    return sum(1 if is_slice(r) else _slices_of(r, readers) for r in readers[node])


# joined values


def _groups(x: Node, width: int) -> list[list[JoinedTerm]] | None:
    """The ranges of a joined value by what they are copies of, for products of a width with each;
    None where joining them takes less memory."""
    if x.type.dtype.itemsize < 4 or x.type.size != x.type.shape[-1]:
        return None
    groups: dict[Node, list[JoinedTerm]] = {}
    for term in _terms(x):
        groups.setdefault(term.value, []).append(term)
    several = [group for group in groups.values() if len(group) > 1]
    pays = [_pays(group[0].value.type.size, len(group), width) for group in several]
    return list(groups.values()) if several and all(pays) else None


def _terms(x: Node) -> list[JoinedTerm]:
    """A joined value taken apart as far as its parts are scaled."""
    if joins(x):
        found, start = list[JoinedTerm](), 0
        for part in x.inputs:
            found += [term.moved(start) for term in _terms(part)]
            start += part.type.shape[-1]
        return found if any(term.scale is not None for term in found) else [JoinedTerm(x, None, 0)]
    if is_folded(x):
        inner = _terms(x.inputs[0])
        return inner if len(inner) > 1 else [JoinedTerm(x, None, 0)]
    value, scale = unscaled(x)
    return [JoinedTerm(value, scale, 0)]


def _times(x: Node, scale: Node | None) -> Node:
    if scale is None:
        return x
    number = reshape(scale, (1,) * len(x.type.shape))
    return mul(x, broadcast(number, x.type.shape))


def _copies(x: Node, scales: Sequence[Node | None]) -> Node:
    """Copies of a value, scaled, joined."""
    copies = [_times(x, scale) for scale in scales]
    return copies[0] if len(copies) == 1 else concat(0, *copies)


@dataclass(frozen=True)
class ScaledProducts(Pass, name="gf-scaled-products"):
    """Multiply values joined with scaled copies of themselves once: no copy is written."""

    def __call__(self, form: Program) -> Program:
        readers, narrow = users(form.order), _read_by_slices(form)

        def gathers(node: Node, inputs: tuple[Node, ...]) -> Node | None:
            is_operand = any(isinstance(reader.op, Add) for reader in readers[node])
            if isinstance(node.op, Add) and is_of_nodes(node) and not is_operand:
                return _sum_of_slices(node, inputs, narrow)
            return None

        return _without_slices(form.rewritten(gathers)).rewritten(_rule)
