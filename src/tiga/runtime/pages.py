"""Arrays of rows in memory or in a file, read and written by ranges and by row numbers."""

import mmap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from tiga.runtime.spill import pread_into, pwrite_all

SPARSE = 8
"""Rows picked from a range are read one run at a time where fewer than one in so many is wanted;
else the range is read whole, in pieces, as a disk gives neighbours almost for free."""

GAP_BYTES = 4096
"""Runs closer than a page of the file system are read as one."""

PIECE = 4 * 2**20


@dataclass
class Traffic:
    """Bytes that went from and to files."""

    read: int = 0
    written: int = 0


LARGE = 2**20


def empty_block(rows: int, row_bytes: int) -> np.ndarray:
    """Memory for rows, uint8 `[rows, row_bytes]`; a large block is given back to the system as
    soon as it is freed, where the allocator would keep it and a budget would be exceeded."""
    nbytes = rows * row_bytes
    if nbytes < LARGE:
        return np.empty((rows, row_bytes), np.uint8)
    private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    return np.frombuffer(mmap.mmap(-1, nbytes, private), np.uint8).reshape(rows, row_bytes)


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

    def read(self, low: int, high: int) -> np.ndarray:
        """Rows [low, high), contiguous uint8 `[high - low, row_bytes]`; not to be written to."""

    def read_into(self, low: int, out: np.ndarray) -> None:
        """Fill contiguous uint8 `[rows, row_bytes]` with the rows from number `low` on."""

    def take(self, ids: np.ndarray, out: np.ndarray) -> None:
        """Fill `out`, contiguous uint8 `[len(ids), row_bytes]`, with the rows of ascending,
        distinct numbers."""

    def write(self, low: int, block: np.ndarray) -> None:
        """Store rows from number `low` on."""

    def put(self, ids: np.ndarray, block: np.ndarray) -> None:
        """Store rows at ascending, distinct numbers."""


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

    def read(self, low: int, high: int) -> np.ndarray:
        return _bytes(self.array[low:high], self.row_bytes)

    def read_into(self, low: int, out: np.ndarray) -> None:
        self._typed(out)[...] = self.array[low : low + len(out)]

    def take(self, ids: np.ndarray, out: np.ndarray) -> None:
        if _is_run(ids):
            self.read_into(int(ids[0]), out)
            return
        # Piece by piece: numpy's take would first copy all of an array with gaps.
        typed, step = self._typed(out), max(1, PIECE // max(1, self.row_bytes))
        for low in range(0, len(ids), step):
            typed[low : low + step] = self.array[ids[low : low + step]]

    def write(self, low: int, block: np.ndarray) -> None:
        self._whole()[low : low + len(block)] = block

    def put(self, ids: np.ndarray, block: np.ndarray) -> None:
        self._whole()[ids] = block

    def _typed(self, block: np.ndarray) -> np.ndarray:
        shape = (len(block), *self.array.shape[1:])
        return block.reshape(-1).view(self.array.dtype).reshape(shape)

    def _whole(self) -> np.ndarray:
        assert self.array.flags.c_contiguous
        return self.array.view(np.uint8).reshape(self.count, self.row_bytes)


def _is_run(ids: np.ndarray) -> bool:
    return len(ids) > 0 and int(ids[-1]) - int(ids[0]) == len(ids) - 1


def _bytes(array: np.ndarray, row_bytes: int) -> np.ndarray:
    whole = np.ascontiguousarray(array)
    return whole.reshape(-1).view(np.uint8).reshape(len(array), row_bytes)


class FileRows:
    """Rows in a file from an offset on; `owner` keeps the descriptor open."""

    in_file = True

    def __init__(
        self, fd: int, offset: int, count: int, row_bytes: int, traffic: Traffic, owner: Any
    ) -> None:
        self.fd, self.offset = fd, offset
        self.count, self.row_bytes = count, row_bytes
        self.traffic, self.owner = traffic, owner

    @property
    def address(self) -> int:
        return 0

    def read(self, low: int, high: int) -> np.ndarray:
        block = empty_block(high - low, self.row_bytes)
        self.read_into(low, block)
        return block

    def read_into(self, low: int, out: np.ndarray) -> None:
        pread_into(self.fd, out, self.offset + low * self.row_bytes)
        self.traffic.read += out.nbytes

    def take(self, ids: np.ndarray, out: np.ndarray) -> None:
        if _is_run(ids):
            self.read_into(int(ids[0]), out)
            return
        if not len(ids):
            return
        first, last = int(ids[0]), int(ids[-1]) + 1
        dense = last - first <= SPARSE * len(ids)
        spans = self._pieces(first, last) if dense else self._runs(ids)
        at = 0
        for low, high in spans:
            end = at + int(np.searchsorted(ids[at:], high))
            if end > at:
                part = self.read(low, high)
                np.take(part, ids[at:end] - low, axis=0, out=out[at:end], mode="clip")
            at = end

    def write(self, low: int, block: np.ndarray) -> None:
        data = np.ascontiguousarray(block).reshape(-1).view(np.uint8)
        pwrite_all(self.fd, data, self.offset + low * self.row_bytes)
        self.traffic.written += data.size

    def put(self, ids: np.ndarray, block: np.ndarray) -> None:
        if not len(ids):
            return
        cuts = np.flatnonzero(np.diff(ids) != 1) + 1
        for low, high in zip((0, *cuts.tolist()), (*cuts.tolist(), len(ids)), strict=True):
            self.write(int(ids[low]), block[low:high])

    def _pieces(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        step = max(1, PIECE // max(1, self.row_bytes))
        for low in range(first, last, step):
            yield low, min(low + step, last)

    def _runs(self, ids: np.ndarray) -> Iterator[tuple[int, int]]:
        gap = max(1, GAP_BYTES // max(1, self.row_bytes))
        cuts = np.flatnonzero(np.diff(ids) > gap) + 1
        starts = ids[np.concatenate(([0], cuts))]
        ends = ids[np.concatenate((cuts - 1, [len(ids) - 1]))] + 1
        for low, high in zip(starts.tolist(), ends.tolist(), strict=True):
            yield from self._pieces(low, high)
