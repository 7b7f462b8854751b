"""Edge values that are joined, or taken apart, along their last axis: part by part.

Of `gates = f(x) * (w @ z)`, split in three, kernels of a GPU hold three values of a third of the
width: nothing is moved between lanes, and no width is padded to a power of two. A product's part is
one with a part of the matrix. What gradients join again, zeros beside each part, is never joined:
a product with it is the sum of the parts' products, a sum over edges that of each part, joined at
the rows, and a sum of outer products those of the parts, one below the other.

Only programs that multiply edge values with matrices: others hold values by windows of features.
"""

from dataclasses import dataclass, field
from functools import reduce as fold
from itertools import pairwise

from tiga.ops.contract import OuterSum, contract, is_contract, is_outer_sum, outer_sum
from tiga.ops.feature import Put, Take, broadcast, concat, is_transpose, permute, reshape, take
from tiga.ops.leaf import constant, is_constant
from tiga.ops.message import Reduce, gather, reduce_all
from tiga.ops.pointwise import Add, Mul, add
from tiga.passes.base import Pass
from tiga.passes.joined_values import is_folded, is_slice, joins
from tiga.trace.node import Node
from tiga.trace.origin import Origin
from tiga.trace.program import Program

LEAST_PART = 16
"""The narrowest part that gets a product of its own: matrix units take no less."""

Cuts = frozenset[int]
NO_CUTS: Cuts = frozenset()


def is_of_edges(x: Node) -> bool:
    """Whether a value is one of edges."""
    return x.type.space.kind == "edge"


def is_sum(x: Node) -> bool:
    """Whether a value is the sum over each row's edges."""
    return isinstance(x.op, Reduce) and x.op.kind == "sum"


def rows_of(matrix: Node, first: int, stop: int) -> Node:
    """Some rows of a matrix; of one that is turned, columns of the other, turned."""
    positions = tuple(range(first, stop))
    if is_transpose(matrix):
        return permute(take(matrix.inputs[0], 1, positions), (1, 0))
    return take(matrix, 0, positions)


def columns_of(matrix: Node, first: int, stop: int) -> Node:
    """Some columns of a matrix; of one that is turned, rows of the other, turned."""
    positions = tuple(range(first, stop))
    if is_transpose(matrix):
        return permute(take(matrix.inputs[0], 0, positions), (1, 0))
    return take(matrix, 1, positions)


@dataclass(frozen=True)
class Parts:
    """Parts of values along their last axis; what was found stays for the next that asks."""

    cuts: dict[Node, Cuts] = field(default_factory=dict)
    slices: dict[tuple[Node, int, int], Node] = field(default_factory=dict)

    def rule(self, node: Node, inputs: tuple[Node, ...]) -> Node | None:
        """What stands for a node, of inputs that were rewritten."""
        if not inputs:
            return None
        if is_contract(node) and is_of_edges(node):
            return self._product(*inputs)
        if is_outer_sum(node) and is_of_edges(inputs[0]):
            return self._outer_products(*inputs)
        if node.op.origin is Origin.END:
            return _part_at_edges(node, *inputs)
        if is_slice(node):
            return self._slice(node, *inputs)
        if is_sum(node):
            return self._row_sums(node, inputs[0])
        if node.op.origin is Origin.TOTAL and joins(inputs[0]):
            return concat(0, *map(reduce_all, inputs[0].inputs))
        return None

    # what is made of parts

    def _slice(self, node: Node, x: Node) -> Node | None:
        """A part of what edges make, or the sum of a part."""
        first, stop = node.op.positions[0], node.op.positions[-1] + 1
        if is_of_edges(x):
            return self.sliced(x, first, stop)
        return x.op(self.sliced(x.inputs[0], first, stop)) if is_sum(x) else None

    def _product(self, x: Node, matrix: Node) -> Node | None:
        ranges = self.ranges(x)
        if len(ranges) == 1:
            return None
        parts = [(self.sliced(x, a, b), rows_of(matrix, a, b)) for a, b in ranges]
        products = [contract(*part) for part in parts if not is_constant(part[0], 0.0)]
        return fold(add, products) if products else None

    def _outer_products(self, x: Node, y: Node) -> Node | None:
        rows, columns = self.ranges(x), self.ranges(y)
        if len(rows) == len(columns) == 1:
            return None
        left, right = ([self.sliced(z, a, b) for a, b in ranges]
                       for z, ranges in ((x, rows), (y, columns)))  # fmt: skip
        return concat(0, *(concat(1, *(_outer_sum(row, c) for c in right)) for row in left))

    def _row_sums(self, node: Node, x: Node) -> Node | None:
        if x.op.concatenates and not joins(x):
            return concat(x.op.axis, *map(node.op, x.inputs))
        terms = _terms(x)
        if all(isinstance(term.op, Put) and not is_placed(term) for term in terms):
            return fold(add, [term.op(node.op(*term.inputs)) for term in terms])
        ranges = self.ranges(x)
        if len(ranges) == 1:
            return None
        return concat(len(x.type.shape) - 1, *(node.op(self.sliced(x, a, b)) for a, b in ranges))

    # parts

    def ranges(self, x: Node) -> list[tuple[int, int]]:
        """The ranges of the last axis that a value is joined from; one where they are narrow."""
        extent = x.type.shape[-1] if x.type.shape else 1
        found = list(pairwise(sorted({0, extent, *self._cuts(x)})))
        return found if min(b - a for a, b in found) >= LEAST_PART else [(0, extent)]

    def _cuts(self, x: Node) -> Cuts:
        """Where along its last axis a value is joined."""
        if x not in self.cuts:
            self.cuts[x] = self._cuts_of(x)
        return self.cuts[x]

    def _cuts_of(self, x: Node) -> Cuts:
        op, shape = x.op, x.type.shape
        if not shape:
            return NO_CUTS
        if joins(x):
            found, start = set[int](), 0
            for part in x.inputs:
                found |= {start, *(start + cut for cut in self._cuts(part))}
                start += part.type.shape[-1]
            return frozenset(found - {0})
        if is_placed(x):
            start, count = op.positions[0], len(op.positions)
            inner = {start + cut for cut in self._cuts(x.inputs[0])}
            return frozenset({start, start + count, *inner} - {0, shape[-1]})
        if is_slice(x):
            start, count = op.positions[0], len(op.positions)
            inner = {cut - start for cut in self._cuts(x.inputs[0])}
            return frozenset(cut for cut in inner if 0 < cut < count)
        if op.pointwise:
            return frozenset().union(*map(self._cuts, x.inputs))
        return self._cuts(x.inputs[0]) if keeps_last_axis(x) else NO_CUTS

    def sliced(self, x: Node, first: int, stop: int) -> Node:
        """A range of the last axis of a value, made of as little as possible."""
        key = (x, first, stop)
        if key not in self.slices:
            self.slices[key] = self._slice_of(x, first, stop)
        return self.slices[key]

    def _slice_of(self, x: Node, first: int, stop: int) -> Node:
        op, shape = x.op, x.type.shape
        if (first, stop) == (0, shape[-1]):
            return x
        target = (*shape[:-1], stop - first)
        if op.origin is Origin.NUMBER:
            return constant(op.value, x.type.with_shape(target))
        if op.pointwise:
            return _combined(x, [self.sliced(child, first, stop) for child in x.inputs])
        if is_contract(x):
            return contract(x.inputs[0], columns_of(x.inputs[1], first, stop))
        if joins(x):
            return self._of_joined(x, first, stop)
        if is_slice(x):
            return self.sliced(x.inputs[0], op.positions[0] + first, op.positions[0] + stop)
        if is_placed(x):
            return self._of_placed(x, first, stop)
        if op.broadcasts and x.inputs[0].type.shape[-1:] in ((), (1,)):
            return broadcast(x.inputs[0], target)
        if keeps_last_axis(x):
            return _like(x, self.sliced(x.inputs[0], first, stop), target)
        return take(x, len(shape) - 1, tuple(range(first, stop)))

    def _of_joined(self, x: Node, first: int, stop: int) -> Node:
        parts, start = [], 0
        for part in x.inputs:
            end = start + part.type.shape[-1]
            low, high = max(first, start), min(stop, end)
            if low < high:
                parts.append(self.sliced(part, low - start, high - start))
            start = end
        return concat(x.op.axis, *parts)

    def _of_placed(self, x: Node, first: int, stop: int) -> Node:
        """A range of zeros with a value among them."""
        start, end = x.op.positions[0], x.op.positions[-1] + 1
        target = (*x.type.shape[:-1], stop - first)
        if stop <= start or end <= first:
            return constant(0.0, x.type.with_shape(target))
        low, high = max(first, start), min(stop, end)
        found = self.sliced(x.inputs[0], low - start, high - start)
        positions = tuple(range(low - first, high - first))
        return Put(x.op.axis, positions, stop - first)(found)


def _part_at_edges(node: Node, x: Node) -> Node | None:
    """A part of an argument, read at the edges from where it lies in the whole."""
    if not isinstance(x.op, Take) or x.inputs[0].op.origin is not Origin.ARGUMENT:
        return None
    return x.op(gather(node.op.relation, node.op.side, x.inputs[0]))


def is_placed(x: Node) -> bool:
    """Whether a value is another at consecutive positions of its last axis, and zeros."""
    if not isinstance(x.op, Put) or x.op.axis != len(x.type.shape) - 1:
        return False
    first = x.op.positions[0]
    return x.op.positions == tuple(range(first, first + len(x.op.positions)))


def _outer_sum(x: Node, y: Node) -> Node:
    if is_constant(x, 0.0) or is_constant(y, 0.0):
        return constant(0.0, OuterSum().infer(x.type, y.type))
    return outer_sum(x, y)


def _terms(x: Node) -> list[Node]:
    """What a value is the sum of."""
    return [term for part in x.inputs for term in _terms(part)] if isinstance(x.op, Add) else [x]


def keeps_last_axis(x: Node) -> bool:
    """Whether a part of a value is made of the same part of its operand: of a node value at its
    edges, where that is made of others, and of sums over other axes."""
    op = x.op
    if op.origin is Origin.END:
        return bool(x.inputs[0].inputs)
    if op.reduces and op.origin is Origin.OPERANDS:
        return bool(op.axis != len(x.inputs[0].type.shape) - 1)
    source = x.inputs[0].type.shape if x.inputs else ()
    return is_folded(x) or bool(op.broadcasts and source[-1:] == x.type.shape[-1:])


def _combined(x: Node, parts: list[Node]) -> Node:
    """What `x` makes of its operands element by element, of parts of these: of zeros that stand
    beside what is placed, nothing is made."""
    zeros = [is_constant(part, 0.0) for part in parts]
    if isinstance(x.op, Add) and any(zeros):
        return parts[zeros.index(True) - 1]
    if isinstance(x.op, Mul) and any(zeros):
        return parts[zeros.index(True)]
    return x.op(*parts, where=x.where)


def _like(x: Node, part: Node, target: tuple[int, ...]) -> Node:
    """What `x` makes of its operand, of a part of that."""
    if x.op.origin is Origin.END:
        return gather(x.op.relation, x.op.side, part)
    if x.op.reshapes:
        return reshape(part, target)
    return broadcast(part, target) if x.op.broadcasts else x.op(part)


@dataclass(frozen=True)
class EdgeParts(Pass, name="gf-edge-parts"):
    """Compute edge values that are joined, or taken apart, part by part."""

    def __call__(self, form: Program) -> Program:
        multiplied = (n for n in form.order if is_contract(n) or is_outer_sum(n))
        if not any(is_of_edges(n.inputs[0]) for n in multiplied):
            return form
        return form.rewritten(Parts().rule)
