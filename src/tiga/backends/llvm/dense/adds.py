"""Values added up at positions that are values themselves: one compiled loop per dtype.

A task goes through all positions in their order. Where the target is one row of rows, several tasks
own a range of them each, and add what falls into it. So the order of sums is that of the positions
for any number of tasks.
"""

import ctypes
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from torch_mlir import ir
from torch_mlir.dialects import arith, func, llvm, scf

from tiga.backends.llvm.dense import values as dv
from tiga.backends.llvm.dense.values import Value
from tiga.backends.llvm.engine import Library, compile_module
from tiga.backends.llvm.lanes import integer
from tiga.backends.llvm.launcher import launch
from tiga.backends.llvm.loops import loop
from tiga.backends.llvm.memory import element_pointer, i64
from tiga.errors import InvalidIndex
from tiga.ir.kernel_context import kernel_context
from tiga.runtime import parallel
from tiga.runtime.addresses import address
from tiga.trace.node import Node
from tiga.types import DType

POINTERS = ("values", "index", "out")
EXTENTS = ("count", "extent", "inner", "parts")
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
    tasks have `owned` ranges."""

    dtype: DType
    along: bool
    lanes: int
    single: bool
    owned: bool


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
        """Add everything that falls into one range of rows of one outer row."""
        parts, extent = self.table["parts"], self.table["extent"]
        self.outer, part = arith.divui(task, parts), arith.remui(task, parts)
        self.low = arith.divui(arith.muli(part, extent), parts)
        self.high = arith.divui(arith.muli(arith.addi(part, i64(1)), extent), parts)
        source = arith.muli(self.outer, self.table["count"])

        def one(number: ir.Value, carried: Sequence[ir.Value]) -> Sequence[ir.Value]:
            row = arith.addi(source, number)
            if self.form.along:
                self._along(row)
            else:
                self._row(row, self._position(number))
            return carried

        loop(i64(0), self.table["count"], 1, [], one)

    def _position(self, element: ir.Value) -> ir.Value:
        """A position counted from the start of the axis."""
        place = element_pointer(self.table["index"], element, integer(64))
        given = llvm.load(integer(64), place)
        negative = arith.cmpi(arith.CmpIPredicate.slt, given, i64(0))
        return arith.select(negative, arith.addi(given, self.table["extent"]), given)

    def _where_owned(self, position: ir.Value, add: Callable[[], None]) -> None:
        """Add if the position is in the task's range."""
        if not self.form.owned:
            add()
            return
        above = arith.cmpi(arith.CmpIPredicate.sge, position, self.low)
        below = arith.cmpi(arith.CmpIPredicate.slt, position, self.high)
        branch = scf.IfOp(arith.andi(above, below))
        with ir.InsertionPoint(branch.then_block):
            add()
            scf.yield_([])

    def _target(self, position: ir.Value) -> ir.Value:
        """The first element of a row of the target."""
        row = arith.addi(arith.muli(self.outer, self.table["extent"]), position)
        return row if self.form.single else arith.muli(row, self.table["inner"])

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

        def main(column: ir.Value, carried: Sequence[ir.Value]) -> Sequence[ir.Value]:
            self._add(arith.addi(source, column), arith.addi(target, column), lanes, None)
            return carried

        def rest(column: ir.Value, carried: Sequence[ir.Value]) -> Sequence[ir.Value]:
            mask = dv.first_lanes(arith.subi(inner, column), lanes)
            self._add(arith.addi(source, column), arith.addi(target, column), lanes, mask)
            return carried

        loop(i64(0), whole, lanes, [], main)
        if lanes > 1:
            loop(whole, inner, lanes, [], rest)

    def _along(self, row: ir.Value) -> None:
        start = arith.muli(row, self.table["inner"])

        def one(column: ir.Value, carried: Sequence[ir.Value]) -> Sequence[ir.Value]:
            source = arith.addi(start, column)
            position = self._position(source)
            self._where_owned(
                position,
                lambda: self._add(source, arith.addi(self._target(position), column), 1, None),
            )
            return carried

        loop(i64(0), self.table["inner"], 1, [], one)

    def _add(
        self, source: ir.Value, target: ir.Value, lanes: int, mask: ir.Value | None
    ) -> None:  # fmt: skip
        dtype, total = self.form.dtype, self.form.dtype.compute
        value = dv.load(self.table["values"], dtype, source, lanes, mask)
        before: Value = dv.load(self.table["out"], total, target, lanes, mask)
        sums = dv.combine("add", total, before, value)
        dv.store(self.table["out"], total, sums, target, lanes, mask)


def build_adds(form: Form) -> ir.Module:
    """The module with the loop `void kernel(ptr table, i64 lo, i64 hi)`."""
    with kernel_context(), ir.Location.unknown():
        module = ir.Module.create()
        with ir.InsertionPoint(module.body):
            types = [llvm.PointerType.get(), integer(64), integer(64)]
            function = func.FuncOp("kernel", (types, []))
            with ir.InsertionPoint(function.add_entry_block()):
                table, low, high = function.arguments
                adds = _Adds(form, table)

                def task(number: ir.Value, carried: Sequence[ir.Value]) -> Sequence[ir.Value]:
                    adds.task(number)
                    return carried

                loop(low, high, 1, [], task)
                func.ReturnOp([])
    return module


@lru_cache(maxsize=64)
def compile_adds(form: Form) -> tuple[Library, int]:
    """The loop's machine code and its address."""
    library = compile_module(build_adds(form))
    return library, library.address("kernel")


def form_of(node: Node, parts: int = 1) -> Form:
    """The code that an `index_add` or `add_along` needs."""
    along = node.op.per_line
    inner = math.prod(node.type.shape[node.op.axis + 1 :])
    wide = not along and inner >= LANES
    single = not along and inner == 1
    return Form(node.inputs[0].type.dtype, along, LANES if wide else 1, single, parts > 1)


def _parts(node: Node, threads: int) -> int:
    """The ranges of rows of the target. Few threads and short rows are better off with one: each
    range reads all positions, and which of them fall into it cannot be foreseen."""
    outer = math.prod(node.type.shape[: node.op.axis])
    inner = math.prod(node.type.shape[node.op.axis + 1 :])
    if outer >= threads or (inner < LANES and threads < FEW_THREADS):
        return 1
    return min(threads, MOST_PARTS, node.op.extent)


def add_at(node: Node, values: np.ndarray, index: np.ndarray) -> np.ndarray:
    """The value of an `index_add` or `add_along`.

    Raises:
        InvalidIndex: a position does not exist; nothing is computed then.
    """
    axis, shape, extent = node.op.axis, node.type.shape, node.op.extent
    for position in (int(index.min()), int(index.max())):
        if not -extent <= position < extent:
            raise InvalidIndex(
                f"{node.op.name}: position {position} is out of range for axis {axis} of extent "
                f"{extent} (built at {node.where})."
            )
    outer, inner = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
    count, total = values.size // (outer * inner), node.type.dtype.compute
    out = np.zeros(shape, total.numpy)
    threads = 1 if values.size < SERIAL_BELOW else parallel.thread_count()
    parts = _parts(node, threads)
    arrays = (np.ascontiguousarray(values), np.ascontiguousarray(index), out)
    words = (*map(address, arrays), count, extent, inner, parts)
    table = (ctypes.c_int64 * len(words))(*words)
    code = compile_adds(form_of(node, parts))[1]
    launch(code, ctypes.addressof(table), outer * parts, threads, 1)
    with np.errstate(over="ignore"):
        return out if total == node.type.dtype else out.astype(node.type.dtype.numpy)
