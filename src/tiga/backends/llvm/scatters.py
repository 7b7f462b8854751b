"""Reductions at the other ends of edges, from a walk that alone can evaluate the messages.

Tasks are dealt to a fixed number of groups; a group runs its tasks in order and adds to sums of
its own, and the groups' sums are then combined in their order: the same bits for any number of
threads, at the cost of some node arrays and of running on at most so many threads.
"""

from collections.abc import Sequence

from torch_mlir import ir
from torch_mlir.dialects import arith

from tiga.backends.llvm.lanes import constant_of
from tiga.backends.llvm.layout import ARITHMETIC
from tiga.backends.llvm.loops import for_each, loop
from tiga.backends.llvm.memory import Array, i64, lanes_type, register_element
from tiga.trace.node import Node

SCATTER_GROUPS = 4
"""Each costs one node array: at mean degree 100, 1% of an edge array."""

SCATTER_ROWS = 256
"""Rows per task when the groups are combined."""


def tasks_of(group: ir.Value, num_tasks: ir.Value) -> tuple[ir.Value, ir.Value]:
    """The range of tasks of a group."""

    def bound(g: ir.Value) -> ir.Value:
        return arith.divsi(arith.muli(g, num_tasks), i64(SCATTER_GROUPS))

    return bound(group), bound(arith.addi(group, i64(1)))


def scatter(sums: Array, first: ir.Value, other: ir.Value, message: ir.Value) -> None:
    """Add an edge's message to its other end, in the sums that start at entity `first`."""
    start = sums.start(arith.addi(first, other))
    total = sums.load(start, sums.row)
    sums.store(ARITHMETIC.add(total, message), start)


def combine_groups(
    node: Node, sums: Array, result: Array, num_others: ir.Value, task: ir.Value
) -> None:
    """Store the sums of the groups, in their order, for one task of rows."""
    low = arith.muli(task, i64(SCATTER_ROWS))
    high = arith.minsi(arith.addi(low, i64(SCATTER_ROWS)), num_others)

    def row(entity: ir.Value) -> None:
        def group(g: ir.Value, totals: Sequence[ir.Value]) -> Sequence[ir.Value]:
            start = sums.start(arith.addi(arith.muli(g, num_others), entity))
            return [ARITHMETIC.add(totals[0], sums.load(start, sums.row))]

        zero = constant_of(0, lanes_type(register_element(node.type.dtype), sums.row))
        (total,) = loop(i64(0), i64(SCATTER_GROUPS), 1, [zero], group)
        result.store(total, result.start(entity))

    for_each(low, high, 1, row)
