"""Rows that a walk stores by number, in whatever order, and that do not fit memory: kept as they
come, then put in order a window at a time. So they are written twice and read once, where storing
each page's among those of others would read and write most of the file for every page."""

from dataclasses import dataclass, field

import numpy as np

from tiga.runtime.arena import Arena, slack
from tiga.runtime.pages import Rows

PIECE = 2**20
"""Bytes of kept rows that are read at a time."""


@dataclass
class Run:
    """Rows of ascending numbers: the first number of each piece, and where each starts."""

    firsts: list[int] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    last: int = -1
    end: int = 0


@dataclass
class Collected:
    """Stands in for `home`, every row of which is stored once.

    `numbers` (of words of `dtype`) and `rows` are where they are kept meanwhile; one thread stores.
    """

    home: Rows
    dtype: np.dtype
    numbers: Rows
    rows: Rows
    runs: list[Run] = field(default_factory=list)
    end: int = 0

    in_file = True
    address = 0

    @property
    def count(self) -> int:
        return self.home.count

    @property
    def row_bytes(self) -> int:
        return self.home.row_bytes

    def put(self, ids: np.ndarray, block: np.ndarray) -> None:
        """Keep rows of ascending, distinct numbers."""
        if not len(ids):
            return
        if not self.runs or ids[0] <= self.runs[-1].last:
            self.runs.append(Run())
        run = self.runs[-1]
        run.firsts.append(int(ids[0]))
        run.starts.append(self.end)
        words = ids.astype(self.dtype).view(np.uint8).reshape(len(ids), -1)
        self.numbers.write(self.end, words)
        self.rows.write(self.end, block)
        self.end += len(ids)
        run.last, run.end = int(ids[-1]), self.end

    def finish(self, arena: Arena) -> None:
        """Store everything at home."""
        assert self.end == self.count, "each row is stored once"
        width, word = max(1, self.row_bytes), self.dtype.itemsize
        step = max(1, min(PIECE, arena.nbytes // 4) // (width + word))
        piece = arena.rows(step, width), arena.take(step, self.dtype)
        most = max(1, (arena.nbytes - arena.used - slack(arena.nbytes, 1)) // width)
        used = arena.used
        for low in range(0, self.count, most):
            high = min(low + most, self.count)
            arena.back_to(used)
            window = arena.rows(high - low, width, low)
            for run in self.runs:
                self._gather(run, low, high, window, piece)
            self.home.write(low, window)

    def _gather(
        self, run: Run, low: int, high: int, window: np.ndarray, piece: tuple[np.ndarray, ...]
    ) -> None:
        """A run's rows of a window."""
        first = int(np.searchsorted(run.firsts, low, side="right")) - 1
        last = int(np.searchsorted(run.firsts, high, side="left"))
        start = run.starts[max(first, 0)]
        end = run.starts[last] if last < len(run.starts) else run.end
        for at in range(start, end, len(piece[1])):
            ids = piece[1][: min(len(piece[1]), end - at)]
            self.numbers.read_into(at, ids.view(np.uint8).reshape(len(ids), -1))
            begin, stop = np.searchsorted(ids, (low, high)).tolist()
            if stop > begin:
                rows = piece[0][: stop - begin]
                self.rows.read_into(at + begin, rows)
                window[ids[begin:stop] - low] = rows
