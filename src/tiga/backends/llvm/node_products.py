"""Products of node values with a small matrix, and their outer sums, by kernels of our own.

A BLAS would start a second thread pool beside the process's own, and promises the same bits for
every thread count only at a price; for small matrices, which stay in cache, a vector times a
matrix per row runs at its speed.
"""

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from torch_mlir import ir
from torch_mlir.dialects import arith, func, llvm

from tiga.backends.llvm.engine import Library, compile_module
from tiga.backends.llvm.lanes import integer
from tiga.backends.llvm.launcher import launch
from tiga.backends.llvm.layout import round_to
from tiga.backends.llvm.loops import loop
from tiga.backends.llvm.memory import Array, element_pointer, i64
from tiga.backends.llvm.products import (
    OuterAccumulator,
    add_pieces,
    multiply_vector,
    scratch_array,
)
from tiga.trace.node import Node

LARGEST = 16384
"""Elements of the matrix: 64 KiB of float32, within reach of the first caches."""

ROWS_PER_TASK = 256
MAX_TASKS = 512

SLOTS = ("left", "right", "out", "pieces", "rows", "rows_per_task", "tasks")


def is_small(node: Node) -> bool:
    """Whether a product is done by our own kernels."""
    if node.op.name not in ("contract", "outer_sum"):
        return False
    rows, columns = node.inputs[1].type.shape if node.op.name == "contract" else node.type.shape
    return rows * columns <= LARGEST


@dataclass
class _Frame:
    """The slots of a kernel under construction."""

    table: ir.Value

    def _load(self, name: str, type_: ir.Type) -> ir.Value:
        with ir.InsertionPoint.at_block_begin(self.table.owner):
            address = element_pointer(self.table, i64(SLOTS.index(name)), integer(64))
            return llvm.load(type_, address)

    def number(self, name: str) -> ir.Value:
        return self._load(name, integer(64))

    def array(self, name: str, node: Node, row: int, dtype: Any = None) -> Array:
        return Array(self._load(name, llvm.PointerType.get()), dtype or node.type.dtype, row)

    def allocate(self, element: ir.Type, count: int) -> ir.Value:
        with ir.InsertionPoint.at_block_begin(self.table.owner):
            return llvm.alloca(llvm.PointerType.get(), i64(count), element, alignment=64)

    def rows_of(self, task: ir.Value) -> tuple[ir.Value, ir.Value]:
        size = self.number("rows_per_task")
        first = arith.muli(task, size)
        return first, arith.minsi(arith.addi(first, size), self.number("rows"))


@dataclass
class ProductStep:
    """One `contract` or `outer_sum` of node values."""

    node: Node

    @cached_property
    def library(self) -> Library:
        return compile_module(self.module())

    def module(self) -> ir.Module:
        """The kernels as a module of upstream dialects."""
        with ir.Context(), ir.Location.unknown():
            module = ir.Module.create()
            with ir.InsertionPoint(module.body):
                if self.node.op.name == "contract":
                    _function("rows", self._contract)
                else:
                    _function("rows", self._outer_sum)
                    _function("totals", self._totals)
        return module

    def _contract(self, frame: _Frame, task: ir.Value) -> None:
        node, (x, matrix) = self.node, self.node.inputs
        inner, outer = matrix.type.shape
        left, out = frame.array("left", x, inner), frame.array("out", node, outer)
        right = frame.array("right", matrix, inner * outer)
        scratch = scratch_array(frame.allocate, node.type.dtype, inner, inner)

        def row(entity: ir.Value, carried: Any) -> Any:
            value = multiply_vector(
                left.load(left.start(entity), inner), right, scratch, inner, outer
            )
            out.store(round_to(value, node.type.dtype), out.start(entity))
            return carried

        loop(*frame.rows_of(task), 1, [], row)

    def _pieces(self, frame: _Frame) -> Array:
        size = self.node.type.size
        return frame.array("pieces", self.node, size, self.node.type.dtype.compute)

    def _outer_sum(self, frame: _Frame, task: ir.Value) -> None:
        inner, outer = self.node.type.shape
        x, y = self.node.inputs
        left, right = frame.array("left", x, inner), frame.array("right", y, outer)
        total = OuterAccumulator.make(self.node, self._pieces(frame), task, frame.allocate)
        total.begin()

        def row(entity: ir.Value, carried: Any) -> Any:
            pair = (left.load(left.start(entity), inner), right.load(right.start(entity), outer))
            total.add(*pair, 1)
            return carried

        loop(*frame.rows_of(task), 1, [], row)
        total.end()

    def _totals(self, frame: _Frame, task: ir.Value) -> None:
        out = frame.array("out", self.node, self.node.type.size)
        add_pieces(self._pieces(frame), frame.number("tasks"), out)

    def run(
        self, left: int, right: int, out: int, rows: int, threads: int,
        allocate: Callable[[int], int],
    ) -> None:  # fmt: skip
        """Compute the product from the addresses of its operands.

        `rows` counts vectors: entities times leading axes.
        """
        size = max(ROWS_PER_TASK, -(-rows // MAX_TASKS))
        tasks = -(-rows // size)
        sums = self.node.op.name == "outer_sum"
        itemsize = self.node.type.dtype.compute.itemsize
        pieces = allocate(tasks * self.node.type.size * itemsize) if sums else 0
        table = (ctypes.c_int64 * len(SLOTS))(left, right, out, pieces, rows, size, tasks)
        pointer = ctypes.addressof(table)
        launch(self.library.address("rows"), pointer, tasks, threads)
        if sums:
            launch(self.library.address("totals"), pointer, 1, 1)


def _function(name: str, body: Callable[[_Frame, ir.Value], None]) -> None:
    """`void name(ptr table, i64 lo, i64 hi)`, which runs `body` for each task."""
    types = [llvm.PointerType.get(), integer(64), integer(64)]
    function = func.FuncOp(name, (types, []))
    with ir.InsertionPoint(function.add_entry_block()):
        table, low, high = function.arguments

        def task(position: ir.Value, carried: Any) -> Any:
            body(_Frame(table), position)
            return carried

        loop(low, high, 1, [], task)
        func.ReturnOp([])
