"""Products of node values with a matrix, and their outer sums, by kernels of our own.

A BLAS would start a second thread pool beside the process's own, and promises the same bits for
every thread count only at a price. The matrices here are layers' weights: blocks of them stay in
cache, and a simple register-blocked loop comes close to the machine's rate.
"""

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

from torch_mlir import ir
from torch_mlir.dialects import arith

from tiga.backends.llvm.engine import Library, shared_library
from tiga.backends.llvm.frame import Frame
from tiga.backends.llvm.lanes import constant_of
from tiga.backends.llvm.launcher import Launch, launch
from tiga.backends.llvm.layout import ARITHMETIC
from tiga.backends.llvm.loops import for_each, loop
from tiga.backends.llvm.memory import Array, i64, lanes_type, register_element, splat
from tiga.backends.llvm.products import (
    FEW_COLUMNS,
    OuterAccumulator,
    add_pieces,
    column_blocks,
    few_columns,
)
from tiga.backends.llvm.task_function import task_function
from tiga.ir.kernel_context import kernel_context
from tiga.ir.module import new_module
from tiga.ops.arithmetic import round_to
from tiga.trace.node import Node
from tiga.trace.origin import Origin
from tiga.types import DType

LARGEST = 1 << 20
"""Elements of the matrix. Beyond 1024 x 1024 a library's packing pays."""

ROW_BLOCK = 4
"""Rows of x at a time: with four vectors of columns, 16 independent sums in registers."""

ROWS_PER_TASK = 256
MAX_TASKS = 512
PIECES_BYTES = 1 << 24
"""All pieces of an outer sum together: more tasks would cost memory and a longer final sum."""

SLOTS = ("left", "right", "out", "pieces", "rows", "rows_per_task", "tasks")


def is_small(node: Node) -> bool:
    """Whether a product is done by our own kernels."""
    if not node.op.stands_alone or node.op.by_index:
        return False
    matrix = node if node.op.table is None else node.inputs[node.op.table]
    return matrix.type.size <= LARGEST


@dataclass(frozen=True)
class _Operands(Frame):
    """The arguments of a product's kernels."""

    slots: tuple[str, ...] = SLOTS

    def array(self, name: str, node: Node, row: int, dtype: DType | None = None) -> Array:
        return Array(self.pointer(name), dtype or node.type.dtype, row)

    def rows_of(self, task: ir.Value) -> tuple[ir.Value, ir.Value]:
        size = self.word("rows_per_task")
        first = arith.muli(task, size)
        return first, arith.minsi(arith.addi(first, size), self.word("rows"))


@dataclass(frozen=True)
class _Block:
    """Some columns of a `contract`, for a few rows at a time.

    Each element is the sum over the shared axis in its order, in whatever block of rows it is.
    """

    node: Node
    frame: _Operands
    column: int
    width: int

    def rows(self, count: int, first: ir.Value) -> None:
        """Rows first, ..., first + count - 1 of the product."""
        x, matrix = self.node.inputs
        inner, outer = matrix.type.shape
        left, right = self.frame.array("left", x, inner), self.frame.array("right", matrix, outer)
        out = self.frame.array("out", self.node, outer)
        entities = [arith.addi(first, i64(r)) for r in range(count)]
        starts = [left.start(entity) for entity in entities]
        zero = constant_of(0, lanes_type(register_element(matrix.type.dtype), self.width))

        def step(k: ir.Value, totals: Any) -> Any:
            row = right.load(arith.addi(right.start(k), i64(self.column)), self.width)
            factors = [left.load(arith.addi(start, k), 1) for start in starts]
            return [
                ARITHMETIC.fma(factor if self.width == 1 else splat(factor, self.width), row, total)
                for factor, total in zip(factors, totals, strict=True)
            ]

        totals = loop(i64(0), i64(inner), 1, [zero] * count, step)
        for entity, total in zip(entities, totals, strict=True):
            value = round_to(ARITHMETIC, total, self.node.type.dtype)
            out.store(value, arith.addi(out.start(entity), i64(self.column)))


@dataclass(frozen=True)
class Cut:
    """Tasks of `size` vectors; `piece_bytes` is what each leaves of a sum, 0 without one."""

    size: int
    tasks: int
    piece_bytes: int

    @property
    def pieces_bytes(self) -> int:
        return self.tasks * self.piece_bytes


@dataclass
class ProductStep:
    """One `contract` or `outer_sum` of node values."""

    node: Node

    @property
    def sums(self) -> bool:
        """Whether the result is a sum over all vectors, and no vector for each."""
        return self.node.op.origin is Origin.OUTER

    @cached_property
    def library(self) -> Library:
        return shared_library(self.module())

    def module(self) -> ir.Module:
        """The kernels as a module of upstream dialects."""
        with new_module(kernel_context()) as module:
            if self.sums:
                _function("rows", self._outer_sum)
                _function("totals", self._totals)
            else:
                _function("rows", self._contract)
        return module

    def _contract(self, frame: _Operands, task: ir.Value) -> None:
        """Columns in blocks, rows in blocks of ROW_BLOCK: a block of the matrix stays in cache for
        all rows of the task, and each of its rows serves ROW_BLOCK rows of x at a time."""
        first, last = frame.rows_of(task)
        if self.node.type.shape[-1] <= FEW_COLUMNS:
            for_each(first, last, 1, partial(self._dot, frame))
            return
        rows = arith.subi(last, first)
        middle = arith.addi(first, arith.muli(arith.divsi(rows, i64(ROW_BLOCK)), i64(ROW_BLOCK)))
        for column, width in column_blocks(self.node.type.shape[-1]):
            block = _Block(self.node, frame, column, width)
            for_each(first, middle, ROW_BLOCK, partial(block.rows, ROW_BLOCK))
            for_each(middle, last, 1, partial(block.rows, 1))

    def _dot(self, frame: _Operands, entity: ir.Value) -> None:
        """One row of a product of few columns: the shared axis lies across lanes."""
        inner, outer = self.node.inputs[1].type.shape
        left = frame.array("left", self.node.inputs[0], inner)
        right, out = (
            frame.array("right", self.node.inputs[1], outer),
            frame.array("out", self.node, outer),
        )
        value = few_columns(left.load(left.start(entity), inner), right, inner, outer)
        out.store(round_to(ARITHMETIC, value, self.node.type.dtype), out.start(entity))

    def _pieces(self, frame: _Operands) -> Array:
        size = self.node.type.size
        return frame.array("pieces", self.node, size, self.node.type.dtype.compute)

    def _outer_sum(self, frame: _Operands, task: ir.Value) -> None:
        inner, outer = self.node.type.shape
        x, y = self.node.inputs
        left, right = frame.array("left", x, inner), frame.array("right", y, outer)
        total = OuterAccumulator.make(self.node, self._pieces(frame), task, frame.allocate)
        total.begin()

        def row(entity: ir.Value) -> None:
            pair = (left.load(left.start(entity), inner), right.load(right.start(entity), outer))
            total.add(*pair)

        for_each(*frame.rows_of(task), 1, row)
        total.end()

    def _totals(self, frame: _Operands, task: ir.Value) -> None:
        out = frame.array("out", self.node, self.node.type.size)
        add_pieces(self._pieces(frame), frame.word("tasks"), out)

    def run(
        self, left: int, right: int, out: int, rows: int, threads: int,
        allocate: Callable[[int], int],
    ) -> None:  # fmt: skip
        """Compute the product from the addresses of its operands.

        `rows` counts vectors: entities times leading axes.
        """
        cut = self.cut(rows)
        pieces = allocate(cut.pieces_bytes) if cut.piece_bytes else 0
        self.launch(left, right, out, pieces, rows, cut.size, threads)
        if cut.piece_bytes:
            self.add(out, pieces, cut.tasks)

    def cut(self, rows: int) -> Cut:
        """How so many vectors are cut into tasks: fixed by their number."""
        piece = self.node.type.size * self.node.type.dtype.compute.itemsize
        most = max(8, min(MAX_TASKS, PIECES_BYTES // piece)) if self.sums else MAX_TASKS
        size = max(ROWS_PER_TASK, -(-rows // most))
        return Cut(size, -(-rows // size), piece if self.sums else 0)

    def launch(
        self, left: int, right: int, out: int, pieces: int, rows: int, size: int, threads: int
    ) -> None:
        """Run the tasks of `size` vectors each; of a sum, each stores a piece."""
        one, _table = self.on_rows(left, right, out, pieces, rows, size)
        launch(one.kernel, one.args, one.num_tasks, threads)

    def on_rows(
        self, left: int, right: int, out: int, pieces: int, rows: int, size: int
    ) -> tuple[Launch, Any]:
        """The same as a launch, and what has to live as long."""
        tasks = -(-rows // size)
        table = (ctypes.c_int64 * len(SLOTS))(left, right, out, pieces, rows, size, tasks)
        return Launch(self.library.address("rows"), ctypes.addressof(table), tasks), table

    def add(self, out: int, pieces: int, tasks: int) -> None:
        """Add the pieces of a sum in their order."""
        table = (ctypes.c_int64 * len(SLOTS))(0, 0, out, pieces, 0, 0, tasks)
        launch(self.library.address("totals"), ctypes.addressof(table), 1, 1)


def _function(name: str, body: Callable[[_Operands, ir.Value], None]) -> None:
    """`void name(ptr table, i64 lo, i64 hi)`, which runs `body` for each task."""
    task_function(name, lambda table: lambda number: body(_Operands(table), number))
