"""What schedules of a walk depend on, for a graph in a file: found in one pass over row pointers.

The same as for a graph in memory, so that both get the same kernels.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from tiga.backends.triton.topology import CHUNK, Degrees
from tiga.paging.stage import PagedWalk
from tiga.runtime.pages import Damaged

BLOCK = 1 << 18
"""Rows that are looked at together."""


@dataclass(frozen=True)
class WalkFacts:
    """A walk of a graph in a file: its extents, degrees, and the chunks of its split rows."""

    num_rows: int
    num_edges: int
    num_chunks: int
    degrees: Degrees


@dataclass
class Neighbours:
    """Counts the rows of a work list, longest first, whose edges do not follow those of the row
    before; rows come in blocks. Per degree: where its first row begins, and its last one ends."""

    apart: int = 0
    begins: np.ndarray = field(default_factory=lambda: np.full(CHUNK + 1, -1, np.int64))
    ends: np.ndarray = field(default_factory=lambda: np.full(CHUNK + 1, -1, np.int64))

    def add(self, low: np.ndarray, degree: np.ndarray) -> None:
        """Rows of at most `CHUNK` edges, in order."""
        order = np.argsort(degree.astype(np.uint16), kind="stable")
        degree, low = degree[order], low[order]
        high, same = low + degree, degree[1:] == degree[:-1]
        self.apart += int(np.count_nonzero(same & (high[:-1] != low[1:])))
        firsts = np.flatnonzero(np.concatenate(([True], ~same))) if len(degree) else order
        lasts = np.concatenate((firsts[1:] - 1, [len(degree) - 1])) if len(degree) else order
        kinds = degree[firsts]
        known = self.ends[kinds] >= 0
        self.apart += int(np.count_nonzero(known & (self.ends[kinds] != low[firsts])))
        self.begins[kinds[~known]] = low[firsts][~known]
        self.ends[kinds] = high[lasts]

    def total(self) -> int:
        """With those where one degree ends and the next begins."""
        kinds = np.flatnonzero(self.ends >= 0)[::-1]
        return self.apart + int(np.count_nonzero(self.ends[kinds[:-1]] != self.begins[kinds[1:]]))


def walk_facts(walk: PagedWalk, num_far: int) -> WalkFacts:
    """The facts of a walk with so many nodes at the other ends of its edges.

    Raises:
        Damaged: its row pointers do not rise from 0 to the number of edges.
    """
    squares = chunks = 0
    neighbours = Neighbours()
    for low, degree in _blocks(walk):
        squares += int(np.dot(degree, degree))
        chunks += int((-(-degree[degree > CHUNK] // CHUNK)).sum())
        light = degree <= CHUNK
        neighbours.add(low[light], degree[light])
    rows, edges = walk.num_rows, walk.num_edges
    found = Degrees.of(rows, edges, squares, neighbours.total(), walk.dtype.itemsize)
    return WalkFacts(rows, edges, chunks, found.towards(num_far))


def _blocks(walk: PagedWalk) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Where rows begin, and their degrees."""
    end = 0
    for first in range(0, walk.num_rows, BLOCK):
        pointers = np.empty((min(BLOCK, walk.num_rows - first) + 1, 1), np.int64)
        walk.row_ptr.read_into(first, pointers.view(np.uint8))
        flat = pointers.reshape(-1)
        degree = np.diff(flat)
        if flat[0] != end or degree.min() < 0:
            raise Damaged("the row pointers in the file do not cut its edges into rows")
        end = int(flat[-1])
        yield flat[:-1], degree
    if end != walk.num_edges:
        raise Damaged("the row pointers in the file do not cut its edges into rows")
