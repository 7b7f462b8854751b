"""Ops that stay within an entity, on values in registers."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tiga.backends.triton.arithmetic import Term, TritonArithmetic, dtype_text, literal, typed
from tiga.backends.triton.bits import packed, unpacked
from tiga.backends.triton.block import Block
from tiga.backends.triton.equal_parts import by_parts, part_size
from tiga.backends.triton.layout import (
    BoxMap,
    box_map,
    keeps_places,
    pad_positions,
    pad_result,
    padded,
    row_major,
)
from tiga.backends.triton.writer import Value, Writer
from tiga.errors import Unfusable
from tiga.ops.arithmetic import lower_node, round_to
from tiga.ops.feature import Permute, moved_lanes
from tiga.ops.monoid import COMBINED_BY
from tiga.trace.node import Node
from tiga.types import DType, Shape

ARITHMETIC = TritonArithmetic()

MAX_ELEMENTS = 131072
"""More elements of one entity do not fit the threads of a program."""


def stored(term: Term, dtype: DType) -> Term:
    """A register value as memory holds it."""
    return ARITHMETIC.cast(term, dtype.compute, dtype)


@dataclass(frozen=True)
class MovedPart:
    """A piece of a moved value: its elements, and the condition under which they count, which
    depends on the position along some axes: None for any."""

    value: Value
    where: str | None
    limited: tuple[int, ...] | None = None

    def axes(self, rank: int) -> tuple[int, ...]:
        """The feature axes along which the elements or the condition differ."""
        if self.limited is None:
            return tuple(range(rank))
        return (*self.limited, *(a for a, n in enumerate(self.value.dims[2:]) if n > 1))


def is_repeated(lanes: np.ndarray, source: Shape) -> bool:
    """Whether elements of a value keep their places, but along axes on which it has one: there it
    is repeated. Elsewhere (-1) nothing is taken."""
    if lanes.ndim != len(source):
        return False
    moved = (n for n, m in zip(source, lanes.shape, strict=True) if n not in (1, m))
    if any(moved):
        return False
    own = np.broadcast_to(np.arange(int(np.prod(source))).reshape(source), lanes.shape)
    return bool((lanes == own)[lanes >= 0].all()) and box_map(lanes) is not None


def limited(lanes: np.ndarray) -> tuple[int, ...]:
    """The axes along which a box of elements does not fill the value."""
    box = box_map(lanes)
    assert box is not None
    bounds = zip(box.low, box.high, lanes.shape, strict=True)
    return tuple(axis for axis, (low, high, n) in enumerate(bounds) if (low, high) != (0, n))


def shares(node: Node) -> list[tuple[Node, np.ndarray]]:
    """For each operand of a movement, the elements that the result takes from it (-1: none)."""
    lanes, found, start = moved_lanes(node), [], 0
    for child in node.inputs:
        own = (lanes >= start) & (lanes < start + child.type.size)
        found.append((child, np.where(own, lanes - start, -1)))
        start += child.type.size
    return found


def _joint(values: Sequence[Value]) -> tuple[int, ...]:
    return tuple(max(extents) for extents in zip(*(v.dims for v in values), strict=True))


@dataclass(frozen=True)
class Evaluator:
    """Evaluates ops into a block. `ordered` holds the feature sums whose order must be the same in
    every kernel, because their result is compared with one from another walk."""

    writer: Writer
    ordered: frozenset[Node] = frozenset()

    def constant(self, node: Node) -> Value:
        term = literal(node.op.value, node.type.dtype.compute)
        return Value(term, (1, 1, *(1,) * len(self.writer.tile.features(node.type))))

    def op(self, block: Block, node: Node, args: Sequence[Value]) -> Value:
        """Any op that stays within an entity."""
        if node.op.pointwise:
            value = Value(lower_node(ARITHMETIC, node, [a.term for a in args]), _joint(args))
        elif node.op.reduces:
            value = self._reduce_axis(block, node, args[0])
        elif node.op.packs:
            value = packed(self.writer, args[0], node.inputs[0].type.size)
        elif node.op.unpacks:
            value = unpacked(self.writer, args[0], node.type.size)
        else:
            assert node.op.moves, f"{node!r} does not stay within an entity"
            value = self._move(block, node, args)
        return self.named(block, node, value)

    def named(self, block: Block, node: Node, value: Value) -> Value:
        if value.text.isidentifier() or value.term.number is not None:
            return value
        return self.writer.named(block, node.op.name, value)

    # reductions over a feature axis

    def _reduce_axis(self, block: Block, node: Node, value: Value) -> Value:
        (child,) = node.inputs
        if self.writer.tile.is_flat:
            # Only an axis of extent 1 occurs here, and that folds away.
            raise AssertionError(f"{node!r} in a kernel of windows")
        axis, shape = node.op.axis, self.writer.tile.features(child.type)
        extent = padded(shape[axis])
        dims = (*value.dims[: axis + 2], extent, *value.dims[axis + 3 :])
        value = self.writer.full(value, dims)
        if extent != shape[axis]:
            value = self._fill_padding(node, value, axis, len(shape), shape[axis])
        result = (*dims[: axis + 2], *dims[axis + 3 :])
        if node in self.ordered and node.op.combine == "add":
            text = self._halve(block, value, axis + 2)
        else:
            text = _reduced(node.op.combine, value, axis + 2)
        if node.op.combine == "add" and value.dtype.is_float:
            text = f"({text} + 0.0)"  # a sum of -0 alone is 0
        return Value(round_to(ARITHMETIC, Term(text, value.dtype), node.type.dtype), result)

    def _fill_padding(self, node: Node, value: Value, axis: int, rank: int, n: int) -> Value:
        fill = COMBINED_BY[node.op.combine].identity(value.dtype)
        position = self.writer.axis(axis, rank, value.dims[axis + 2])
        inside = Term(f"({position} < {n})", value.dtype)
        return replace(
            value, term=ARITHMETIC.select(inside, value.term, literal(fill, value.dtype))
        )

    def _halve(self, block: Block, value: Value, axis: int) -> str:
        """The sum of neighbours, then of neighbouring sums, and so on: the same in any layout."""
        order = [*(i for i in range(len(value.dims)) if i != axis), axis]
        dims = [value.dims[i] for i in order]
        moved = Term(f"tl.permute({typed(value.term).text}, {order})", value.dtype)
        text = self.writer.named(block, "tree", Value(moved, tuple(dims))).text
        while dims[-1] > 1:
            dims = [*dims[:-1], dims[-1] // 2]
            low, high = self.writer.names.fresh("low"), self.writer.names.fresh("high")
            block.add(f"{low}, {high} = tl.split(tl.reshape({text}, {[*dims, 2]}))")
            text = self.writer.names.fresh("tree")
            block.add(f"{text} = {low} + {high}")
        return f"tl.reshape({text}, {dims[:-1]})"

    # movements

    def _move(self, block: Block, node: Node, args: Sequence[Value]) -> Value:
        if self.writer.tile.is_flat:
            # A flat kernel holds elements in row-major order, and spreads size 1 where it is read.
            return args[0]
        direct = self.renamed(node, args[0]) if node.op.arity is not None else None
        if direct is not None:
            return direct
        if part_size(node):
            return by_parts(self.writer, block, node, args)
        parts = [
            self.pick(block, child, value, own)
            for (child, own), value in zip(shares(node), args, strict=True)
        ]
        return self.join(parts, node.type.dtype.compute, node.type.shape)

    def renamed(self, node: Node, value: Value) -> Value | None:
        """Movements that only rename, insert, drop or exchange axes."""
        tile = self.writer.tile
        source, target = tile.features(node.inputs[0].type), tile.features(node.type)
        lead, features = value.dims[:2], value.dims[2:]
        if isinstance(node.op, Permute):
            dims = (*lead, *(features[a] for a in node.op.axes))
            order = [0, 1, *(a + 2 for a in node.op.axes)]
            return Value(Term(f"tl.permute({typed(value.term).text}, {order})", value.dtype), dims)
        if value.term.number is not None and node.op.is_view:
            return Value(value.term, (*lead, *(1,) * len(target)))
        if node.op.broadcasts:
            dims = (*lead, *(1,) * (len(target) - len(source)), *features)
            return self._reshaped(value, dims)
        if not node.op.reshapes:
            return None
        kept = [f for f, n in zip(features, source, strict=True) if n != 1]
        if [n for n in source if n != 1] == [n for n in target if n != 1]:
            left = iter(kept)
            return self._reshaped(value, (*lead, *(1 if n == 1 else next(left) for n in target)))
        if not keeps_places(source, target):
            return None
        whole = self.writer.full(value, (*lead, *map(padded, source)))
        return self._reshaped(whole, (*lead, *map(padded, target)))

    def _reshaped(self, value: Value, dims: tuple[int, ...]) -> Value:
        if dims == value.dims:
            return value
        inserted = _insertions(value.dims, dims)
        if inserted is not None:
            # Indexing keeps elements in the registers where they are; a reshape may not.
            return Value(Term(f"{typed(value.term).text}[{inserted}]", value.dtype), dims)
        text = f"tl.reshape({typed(value.term).text}, {list(dims)})"
        return Value(Term(text, value.dtype), dims)

    def pick(self, block: Block, child: Node, value: Value, lanes: np.ndarray) -> MovedPart:
        """Elements of a value in registers, and where there are any."""
        lead = value.dims[:2]
        source = tuple(map(padded, child.type.shape))
        target = tuple(map(padded, lanes.shape))
        if value.term.number is not None:
            return MovedPart(self.writer.full(value, (*lead, *target)), self.inside(lanes))
        if is_repeated(lanes, child.type.shape):
            return MovedPart(value, self.inside(lanes), limited(lanes))
        flat = int(np.prod(source))
        whole = self.writer.full(value, (*lead, *source)).text
        if len(source) != 1:
            whole = f"tl.reshape({whole}, {[*lead, flat]})"
        places = pad_positions(lanes, child.type.shape)
        index = self.index(places, flat)
        count = int(np.prod(target))
        index = f"tl.broadcast_to({index}, {[1, 1, *target]})"
        index = f"tl.broadcast_to(tl.reshape({index}, {[1, 1, count]}), {[*lead, count]})"
        picked = f"tl.gather({whole}, {index}, 2)"
        if len(target) != 1:
            picked = f"tl.reshape({picked}, {[*lead, *target]})"
        name = self.writer.names.fresh(f"{child.op.name}_moved")
        block.add(f"{name} = {picked}")
        return MovedPart(Value(Term(name, value.dtype), (*lead, *target)), self.inside(lanes))

    def index(self, places: np.ndarray, extent: int) -> str:
        """For each element of the padded result, a source position below `extent`."""
        box = box_map(places)
        shape, target = places.shape, tuple(map(padded, places.shape))
        if box is not None:
            text = self._box_index(box, shape, target)
            text = f"tl.minimum(tl.maximum({text}, 0), {extent - 1})"
        else:
            start = self.writer.table(np.maximum(pad_result(places), 0))
            tables = self.writer.parameter("tables", "tables", "*i32")
            offset = self.writer.dot(shape, target, row_major(target)) or "0"
            text = f"tl.load({tables} + {start} + {offset})"
        return self.writer.once(("index", places.tobytes(), shape, extent), "source", text)

    def _box_index(self, box: BoxMap, shape: Shape, target: tuple[int, ...]) -> str:
        offset = self.writer.dot(shape, target, box.strides)
        zero = f"tl.full({[1] * (len(shape) + 2)}, {box.base}, tl.int32)"
        return f"{zero} + {offset}" if offset else zero

    def inside(self, lanes: np.ndarray) -> str | None:
        """The condition under which an element of the padded result takes something from here;
        None where all that exist do."""
        if (lanes >= 0).all():
            return None
        box = box_map(lanes)
        rank, target = lanes.ndim, tuple(map(padded, lanes.shape))
        if box is None:
            start = self.writer.table((pad_result(lanes) >= 0).astype(np.int32))
            tables = self.writer.parameter("tables", "tables", "*i32")
            offset = self.writer.dot(lanes.shape, target, row_major(target)) or "0"
            text = f"tl.load({tables} + {start} + {offset}) != 0"
            return self.writer.once(("taken", lanes.tobytes(), lanes.shape), "taken", text)
        conditions = []
        for axis, (low, high) in enumerate(zip(box.low, box.high, strict=True)):
            position = self.writer.axis(axis, rank, target[axis])
            conditions += [f"({position} >= {low})"] if low > 0 else []
            conditions += [f"({position} < {high})"] if high < lanes.shape[axis] else []
        return " & ".join(conditions)

    def join(self, parts: Sequence[MovedPart], dtype: DType, shape: Shape) -> Value:
        """Parts that fill disjoint positions of one value, and zero elsewhere."""
        zero = typed(literal(0, dtype)).text
        text = zero
        for part in reversed(parts):
            where = part.where
            text = (
                part.value.text
                if where is None
                else f"tl.where({where}, {part.value.text}, {text})"
            )
        lead = (max(part.value.dims[i] for part in parts) for i in (0, 1))
        varying = {axis for part in parts for axis in part.axes(len(shape))}
        features = (padded(n) if axis in varying else 1 for axis, n in enumerate(shape))
        return Value(Term(text, dtype), (*lead, *features))


def _insertions(source: tuple[int, ...], target: tuple[int, ...]) -> str | None:
    """The index that inserts axes of extent 1 to get from `source` to `target`, if one does."""
    index: list[str] = []
    left = list(source)
    for extent in target:
        if left and left[0] == extent and (extent != 1 or len(left) + len(index) >= len(target)):
            index.append(":")
            left.pop(0)
        elif extent == 1:
            index.append("None")
        else:
            return None
    return None if left else ", ".join(index)


def _reduced(combine: str, value: Value, axis: int) -> str:
    text = typed(value.term).text
    if combine == "add":
        total = f"tl.sum({text}, {axis})"
        narrow = not value.dtype.is_float and value.dtype.itemsize < 4
        return f"{total}.to({dtype_text(value.dtype)})" if narrow else total
    total = f"tl.reduce({text}, {axis}, {reducing(combine, value.dtype)})"
    return total if value.dtype.is_float else f"{total}.to({dtype_text(value.dtype)})"


def reducing(combine: str, dtype: DType) -> str:
    """The function of kernels that reduces by a pointwise op."""
    if combine == "mul":
        return "multiply"
    return combine if dtype.is_float else f"int_{combine}"


def check_size(elements: int, what: str, most: int = MAX_ELEMENTS) -> None:
    """Refuse a value that no program can hold."""
    if elements > most:
        raise Unfusable(
            f"{what} has {elements} elements per entity that mix features; a GPU program holds at "
            f"most {most}"
        )
