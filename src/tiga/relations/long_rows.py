"""The edges of one row, more than fit in memory, in order of their sources."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tiga.relations.csr import stable_order
from tiga.relations.spool import ColumnFile

BINS = 1 << 16
"""Ranges of sources whose edges are counted at a time."""


@dataclass(frozen=True)
class LongRow:
    """Records [low, high) of files, of which the second has sources; `limit` fit in memory."""

    files: Sequence[ColumnFile]
    low: int
    high: int
    limit: int

    def by_source(self, first: int, last: int) -> Iterator[list[np.ndarray]]:
        """The records of sources [first, last) in order of these, and of equal ones as they are.

        All are read again for each part that fits: rows as long as this are few.
        """
        if self.low == self.high:
            return
        width = -(-(last - first) // BINS)
        counts = np.zeros(-(-(last - first) // width), np.int64)
        for start, end in self._pieces():
            sources = self.files[1].read(start, end)
            sources = sources[(sources >= first) & (sources < last)]
            counts += np.bincount((sources - first) // width, minlength=len(counts))
        begin = 0
        while begin < len(counts):
            fit = int(np.searchsorted(np.cumsum(counts[begin:]), self.limit, side="right"))
            end = begin + max(1, fit)
            bounds = first + begin * width, min(first + end * width, last)
            if fit or width == 1:
                yield from self._range(*bounds, is_one=not fit)
            else:
                yield from self.by_source(*bounds)
            begin = end

    def _range(self, first: int, last: int, is_one: bool) -> Iterator[list[np.ndarray]]:
        """The records of sources that fit together, or of one that has more."""
        found = []
        for start, end in self._pieces():
            columns = [file.read(start, end) for file in self.files]
            inside = (columns[1] >= first) & (columns[1] < last)
            part = [column[inside] for column in columns]
            if is_one:
                yield part
            else:
                found.append(part)
        if is_one:
            return
        columns = [np.concatenate(column) for column in zip(*found, strict=True)]
        order = stable_order(columns[1].astype(np.int64) - first, last - first)
        yield [column[order] for column in columns]

    def _pieces(self) -> Iterator[tuple[int, int]]:
        for start in range(self.low, self.high, self.limit):
            yield start, min(start + self.limit, self.high)
