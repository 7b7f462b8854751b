"""Numbers of the rows that edges of a graph in a file read: read anew for each use, so that no
expression keeps them."""

from dataclasses import dataclass

import numpy as np

from tiga.paging.numbers import bounds_of
from tiga.relations.paged import PagedGraph
from tiga.relations.row_blocks import PagedPointers, Rows
from tiga.runtime.scope import active


@dataclass(frozen=True)
class EdgeEnd:
    """One end of the edges of a block, or the edges themselves."""

    graph: PagedGraph
    block: Rows
    end: str

    @property
    def count(self) -> int:
        """How many edges there are."""
        return self.block.last - self.block.first

    @property
    def span(self) -> tuple[int, int] | None:
        """The range of rows that they are, if they are one."""
        return (self.block.first, self.block.last) if self.end == "edge" else None

    def numbers(self) -> np.ndarray:
        """The row of each edge, int64; charged to the scope in force while they live.

        Raises:
            InvalidFile: the file names an edge that cannot be.
        """
        with self.graph.reading():
            numbers = self._read()
        scope = active()
        if scope is not None:
            scope.adopt(numbers, "numbers of edges of a call in blocks")
        return numbers

    def _read(self) -> np.ndarray:
        (low, high, first, last), walk = self.block, self.graph.walks["dst"]
        if self.end == "edge":
            return np.arange(first, last)
        if self.end == "dst":
            degrees = np.diff(PagedPointers(walk).between(low, high))
            return np.repeat(np.arange(low, high), degrees)
        sources = np.empty((last - first, 1), walk.dtype)
        walk.index.read_into(first, sources.view(np.uint8))
        bounds_of(sources, self.graph.num_src)
        return sources.reshape(-1).astype(np.int64)
