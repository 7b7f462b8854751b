"""What goes through a graph in a file block of destinations by block: the bytes that it moves."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Protocol

import numpy as np

from tiga.paging.cost import Reach, reading
from tiga.paging.page import WORD
from tiga.paging.stage import PagedWalk
from tiga.relations.spread import Core, distinct, sampled
from tiga.runtime.pages import putting

DENSE = 2
"""A window of sources with at most so many for each that is named is read whole."""

FEW = 2
"""Of a block of so many tasks it is not known what it names: it may be the least part of them."""

POINTER_READS = 2
"""How often row pointers are read: for a block's rows and for its edges. Beside them, those of the
tasks in which a block begins and ends, of which the last is kept."""


class Block(Protocol):
    """Rows and the positions of their edges."""

    @property
    def low(self) -> int: ...

    @property
    def high(self) -> int: ...

    @property
    def first(self) -> int: ...

    @property
    def last(self) -> int: ...


@dataclass(frozen=True)
class Blocks:
    """Blocks of destinations, one after the other, as a step of a plan."""

    count: int
    arena_bytes: int
    read: int
    written: int
    stored: int

    arenas = 1
    resident = kept = 0
    remark = ""

    @property
    def told(self) -> str:
        return f"{self.count} blocks of destinations through torch"


@dataclass(frozen=True)
class BlockWalk:
    """A walk over destinations block by block."""

    walk: PagedWalk
    blocks: Sequence[Block]

    @property
    def topology(self) -> int:
        """Bytes that reading edges and row pointers takes."""
        walk, word = self.walk, self.walk.dtype.itemsize
        ends = 2 * len(self.blocks) * walk.num_rows // max(len(walk.tasks) - 1, 1)
        pointers = POINTER_READS * walk.num_rows + min(ends, walk.num_rows)
        return pointers * WORD + walk.num_edges * word

    def read(self, end: str, width: int) -> int:
        """Bytes that reading once what blocks name of an array in a file takes."""
        if end != "src":
            return width * (self.walk.num_rows if end == "dst" else self.walk.num_edges)
        return sum(self._windows(one, width)[0] for one in self._named)

    def added(self, end: str, width: int) -> tuple[int, int]:
        """Bytes that reading it and writing it again read and write."""
        if end != "src":
            return (self.read(end, width),) * 2
        pairs = [self._windows(one, width) for one in self._named]
        return sum(r + again for r, again, _ in pairs), sum(w for _, _, w in pairs)

    @staticmethod
    def _windows(named: tuple[Reach, int], width: int) -> tuple[int, int, int]:
        """Bytes that reading a block's sources takes, and that writing them again reads and
        writes."""
        (reach, edges), core = named, named[0].core
        window = reach.window[1] - reach.window[0]
        if window <= DENSE * edges:
            return window * width, 0, window * width
        rows = distinct(core.size, edges - core.outside) + core.outside
        return reading(core, window, edges, width)[0], *putting(rows, window, width)

    @cached_property
    def _named(self) -> list[tuple[Reach, int]]:
        """What sources each block names, and how many edges do."""
        return [(self._reach(block), block.last - block.first) for block in self.blocks]

    def _reach(self, block: Block) -> Reach:
        """That of its tasks; of few of them a sample tells, as it may be much less."""
        tasks, cores = self.walk.tasks, self.walk.cores
        first = int(np.searchsorted(tasks[:, 0], block.low, side="right")) - 1
        last = int(np.searchsorted(tasks[:, 0], block.high, side="left"))
        if last - first <= FEW and block.last > block.first:
            edges = block.first, block.last
            sample = np.concatenate(list(sampled(self.walk.index, self.walk.dtype, edges)))
            low, high = int(sample.min()), int(sample.max()) + 1
            return Reach((low, high), core=Core(low, high, 0))
        each = (
            Reach((int(tasks[task, 1]), int(tasks[task, 2])), core=cores[task][0])
            for task in range(first, last)
        )
        return reduce(Reach.joined, each, Reach())
