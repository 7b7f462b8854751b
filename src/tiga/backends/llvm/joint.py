"""Two walks over the same rows as one kernel, block of rows by block of rows.

What goes from one to the other lies on the stack for a block. Both evaluate what their own kernels
would, edge by edge in the same order, so that the results have the same bits.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

from torch_mlir import ir
from torch_mlir.dialects import arith

from tiga.backends.llvm.kernel import Kernels
from tiga.backends.llvm.loops import for_each
from tiga.backends.llvm.memory import Array, element_pointer, i64, load_word, stored_element
from tiga.backends.llvm.slots import Slots, SlotTable
from tiga.backends.llvm.task_function import Task, task_function
from tiga.backends.llvm.tasks import Function, Over
from tiga.passes.pairs import BLOCK_BYTES
from tiga.trace.node import Node

MOST_ROWS = 32
"""Rows of a block, if they are narrow: enough for the two loops to take turns rarely."""


@dataclass(frozen=True)
class JointKernels:
    """Emits the kernel of two row programs; `kept` are the values that go between them."""

    first: Kernels
    second: Kernels
    kept: tuple[Node, ...]

    @property
    def _block_rows(self) -> int:
        row_bytes = sum(node.type.row_bytes for node in self.kept)
        return max(1, min(MOST_ROWS, BLOCK_BYTES // row_bytes))

    def emit(self, prefix: str) -> tuple[Function, ...]:
        """`void prefix_rows(ptr table, i64 lo, i64 hi)`, over tasks of the first walk's rows; the
        second's slots follow the first's."""
        task_function(f"{prefix}_rows", self._prepared)
        return (Function("rows", Over.TASKS),)

    def _prepared(self, table: ir.Value) -> Task:
        """What both walks do for a task, with memory for what goes from one to the other."""
        slots = Slots(self.first.program)
        first = SlotTable(table, slots)
        second = SlotTable(table, Slots(self.second.program), first=slots.fixed)
        blocks = {n: _allocate(first, n, self._block_rows) for n in self.kept}
        return partial(self._task, first, second, blocks)

    def _task(
        self, first: SlotTable, second: SlotTable, blocks: Mapping[Node, ir.Value], task: ir.Value
    ) -> None:
        task_ptr, rows = first.pointer("task_ptr"), self._block_rows
        end = load_word(task_ptr, arith.addi(task, i64(1)))

        def block(begin: ir.Value) -> None:
            stop = arith.minsi(arith.addi(begin, i64(rows)), end)
            local = {node: _from_row(node, memory, begin) for node, memory in blocks.items()}
            self.first.rows_between(replace(first, local=local), task, begin, stop)
            self.second.rows_between(replace(second, local=local), task, begin, stop)

        for_each(load_word(task_ptr, task), end, rows, block)


def _allocate(table: SlotTable, node: Node, rows: int) -> ir.Value:
    return table.allocate(stored_element(node.type.dtype), rows * node.type.size)


def _from_row(node: Node, memory: ir.Value, row: ir.Value) -> Array:
    """The array of which `memory` holds the rows from `row` on."""
    offset = arith.muli(row, i64(-node.type.size))
    base = element_pointer(memory, offset, stored_element(node.type.dtype))
    return Array(base, node.type.dtype, node.type.size)
