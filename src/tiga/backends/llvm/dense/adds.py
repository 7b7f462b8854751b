"""Values added up at positions that are values themselves: one compiled loop per dtype.

A task goes through positions in their order. Where the target is one row of rows, there are two
ways to have several tasks. If it is small, each adds a range of the values to a copy of its own and
the copies are added in their order: extents alone say how many there are. Otherwise each owns a
range of the rows and adds what falls into it, whatever the number of tasks. So sums have the same
bits for any number of threads.

A position that does not exist adds nothing, and is noted.
"""

import ctypes
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from torch_mlir import ir
from torch_mlir.dialects import arith, scf

from tiga.backends.llvm.dense import values as dv
from tiga.backends.llvm.dense.slots import wider
from tiga.backends.llvm.dense.values import Value
from tiga.backends.llvm.engine import Library, compile_module
from tiga.backends.llvm.lanes import constant_of, integer
from tiga.backends.llvm.launcher import launch
from tiga.backends.llvm.loops import for_each
from tiga.backends.llvm.memory import element_pointer, i64
from tiga.backends.llvm.task_function import task_function
from tiga.errors import InvalidIndex
from tiga.ir import llvm
from tiga.ir.kernel_context import kernel_context
from tiga.ir.module import new_module
from tiga.runtime import parallel
from tiga.runtime.addresses import address
from tiga.trace.node import Node
from tiga.types import DType

POINTERS = ("values", "index", "out", "fault")
EXTENTS = ("count", "extent", "inner", "parts", "stride")

COPIES = 8
"""Copies of a small target, each for a range of the values."""

COPY_BYTES = 2**18
"""Bytes of a target that is small: a core's own cache holds it beside what passes through."""

APART = 128
"""Copies start so many elements apart, or a multiple: no cache line has parts of two."""

COPIED_FROM = 16
"""How many times more values than elements of the target there are for copies to be worth it."""

MOST_PARTS = 16
"""Ranges of rows: each reads all positions, which costs more than it helps from here on."""

FEW_THREADS = 4
"""Fewer threads add short rows in one range."""

SERIAL_BELOW = 32768
"""Fewer values are added by one thread."""

LANES = 16
"""Neighbours that are added at once, in rows that have so many."""


@dataclass(frozen=True)
class Form:
    """What the code depends on: the values' type, whether positions are per element, how many
    neighbours are added at once, whether a row of the target is a `single` element, and whether
    tasks have ranges of rows of their own (`owned`), or copies of the target (`copied`)."""

    dtype: DType
    along: bool
    lanes: int
    single: bool
    owned: bool
    copied: bool

    @property
    def total(self) -> DType:
        """The type that adds: in copies of short rows a wider one, which takes no longer there."""
        wide = self.copied and self.lanes == 1
        return wider(self.dtype.compute) if wide else self.dtype.compute


class _Adds:
    def __init__(self, form: Form, table: ir.Value) -> None:
        self.form = form
        pointer = llvm.PointerType.get()
        self.table = {
            name: llvm.load(pointer if name in POINTERS else integer(64),
                            element_pointer(table, i64(slot), integer(64)))
            for slot, name in enumerate((*POINTERS, *EXTENTS))
        }  # fmt: skip

    def task(self, task: ir.Value) -> None:
        """Add everything that falls into one range of rows of one outer row, or one range of the
        values to a copy."""
        parts, extent, count = self.table["parts"], self.table["extent"], self.table["count"]
        outer, part = arith.divui(task, parts), arith.remui(task, parts)
        source = arith.muli(outer, count)
        if self.form.copied:
            first, last = self._range(part, count)
            self.start = arith.muli(part, self.table["stride"])
        else:
            first, last = i64(0), count
            self.low, self.high = self._range(part, extent)
            self.start = arith.muli(outer, arith.muli(extent, self.table["inner"]))

        def one(number: ir.Value) -> None:
            row = arith.addi(source, number)
            if self.form.along:
                self._along(row)
            else:
                self._row(row, self._position(number))

        for_each(first, last, 1, one)

    def _range(self, part: ir.Value, whole: ir.Value) -> tuple[ir.Value, ir.Value]:
        """Where a task's part of `whole` starts and ends."""
        parts = self.table["parts"]
        ends = (part, arith.addi(part, i64(1)))
        low, high = (arith.divui(arith.muli(end, whole), parts) for end in ends)
        return low, high

    def _position(self, element: ir.Value) -> ir.Value:
        """A position counted from the start of the axis."""
        place = element_pointer(self.table["index"], element, integer(64))
        given = llvm.load(integer(64), place)
        negative = arith.cmpi(arith.CmpIPredicate.slt, given, i64(0))
        return arith.select(negative, arith.addi(given, self.table["extent"]), given)

    def _where_owned(self, position: ir.Value, add: Callable[[], None]) -> None:
        """Add if the position is in the task's range; note one that does not exist."""
        owned = self._is_owned if self.form.owned else self._exists
        ours = scf.IfOp(owned(position), has_else=True)
        with ir.InsertionPoint(ours.then_block):
            add()
            scf.yield_([])
        with ir.InsertionPoint(ours.else_block):
            if self.form.owned:
                self._note_unless_it_exists(position)
            else:
                self._note()
            scf.yield_([])

    def _is_owned(self, position: ir.Value) -> ir.Value:
        above = arith.cmpi(arith.CmpIPredicate.sge, position, self.low)
        below = arith.cmpi(arith.CmpIPredicate.slt, position, self.high)
        return arith.andi(above, below)

    def _note_unless_it_exists(self, position: ir.Value) -> None:
        wrong = scf.IfOp(arith.xori(self._exists(position), constant_of(True, integer(1))))
        with ir.InsertionPoint(wrong.then_block):
            self._note()
            scf.yield_([])

    def _exists(self, position: ir.Value) -> ir.Value:
        return arith.cmpi(arith.CmpIPredicate.ult, position, self.table["extent"])

    def _note(self) -> None:
        llvm.store(i64(1), self.table["fault"])

    def _target(self, position: ir.Value) -> ir.Value:
        """The first element of a row of the target."""
        offset = position if self.form.single else arith.muli(position, self.table["inner"])
        return arith.addi(self.start, offset)

    def _row(self, row: ir.Value, position: ir.Value) -> None:
        def add() -> None:
            if self.form.single:
                self._add(row, self._target(position), 1, None)
            else:
                self._columns(arith.muli(row, self.table["inner"]), self._target(position))

        self._where_owned(position, add)

    def _columns(self, source: ir.Value, target: ir.Value) -> None:
        inner, lanes = self.table["inner"], self.form.lanes
        whole = arith.muli(arith.divui(inner, i64(lanes)), i64(lanes))

        def main(column: ir.Value) -> None:
            self._add(arith.addi(source, column), arith.addi(target, column), lanes, None)

        def rest(column: ir.Value) -> None:
            mask = dv.first_lanes(arith.subi(inner, column), lanes)
            self._add(arith.addi(source, column), arith.addi(target, column), lanes, mask)

        for_each(i64(0), whole, lanes, main)
        if lanes > 1:
            for_each(whole, inner, lanes, rest)

    def _along(self, row: ir.Value) -> None:
        start = arith.muli(row, self.table["inner"])

        def one(column: ir.Value) -> None:
            source = arith.addi(start, column)
            position = self._position(source)
            self._where_owned(
                position,
                lambda: self._add(source, arith.addi(self._target(position), column), 1, None),
            )

        for_each(i64(0), self.table["inner"], 1, one)

    def _add(
        self, source: ir.Value, target: ir.Value, lanes: int, mask: ir.Value | None
    ) -> None:  # fmt: skip
        dtype, total = self.form.dtype, self.form.total
        value = dv.load(self.table["values"], dtype, source, lanes, mask)
        value = dv.converted(value, dtype.compute, total)
        before: Value = dv.load(self.table["out"], total, target, lanes, mask)
        sums = dv.combine("add", total, before, value)
        dv.store(self.table["out"], total, sums, target, lanes, mask)


def build_adds(form: Form) -> ir.Module:
    """The module with the loop `void kernel(ptr table, i64 lo, i64 hi)`."""
    with new_module(kernel_context()) as module:
        task_function("kernel", lambda table: _Adds(form, table).task)
    return module


@lru_cache(maxsize=64)
def compile_adds(form: Form) -> tuple[Library, int]:
    """The loop's machine code and its address."""
    library = compile_module(build_adds(form))
    return library, library.address("kernel")


def form_of(node: Node, parts: int = 1, copied: bool = False) -> Form:
    """The code that an `index_add` or `add_along` needs."""
    along = node.op.per_line
    inner = math.prod(node.type.shape[node.op.axis + 1 :])
    wide = not along and inner >= LANES
    single = not along and inner == 1
    owned = parts > 1 and not copied
    dtype = node.inputs[0].type.dtype
    return Form(dtype, along, LANES if wide else 1, single, owned, copied)


def _parts(node: Node, threads: int) -> int:
    """The ranges of rows of the target. Few threads and short rows are better off with one: each
    range reads all positions, and which of them fall into it cannot be foreseen."""
    outer = math.prod(node.type.shape[: node.op.axis])
    inner = math.prod(node.type.shape[node.op.axis + 1 :])
    if outer >= threads or (inner < LANES and threads < FEW_THREADS):
        return 1
    return min(threads, MOST_PARTS, node.op.extent)


def _copied(node: Node) -> bool:
    """Whether the target is small enough for copies."""
    values, target = node.inputs[0].type.size, node.type.size
    outer = math.prod(node.type.shape[: node.op.axis])
    small = target * node.type.dtype.compute.itemsize <= COPY_BYTES
    return outer == 1 and small and values >= max(SERIAL_BELOW, COPIED_FROM * target)


def add_at(node: Node, values: np.ndarray, index: np.ndarray, relaxed: bool = True) -> np.ndarray:
    """The value of an `index_add` or `add_along`; not `relaxed`, it adds value after value.

    Raises:
        InvalidIndex: a position does not exist.
    """
    axis, shape, extent = node.op.axis, node.type.shape, node.op.extent
    outer, inner = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
    count = values.size // (outer * inner)
    threads = 1 if values.size < SERIAL_BELOW else parallel.thread_count()
    copied = relaxed and _copied(node)
    parts = COPIES if copied else _parts(node, threads)
    stride, form = -(-math.prod(shape) // APART) * APART, form_of(node, parts, copied)
    total = form.total
    out = np.zeros((COPIES, stride) if copied else shape, total.numpy)
    fault = np.zeros(1, np.int64)
    arrays = (np.ascontiguousarray(values), np.ascontiguousarray(index), out, fault)
    words = (*map(address, arrays), count, extent, inner, parts, stride)
    table = (ctypes.c_int64 * len(words))(*words)
    code = compile_adds(form)[1]
    launch(code, ctypes.addressof(table), outer * parts, threads, 1)
    if fault[0]:
        raise _no_position(node, index)
    with np.errstate(all="ignore"):
        if copied:
            joined = np.add.reduce(out, axis=0, dtype=total.numpy)
            out = joined[: math.prod(shape)].reshape(shape)
        return out if total == node.type.dtype else out.astype(node.type.dtype.numpy)


def _no_position(node: Node, index: np.ndarray) -> InvalidIndex:
    axis, extent = node.op.axis, node.op.extent
    low, high = int(index.min()), int(index.max())
    position = high if low >= -extent else low
    return InvalidIndex(
        f"{node.op.name}: position {position} is out of range for axis {axis} of extent "
        f"{extent} (built at {node.where})."
    )
