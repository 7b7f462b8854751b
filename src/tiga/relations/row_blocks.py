"""Runs of rows with at most so many edges, of graphs in memory and in files."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from tiga.relations.paged import PagedWalk
from tiga.runtime.pages import Damaged


class Rows(NamedTuple):
    """Rows [low, high), whose edges are at positions [first, last)."""

    low: int
    high: int
    first: int
    last: int


class Pointers(Protocol):
    """Where the edges of each row begin."""

    @property
    def num_rows(self) -> int:
        """How many rows there are."""

    def start(self, row: int) -> int:
        """The position of a row's first edge."""

    def row_at(self, position: int) -> int:
        """The last row that begins at a position or before; the number of rows at the end."""


@dataclass(frozen=True)
class PointersInMemory:
    """The pointers of a graph in memory, int64 `[num_rows + 1]`."""

    row_ptr: np.ndarray

    @property
    def num_rows(self) -> int:
        return len(self.row_ptr) - 1

    def start(self, row: int) -> int:
        return int(self.row_ptr[row])

    def row_at(self, position: int) -> int:
        return int(np.searchsorted(self.row_ptr, position, side="right")) - 1


class PagedPointers:
    """The row pointers of a graph in a file, of which the first of each task is known; those of
    the task that was last looked at are kept."""

    def __init__(self, walk: PagedWalk) -> None:
        self.walk = walk
        self._task, self._kept = -1, np.empty(0, np.int64)

    @property
    def num_rows(self) -> int:
        return self.walk.num_rows

    def start(self, row: int) -> int:
        return int(self.walk.pointers(np.array([row]))[0])

    def row_at(self, position: int) -> int:
        task = int(np.searchsorted(self.walk.task_edges, position, side="right")) - 1
        if task >= self.walk.num_tasks:
            return self.num_rows
        first, end = self.walk.tasks[task : task + 2, 0].tolist()
        if task != self._task:
            self._task, self._kept = task, self.between(first, end)
        return first + int(np.searchsorted(self._kept, position, side="right")) - 1

    def between(self, low: int, high: int) -> np.ndarray:
        """The pointers of rows [low, high), and the end of the last, int64.

        Raises:
            Damaged: they fall.
        """
        pointers = np.empty((high - low + 1, 1), np.int64)
        self.walk.row_ptr.read_into(low, pointers.view(np.uint8))
        flat = pointers.reshape(-1)
        if not 0 <= flat[0] <= flat[-1] <= self.walk.num_edges or (np.diff(flat) < 0).any():
            raise Damaged("the row pointers in the file do not cut its edges into rows")
        return flat


def cut_rows(pointers: Pointers, most: int, most_rows: int) -> Iterator[Rows]:
    """Runs of rows with at most `most` edges, or of one row that has more; one run, without rows,
    where there are none.

    Example:
        >>> list(cut_rows(PointersInMemory(np.array([0, 2, 3, 9])), 4, 10))
        [Rows(low=0, high=2, first=0, last=3), Rows(low=2, high=3, first=3, last=9)]
    """
    rows, low, first = pointers.num_rows, 0, 0
    while True:
        high = min(max(pointers.row_at(first + most), low + 1), low + most_rows, rows)
        last = pointers.start(high)
        yield Rows(low, high, first, last)
        if high == rows:
            return
        low, first = high, last
