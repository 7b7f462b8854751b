"""Walks over pages that add to rows of large tables, by an index of the edges."""

from bisect import bisect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tiga.backends.llvm.scatters import SCATTER_GROUPS
from tiga.backends.llvm.steps import joined_tasks
from tiga.errors import OutOfBudget
from tiga.passes.rows import RowProgram
from tiga.runtime.tiers import size_text
from tiga.trace.node import Node


def table_bounds(tasks: int) -> list[int]:
    """The tasks at which those begin that have a table of their own in memory, and the end."""
    bounds: list[int] = joined_tasks(np.arange(tasks + 1), SCATTER_GROUPS).tolist()
    return bounds


def tables_bytes(program: RowProgram, tasks: int, left: int) -> int:
    """Bytes that the tables of all groups of tasks take.

    Raises:
        OutOfBudget: they do not fit what is left.
    """
    if not program.fills_tables:
        return 0
    groups = len(table_bounds(tasks)) - 1
    needed = groups * sum(_nbytes(node) for node in program.outer_sums)
    if needed > left:
        raise OutOfBudget(
            f"the gradient of a table is added up in {groups} copies of it, which take {needed} "
            f"bytes ({size_text(needed)}) of memory, and the budget leaves {left} "
            f"({size_text(left)}). Raise memory={{'host': ...}} of tg.execution."
        )
    return needed


@dataclass(frozen=True)
class Tables:
    """The tables of all groups: pages of one group add to its own, in order."""

    bounds: list[int]
    blocks: Mapping[Node, np.ndarray]

    @staticmethod
    def of(program: RowProgram, tasks: int) -> "Tables | None":
        """Tables of zeros, if the program fills some."""
        if not program.fills_tables:
            return None
        bounds = table_bounds(tasks)
        return Tables(bounds, {
            n: np.zeros((len(bounds) - 1, _nbytes(n)), np.uint8) for n in program.outer_sums
        })  # fmt: skip

    def slots(self, task: int) -> dict[Any, int]:
        """The slots of a page that begins with a task: to the kernel its tables are the first."""
        group = bisect(self.bounds, task) - 1
        return {("partial", n): block[group].ctypes.data for n, block in self.blocks.items()}


def _nbytes(node: Node) -> int:
    return node.type.size * node.type.dtype.compute.itemsize
