"""Arrays of rows in memory or in a file, read and written by ranges and by row numbers."""

import math
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property, partial
from threading import Lock
from typing import Any, Protocol

import numpy as np

from tiga.runtime.arena import Arena
from tiga.runtime.crew import Crew
from tiga.runtime.direct import BLOCK, LEAST, DirectFile, fits
from tiga.runtime.floor import by_parts, off_the_floor
from tiga.runtime.spill import pread_into, pwrite_all

SPARSE = 8
"""Rows picked from a range are read one run at a time where fewer than one in so many is wanted;
else the range is read whole, in pieces, as a disk gives neighbours almost for free."""

GAP_BYTES = 4096
"""Runs closer than a page of the file system are read as one."""

FEW_RUNS = 4
"""So few runs are stored one by one, however close they lie."""

PIECE = 2**21
"""Bytes that picking rows reads at a time, at most."""

LOADED_BYTES = 2**24
"""Bytes that a thread reads at a time of an array that is read whole."""

PLACES = 8
"""Places of an array that are looked at to tell whether it is in the page cache."""

MIXED_BYTES = 2**17
"""Bytes that are read and written again at a time where rows are stored among others."""


@dataclass
class Traffic:
    """Bytes that went from and to files; several threads count."""

    read: int = 0
    written: int = 0
    _lock: Lock = field(default_factory=Lock, repr=False)

    def count(self, read: int = 0, written: int = 0) -> None:
        with self._lock:
            self.read += read
            self.written += written


class Damaged(ValueError):
    """What a file says of its rows cannot be."""


class Rows(Protocol):
    """`count` rows of `row_bytes` bytes each.

    `address` is that of the first row where the rows lie in memory one after the other, else 0.
    """

    count: int
    row_bytes: int

    in_file: bool

    @property
    def address(self) -> int: ...

    def read_into(self, low: int, out: np.ndarray) -> None:
        """Fill contiguous uint8 `[rows, row_bytes]` with the rows from number `low` on.

        Raises:
            Damaged: they are no longer in their file.
        """

    def take(self, ids: np.ndarray, out: np.ndarray, scratch: np.ndarray) -> None:
        """Fill `out`, contiguous uint8 `[len(ids), row_bytes]`, with the rows of ascending,
        distinct numbers; `scratch` is uint8, a row at least."""

    def write(self, low: int, block: np.ndarray) -> None:
        """Store rows from number `low` on."""

    def put(self, ids: np.ndarray, block: np.ndarray) -> None:
        """Store rows at ascending, distinct numbers; others between them may be read and written
        again."""


COPY_BYTES = 2**20
"""Bytes that are copied at a time: they stay in a cache."""


def copy_rows(source: Rows, target: Rows) -> None:
    """Copy all rows."""
    step = max(1, COPY_BYTES // max(1, source.row_bytes))
    block = np.empty((step, source.row_bytes), np.uint8)
    for low in range(0, source.count, step):
        part = block[: min(step, source.count - low)]
        source.read_into(low, part)
        target.write(low, part)


class MemoryRows:
    """The rows of a numpy array, in any strides."""

    in_file = False

    def __init__(self, array: np.ndarray) -> None:
        self.array = array
        self.count = array.shape[0]
        self.row_bytes = int(np.prod(array.shape[1:], dtype=np.int64)) * array.itemsize

    @property
    def address(self) -> int:
        return self.array.ctypes.data if self.array.flags.c_contiguous else 0

    @property
    def is_uniform(self) -> bool:
        """Whether one row stands for all, as in a value that was expanded."""
        return self.count > 1 and self.array.strides[0] == 0

    def read_into(self, low: int, out: np.ndarray) -> None:
        self._copy(self._typed(out), self.array[low : low + len(out)])

    def take(self, ids: np.ndarray, out: np.ndarray, scratch: np.ndarray) -> None:
        typed, step = self._typed(out), max(1, len(scratch) // max(1, self.row_bytes))
        for low in range(0, len(ids), step):
            typed[low : low + step] = self.array[ids[low : low + step]]

    def write(self, low: int, block: np.ndarray) -> None:
        self._copy(self._whole()[low : low + len(block)], self._typed(block))

    def _copy(self, target: np.ndarray, source: np.ndarray) -> None:
        width = max(1, self.row_bytes)

        def move(low: int, high: int) -> None:
            target[low // width : high // width] = source[low // width : high // width]

        by_parts(len(target) * width, move, width)

    def put(self, ids: np.ndarray, block: np.ndarray) -> None:
        self._whole()[ids] = self._typed(block)

    def _typed(self, block: np.ndarray) -> np.ndarray:
        shape = (len(block), *self.array.shape[1:])
        return block.reshape(-1).view(self.array.dtype).reshape(shape)

    def _whole(self) -> np.ndarray:
        assert self.array.flags.c_contiguous
        return self.array


class ByRanges:
    """Rows that are read and written by ranges: how to pick them by number, and store them so."""

    count: int
    row_bytes: int

    def read_into(self, low: int, out: np.ndarray) -> None:
        raise NotImplementedError

    def write(self, low: int, block: np.ndarray) -> None:
        raise NotImplementedError

    def _room(self, scratch: np.ndarray) -> int:
        """Bytes of scratch that rows are read into."""
        return len(scratch)

    def _expected(self, ids: np.ndarray, room: int) -> list[tuple[int, int]]:
        """The runs of rows that are read one by one, of which the system knows by then."""
        spans = list(self._runs(ids, room))
        self.expect(spans)
        return spans

    def expect(self, spans: Iterable[tuple[int, int]]) -> None:
        """Say which ranges of rows are read next."""

    def _placed(self, low: int, high: int, scratch: np.ndarray) -> np.ndarray:
        """Room for rows [low, high) in scratch."""
        return scratch[: (high - low) * self.row_bytes].reshape(high - low, self.row_bytes)

    def take(self, ids: np.ndarray, out: np.ndarray, scratch: np.ndarray) -> None:
        if not len(ids):
            return
        first, last = int(ids[0]), int(ids[-1]) + 1
        if last - first == len(ids):
            self.read_into(first, out)
            return
        dense = last - first <= SPARSE * len(ids)
        room = self._room(scratch)
        spans = self._pieces(first, last, room) if dense else self._expected(ids, room)
        at = 0
        for low, high in spans:
            end = at + int(np.searchsorted(ids[at:], high))
            if end > at:
                part = self._placed(low, high, scratch)
                self.read_into(low, part)
                picked = ids[at:end] - low
                np.take(_units(part), picked, axis=0, out=_units(out[at:end]), mode="clip")
            at = end

    def put(self, ids: np.ndarray, block: np.ndarray) -> None:
        if not len(ids):
            return
        cuts = np.flatnonzero(np.diff(ids) != 1) + 1
        first, last = int(ids[0]), int(ids[-1]) + 1
        if mixes(len(cuts) + 1, last - first, self.row_bytes):
            self._mix(first, last, ids, block)
            return
        for low, high in zip((0, *cuts.tolist()), (*cuts.tolist(), len(ids)), strict=True):
            self.write(int(ids[low]), block[low:high])

    def _mix(self, first: int, last: int, ids: np.ndarray, block: np.ndarray) -> None:
        """Store rows among those that are there already, piece by piece."""
        whole = np.empty(MIXED_BYTES + self.row_bytes, np.uint8)
        at = 0
        for low, high in self._pieces(first, last, len(whole)):
            end = at + int(np.searchsorted(ids[at:], high))
            if end > at:
                part = whole[: (high - low) * self.row_bytes].reshape(high - low, self.row_bytes)
                self.read_into(low, part)
                _units(part)[ids[at:end] - low] = _units(block[at:end])
                self.write(low, part)
            at = end

    def _pieces(self, first: int, last: int, nbytes: int) -> Iterator[tuple[int, int]]:
        step = max(1, nbytes // max(1, self.row_bytes))
        for low in range(first, last, step):
            yield low, min(low + step, last)

    def _runs(self, ids: np.ndarray, room: int) -> Iterator[tuple[int, int]]:
        cuts = np.flatnonzero(np.diff(ids) > _gap(self.row_bytes)) + 1
        starts = ids[np.concatenate(([0], cuts))]
        ends = ids[np.concatenate((cuts - 1, [len(ids) - 1]))] + 1
        for low, high in zip(starts.tolist(), ends.tolist(), strict=True):
            yield from self._pieces(low, high, room)


class FileRows(ByRanges):
    """Rows in a file from an offset on; `owner` keeps the descriptor open."""

    in_file = True

    def __init__(
        self, fd: int, offset: int, count: int, row_bytes: int, traffic: Traffic, owner: Any
    ) -> None:
        self.fd, self.offset = fd, offset
        self.count, self.row_bytes = count, row_bytes
        self.traffic, self.owner = traffic, owner

    @cached_property
    def direct(self) -> DirectFile:
        """The file past the page cache."""
        return DirectFile(self.fd)

    @property
    def address(self) -> int:
        return 0

    @property
    def is_cached(self) -> bool:
        """Whether the page cache has most of the rows, as far as a few places tell."""
        step = self.count * self.row_bytes // PLACES
        firsts = (self.offset + place * step for place in range(PLACES))
        return sum(self.direct.is_cached(first, max(step, 1)) for first in firsts) > PLACES // 2

    def expect(self, spans: Iterable[tuple[int, int]]) -> None:
        """Let the system read short ranges all at once, rather than each when it is asked for."""
        for low, high in spans:
            nbytes = (high - low) * self.row_bytes
            if nbytes < LEAST:
                os.posix_fadvise(
                    self.fd, self.offset + low * self.row_bytes, nbytes, os.POSIX_FADV_WILLNEED
                )

    def loaded(self, threads: int = 1) -> MemoryRows:
        """The same rows in memory, read by so many threads."""
        block = Arena(self.count * self.row_bytes + BLOCK).rows(self.count, self.row_bytes)
        step = max(1, LOADED_BYTES // max(1, self.row_bytes))
        with Crew(threads, "tiga-load") as crew:
            lows = range(0, self.count, step)
            parts = [crew.submit(self.read_into, low, block[low : low + step]) for low in lows]
            for part in parts:
                part.result()
        return MemoryRows(block)

    def read_into(self, low: int, out: np.ndarray) -> None:
        flat, offset = out.reshape(-1), self.offset + low * self.row_bytes
        direct = fits(out, offset) and self.direct.serves(offset, flat.size)
        try:
            with off_the_floor():
                read = direct and self.direct.read(flat, offset)
            if not read:
                by_parts(flat.size, partial(self._read_plainly, flat, offset))
        except EOFError as error:
            raise Damaged(f"{error}: it was cut after it was opened") from None
        self.traffic.count(read=flat.size)

    def _read_plainly(self, out: np.ndarray, offset: int, low: int, high: int) -> None:
        """Bytes [low, high) of a range, through the page cache."""
        pread_into(self.fd, out[low:high], offset + low)

    def _room(self, scratch: np.ndarray) -> int:
        return len(scratch) - BLOCK if len(scratch) > LEAST else len(scratch)

    def _placed(self, low: int, high: int, scratch: np.ndarray) -> np.ndarray:
        """Room for rows [low, high) in scratch; where they can be read past the page cache, if it
        has room for that."""
        nbytes = (high - low) * self.row_bytes
        skip = (self.offset + low * self.row_bytes - scratch.ctypes.data) % BLOCK
        skip = skip if skip + nbytes <= len(scratch) else 0
        return scratch[skip : skip + nbytes].reshape(high - low, self.row_bytes)

    def write(self, low: int, block: np.ndarray) -> None:
        data = np.ascontiguousarray(block).reshape(-1).view(np.uint8)
        offset = self.offset + low * self.row_bytes
        first, whole = -offset % BLOCK, 0
        if fits(data, offset) and self.direct.serves(offset, data.size):
            whole = self.direct.write(data, offset)
        for at, part in ((0, data[:first]), (first + whole, data[first + whole :])):
            pwrite_all(self.fd, part, offset + at)
        self.traffic.count(written=data.size)


def _units(block: np.ndarray) -> np.ndarray:
    """Narrow rows as numbers, which numpy moves at once."""
    size = block.shape[1]
    return block.reshape(-1).view(f"u{size}") if size in (2, 4, 8) else block


def _gap(row_bytes: int) -> int:
    return max(1, GAP_BYTES // max(1, row_bytes))


def picking(distinct: int, window: int, row_bytes: int) -> tuple[int, int]:
    """Rows read for so many picked at random from a window, and in how many runs.

    Example:
        >>> picking(10, 1000, 2**20), picking(500, 1000, 2**20), picking(10, 1000, 4)
        ((10, 10), (1000, 0), (1000, 0))
    """
    if not distinct or not row_bytes:
        return 0, 0
    if window <= SPARSE * distinct:
        return window, 0
    # The distance to the next row wanted falls off exponentially; shorter ones are read through.
    reach = _gap(row_bytes) * distinct / window
    apart = math.exp(-reach)
    between = window / distinct * (1 - apart * (1 + reach))
    return min(window, round(distinct * (1 + between))), round(distinct * apart)


def mixes(runs: int, window: int, row_bytes: int) -> bool:
    """Whether rows are stored together with those between them: so many runs would each rewrite a
    page of the file system."""
    return runs > FEW_RUNS and window * row_bytes <= runs * GAP_BYTES


def putting(distinct: int, window: int, row_bytes: int) -> tuple[int, int]:
    """Bytes read and written when so many rows at random places of a window are stored."""
    runs = distinct - round(distinct * distinct / max(1, window))
    if mixes(runs, window, row_bytes):
        return window * row_bytes, window * row_bytes
    return 0, distinct * row_bytes


def scratch_bytes(row_bytes: int, picked: int = (PIECE + BLOCK) * 16) -> int:
    """A good size for the scratch of picking so many bytes of rows: a piece, as far behind a
    block's start as in the file."""
    return max(row_bytes, min(PIECE + BLOCK, picked // 16), 1)
