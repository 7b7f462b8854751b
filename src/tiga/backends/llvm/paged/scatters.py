"""Walks over pages that add to the other ends of edges; see `scatters`."""

import ctypes
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tiga.backends.llvm.launcher import launch
from tiga.backends.llvm.scatters import SCATTER_GROUPS, SCATTER_ROWS
from tiga.backends.llvm.steps import RowStep
from tiga.errors import OutOfBudget
from tiga.passes.rows import RowProgram
from tiga.runtime.pages import Rows
from tiga.runtime.tiers import size_text
from tiga.trace.node import Node

BLOCK_ROWS = 64 * SCATTER_ROWS
"""Results that go to a file are combined so many at a time."""


def group_bounds(tasks: int) -> list[int]:
    """The tasks at which groups begin, and the end."""
    return [group * tasks // SCATTER_GROUPS for group in range(SCATTER_GROUPS + 1)]


def sums_bytes(program: RowProgram, others: int, left: int) -> int:
    """Bytes that the sums of all groups take.

    Raises:
        OutOfBudget: they do not fit what is left.
    """
    needed = _rows(others) * sum(_row_bytes(n) for n in program.scatters)
    if program.scatters and needed > left:
        raise OutOfBudget(
            f"this program adds to every source from a walk over destinations (a gradient of "
            f"a scan): its {SCATTER_GROUPS} partial sums for {others} sources take {needed} "
            f"bytes ({size_text(needed)}) of memory, and the budget leaves {left} "
            f"({size_text(left)}). Raise memory={{'host': ...}} of tg.execution."
        )
    return needed if program.scatters else 0


@dataclass(frozen=True)
class Sums:
    """The sums of all groups, in memory as long as the walk runs: pages of one group add to its
    own, in order."""

    step: RowStep
    tasks: int
    others: int
    blocks: Mapping[Node, np.ndarray]

    @staticmethod
    def of(step: RowStep, tasks: int, others: int) -> "Sums":
        """Sums of zero."""
        rows = _rows(others)
        return Sums(step, tasks, others, {
            n: np.zeros((rows, _row_bytes(n)), np.uint8) for n in step.program.scatters
        })  # fmt: skip

    def slots(self, group: int) -> dict[Any, int]:
        """The slots of a group's pages: to the kernel it is the first."""
        skipped = group * self.others
        return {
            ("scatter", n): block.ctypes.data + skipped * block.shape[1]
            for n, block in self.blocks.items()
        }

    def finish(self, address: Callable[[str], int], homes: Mapping[Node, Rows],
               threads: int) -> None:  # fmt: skip
        """Add the groups, in their order, and store the results."""
        if all(homes[n].address for n in self.blocks):
            self._combine(address, 0, self.others, {n: homes[n].address for n in self.blocks},
                          threads)  # fmt: skip
            return
        results = {n: np.empty((BLOCK_ROWS, homes[n].row_bytes), np.uint8) for n in self.blocks}
        for low in range(0, self.others, BLOCK_ROWS):
            count = min(BLOCK_ROWS, self.others - low)
            places = {n: block.ctypes.data for n, block in results.items()}
            self._combine(address, low, count, places, threads)
            for node, block in results.items():
                homes[node].write(low, block[:count])

    def _combine(
        self, address: Callable[[str], int], low: int, count: int, results: Mapping[Node, int],
        threads: int,
    ) -> None:  # fmt: skip
        """Rows [low, low + count): the kernel counts them from 0."""
        named: dict[Any, int] = {"num_others": self.others, **results}
        for node, block in self.blocks.items():
            named["scatter", node] = block.ctypes.data + low * block.shape[1]
        table = self.step.slots.table(named)
        tasks = -(-count // SCATTER_ROWS)
        launch(address("scatters"), ctypes.addressof(table), tasks, threads)


def _rows(others: int) -> int:
    """Rows of all groups, and those that the last task of a block reads beyond them."""
    return SCATTER_GROUPS * others + SCATTER_ROWS


def _row_bytes(node: Node) -> int:
    return node.type.size * node.type.dtype.compute.itemsize
