"""How an entity's elements lie in registers: features across lanes, or edges across lanes.

Both layouts evaluate the same ops with the same order of every operation, so that a value has the
same bits in either.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Protocol

import numpy as np
from torch_mlir import ir
from torch_mlir.dialects import arith, vector

from tiga.backends.llvm.arithmetic import VectorArithmetic
from tiga.backends.llvm.lanes import constant_of, integer, with_element
from tiga.backends.llvm.memory import lanes_type, register_element, splat
from tiga.ops.arithmetic import lower_node, round_to
from tiga.ops.bits import WORD, words
from tiga.ops.feature import moved_lanes
from tiga.trace.node import Node
from tiga.trace.origin import Origin
from tiga.types import Shape, Type

ARITHMETIC = VectorArithmetic()
Combine = Callable[[Any, Any], Any]


class Layout(Protocol):
    """Evaluates the ops that stay within an entity."""

    def constant(self, node: Node) -> Any: ...

    def pointwise(self, node: Node, args: Sequence[Any]) -> Any: ...

    def move(self, type_: Type, lanes: np.ndarray, sources: Sequence[Any]) -> Any: ...

    def reduce_axis(self, value: Any, shape: Shape, axis: int, combine: Combine) -> Any: ...

    def pack(self, value: Any) -> Any: ...

    def unpack(self, value: Any, size: int) -> Any: ...


@dataclass(frozen=True)
class FeatureLanes:
    """One entity: its elements, in row-major order, are the lanes of one vector.

    `block` narrows values of `whole` elements to a window of that many lanes; the programs that
    are run so are the same on every window (see schedule).
    """

    whole: int = 0
    block: int = 0

    def width(self, type_: Type) -> int:
        """The lanes of a value of this type."""
        return self.block if self.block and type_.size == self.whole else type_.size

    def constant(self, node: Node) -> ir.Value:
        element = register_element(node.type.dtype)
        return constant_of(node.op.value, lanes_type(element, self.width(node.type)))

    def pointwise(self, node: Node, args: Sequence[ir.Value]) -> ir.Value:
        return lower_node(ARITHMETIC, node, args)

    def move(self, type_: Type, lanes: np.ndarray, sources: Sequence[ir.Value]) -> ir.Value:
        if self.block:
            return self._move_window(type_, sources[0])
        return select_lanes(join(sources), lanes.ravel())

    def _move_window(self, type_: Type, source: ir.Value) -> ir.Value:
        wanted = self.width(type_)
        if wanted > 1 and not isinstance(source.type, ir.VectorType):
            return splat(source, wanted)
        return source

    def reduce_axis(self, value: ir.Value, shape: Shape, axis: int, combine: Combine) -> ir.Value:
        grid: np.ndarray = np.arange(int(np.prod(shape))).reshape(shape)
        grid = np.moveaxis(grid, axis, 0)
        while len(grid) > 1:
            half, count = len(grid) // 2, len(grid)
            low, high = grid[:half], grid[half : 2 * half]
            combined = combine(select_lanes(value, low.ravel()), select_lanes(value, high.ravel()))
            rest = grid[2 * half :]
            size = low.size
            if rest.size:
                combined = join([combined, select_lanes(value, rest.ravel())])
            value = combined
            grid = np.arange(size + rest.size).reshape(count - half, *grid.shape[1:])
        return value

    def pack(self, value: ir.Value) -> ir.Value:
        """Lanes of i1 as bits of words."""
        size = _as_vector(value).type.shape[0]
        count = words(size)
        lanes = np.arange(count * WORD)
        whole = _as_vector(select_lanes(value, np.where(lanes < size, lanes, -1)))
        packed = vector.bitcast(ir.VectorType.get([count], integer(WORD)), whole)
        return packed if count > 1 else vector.extract(packed, [], [0])

    def unpack(self, value: ir.Value, size: int) -> ir.Value:
        """The first bits of words as lanes of i1."""
        type_ = ir.VectorType.get([words(size) * WORD], integer(1))
        return select_lanes(vector.bitcast(type_, _as_vector(value)), np.arange(size))


@dataclass(frozen=True)
class EdgeLanes:
    """A run of edges: each element of a value is a vector with one lane per edge."""

    count: int

    def spread(self, value: ir.Value) -> tuple[ir.Value, ...]:
        """A value of one entity, the same for every edge."""
        if not isinstance(value.type, ir.VectorType):
            return (splat(value, self.count),)
        size = value.type.shape[0]
        return tuple(splat(vector.extract(value, [], [i]), self.count) for i in range(size))

    def split(self, run: ir.Value) -> tuple[ir.Value, ...]:
        """The elements of consecutive entities, from one run of memory."""
        lanes = np.arange(run.type.shape[0]).reshape(self.count, -1)
        return tuple(select_lanes(run, column) for column in lanes.T)

    def unsplit(self, value: tuple[ir.Value, ...]) -> ir.Value:
        """The run of memory of consecutive entities."""
        lanes = np.arange(self.count * len(value)).reshape(len(value), self.count)
        return select_lanes(join(value), lanes.T.ravel())

    def constant(self, node: Node) -> tuple[ir.Value, ...]:
        element = register_element(node.type.dtype)
        one = constant_of(node.op.value, lanes_type(element, self.count))
        return (one,) * node.type.size

    def pointwise(self, node: Node, args: Sequence[tuple[ir.Value, ...]]) -> tuple[ir.Value, ...]:
        return tuple(lower_node(ARITHMETIC, node, element) for element in zip(*args, strict=True))

    def move(
        self, type_: Type, lanes: np.ndarray, sources: Sequence[tuple[ir.Value, ...]]
    ) -> tuple[ir.Value, ...]:
        elements = [e for source in sources for e in source]
        zero = constant_of(0, elements[0].type)
        return tuple(elements[i] if i >= 0 else zero for i in lanes.ravel())

    def reduce_axis(
        self, value: tuple[ir.Value, ...], shape: Shape, axis: int, combine: Combine
    ) -> tuple[ir.Value, ...]:
        grid = np.arange(len(value)).reshape(shape)
        columns = np.moveaxis(grid, axis, -1).reshape(-1, shape[axis])
        return tuple(halve([value[i] for i in column], combine) for column in columns)

    def pack(self, value: tuple[ir.Value, ...]) -> tuple[ir.Value, ...]:
        """Values of i1 as bits of words."""
        type_ = with_element(value[0].type, integer(WORD))
        bits = [
            arith.shli(arith.extui(type_, bit), constant_of(i % WORD, type_))
            for i, bit in enumerate(value)
        ]
        return tuple(reduce(arith.ori, bits[i : i + WORD]) for i in range(0, len(bits), WORD))

    def unpack(self, value: tuple[ir.Value, ...], size: int) -> tuple[ir.Value, ...]:
        """The first bits of words as values of i1."""
        word, bit = value[0].type, with_element(value[0].type, integer(1))
        return tuple(
            arith.trunci(bit, arith.shrui(value[i // WORD], constant_of(i % WORD, word)))
            for i in range(size)
        )


def halve(items: list[Any], combine: Combine) -> Any:
    """Combine by halves: item i with item i + n // 2, an odd last one carried along."""
    while len(items) > 1:
        half = len(items) // 2
        pairs = zip(items[:half], items[half : 2 * half], strict=True)
        items = [combine(a, b) for a, b in pairs] + items[2 * half :]
    return items[0]


def _as_vector(value: ir.Value) -> ir.Value:
    return value if isinstance(value.type, ir.VectorType) else splat(value, 1)


def join(values: Sequence[ir.Value]) -> ir.Value:
    """The lanes of all values after one another."""
    joined = values[0]
    for value in values[1:]:
        a, b = _as_vector(joined), _as_vector(value)
        joined = vector.shuffle(a, b, list(range(a.type.shape[0] + b.type.shape[0])))
    return joined


def select_lanes(value: ir.Value, lanes: np.ndarray) -> ir.Value:
    """The given lanes of a value, zero for -1; one lane gives a scalar."""
    wanted = [int(i) for i in lanes]
    if len(wanted) == 1 and wanted[0] >= 0:
        is_vector = isinstance(value.type, ir.VectorType)
        return vector.extract(value, [], [wanted[0]]) if is_vector else value
    if all(i == 0 for i in wanted) and not isinstance(value.type, ir.VectorType):
        return splat(value, len(wanted))
    source = _as_vector(value)
    count = source.type.shape[0]
    if wanted == list(range(count)):
        return source
    # Of two values of one type, as a shuffle is one instruction then, and else one for each lane.
    other = constant_of(0, source.type) if -1 in wanted else source
    picked = vector.shuffle(source, other, [i if i >= 0 else count for i in wanted])
    return picked if len(wanted) > 1 else vector.extract(picked, [], [0])


def evaluate_op(layout: Layout, node: Node, args: Sequence[Any]) -> Any:
    """Any op that stays within an entity, in a layout."""
    op = node.op
    if op.origin is Origin.NUMBER:
        return layout.constant(node)
    if op.pointwise:
        return layout.pointwise(node, args)
    if op.reduces:
        (child,) = node.inputs
        step = _rounded(getattr(ARITHMETIC, op.combine), node)
        total = layout.reduce_axis(args[0], child.type.shape, op.axis, step)
        return _from_zero(total) if op.combine == "add" else total
    if op.packs:
        return layout.pack(args[0])
    if op.unpacks:
        return layout.unpack(args[0], node.type.size)
    assert op.moves, f"{op} does not stay within an entity"
    return layout.move(node.type, moved_lanes(node), args)


def _from_zero(total: Any) -> Any:
    """A sum with 0 added: one of -0 alone is 0."""
    if isinstance(total, tuple):
        return tuple(map(_from_zero, total))
    return ARITHMETIC.add(total, ARITHMETIC.constant(0, total))


def _rounded(combine: Combine, node: Node) -> Combine:
    """`combine`, rounded after each step where values are 16-bit floats and it is not exact."""
    dtype = node.type.dtype
    if dtype == dtype.compute or node.op.selects:
        return combine
    return lambda a, b: round_to(ARITHMETIC, combine(a, b), dtype)
