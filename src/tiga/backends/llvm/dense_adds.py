"""Values added up at positions that are values themselves: one compiled loop per dtype.

A task owns a range of the target's rows, goes through all positions in their order, and adds what
falls into its range. So the order of sums is that of the positions for any number of tasks.
"""

import ctypes
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from torch_mlir import ir
from torch_mlir.dialects import arith, func, llvm, scf

from tiga.backends.llvm import dense_values as dv
from tiga.backends.llvm.dense_values import Value
from tiga.backends.llvm.engine import Library, compile_module
from tiga.backends.llvm.lanes import integer
from tiga.backends.llvm.launcher import launch
from tiga.backends.llvm.loops import loop
from tiga.backends.llvm.memory import element_pointer, i64
from tiga.errors import InvalidIndex
from tiga.runtime import parallel
from tiga.runtime.addresses import address
from tiga.trace.node import Node
from tiga.types import DType

POINTERS = ("values", "index", "out", "fault")
EXTENTS = ("count", "extent", "inner", "parts")
MOST_PARTS = 16
"""Ranges of rows: each reads all positions, which costs more than it helps from here on."""

SERIAL_BELOW = 32768
LANES = 16


@dataclass(frozen=True)
class Form:
    """What the code depends on: the values' type, whether positions are per element, and how many
    neighbours are added at once."""

    dtype: DType
    along: bool
    lanes: int


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
        """A position counted from the start; one that does not exist is noted."""
        place = element_pointer(self.table["index"], element, integer(64))
        given, extent = llvm.load(integer(64), place), self.table["extent"]
        negative = arith.cmpi(arith.CmpIPredicate.slt, given, i64(0))
        position = arith.select(negative, arith.addi(given, extent), given)
        missing = arith.cmpi(arith.CmpIPredicate.uge, position, extent)
        branch = scf.IfOp(missing)
        with ir.InsertionPoint(branch.then_block):
            for slot, value in enumerate((i64(1), given)):
                llvm.store(value, element_pointer(self.table["fault"], i64(slot), integer(64)))
            scf.yield_([])
        return position

    def _owned(self, position: ir.Value) -> scf.IfOp:
        above = arith.cmpi(arith.CmpIPredicate.sge, position, self.low)
        return scf.IfOp(arith.andi(above, arith.cmpi(arith.CmpIPredicate.slt, position, self.high)))

    def _target(self, position: ir.Value) -> ir.Value:
        """The first element of a row of the target."""
        row = arith.addi(arith.muli(self.outer, self.table["extent"]), position)
        return arith.muli(row, self.table["inner"])

    def _row(self, row: ir.Value, position: ir.Value) -> None:
        branch = self._owned(position)
        with ir.InsertionPoint(branch.then_block):
            source, target = arith.muli(row, self.table["inner"]), self._target(position)
            self._columns(source, target)
            scf.yield_([])

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
            branch = self._owned(position)
            with ir.InsertionPoint(branch.then_block):
                self._add(source, arith.addi(self._target(position), column), 1, None)
                scf.yield_([])
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


@lru_cache(maxsize=64)
def compile_adds(form: Form) -> tuple[Library, int]:
    """The loop's machine code and its address."""
    with ir.Context(), ir.Location.unknown():
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
        library = compile_module(module)
    return library, library.address("kernel")


def form_of(node: Node) -> Form:
    """The code that an `index_add` or `add_along` needs."""
    along = node.op.name == "add_along"
    inner = math.prod(node.type.shape[node.op.axis + 1 :])
    wide = not along and inner >= LANES
    return Form(node.inputs[0].type.dtype, along, LANES if wide else 1)


def add_at(node: Node, values: np.ndarray, index: np.ndarray) -> np.ndarray:
    """The value of an `index_add` or `add_along`.

    Raises:
        InvalidIndex: a position does not exist.
    """
    axis, shape = node.op.axis, node.type.shape
    outer, inner = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
    form, total = form_of(node), node.type.dtype.compute
    count = values.size // max(1, outer * inner)
    out, fault = np.zeros(shape, total.numpy), np.zeros(2, np.int64)
    arrays = (np.ascontiguousarray(values), np.ascontiguousarray(index), out, fault)
    threads = 1 if values.size < SERIAL_BELOW else parallel.thread_count()
    parts = 1 if outer >= threads else min(threads, MOST_PARTS, max(1, node.op.extent))
    words = (*map(address, arrays), count, node.op.extent, inner, parts)
    table = (ctypes.c_int64 * len(words))(*words)
    launch(compile_adds(form)[1], ctypes.addressof(table), outer * parts, threads, 1)
    if fault[0]:
        raise InvalidIndex(
            f"{node.op.name}: position {fault[1]} is out of range for axis {axis} of extent "
            f"{node.op.extent} (built at {node.where})."
        )
    return out if total == node.type.dtype else out.astype(node.type.dtype.numpy)
