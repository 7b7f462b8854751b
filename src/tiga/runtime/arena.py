"""Memory that page after page is staged in: asking the system for it anew would cost more than
reading the page."""

import ctypes
import mmap
from contextlib import suppress
from math import prod

import numpy as np

from tiga.runtime.direct import BLOCK, LEAST

ALIGNMENT = 64

ROOMY = 2**21
"""Arenas of so many bytes place what is long enough such that it can be read past the page cache,
which takes up to a block each, and ask for huge pages, of which the disk fills each at once."""


HUGE = 2**21
"""Bytes of a huge page."""


class ArenaFull(Exception):
    """An arena has less room than was asked of it."""


class Arena:
    """`nbytes` bytes, handed out from the start on and taken back all at once.

    Only what was handed out is ever in memory, and all of it goes back to the system with the
    arena. `memory` is used where it is given, uint8 `[nbytes]` from a multiple of `ALIGNMENT` on.

    Example:
        >>> arena = Arena(4096)
        >>> first = arena.take(10, np.dtype(np.int64))
        >>> arena.reset()
        >>> arena.take(10, np.dtype(np.int64)).ctypes.data == first.ctypes.data
        True
    """

    def __init__(self, nbytes: int, memory: np.ndarray | None = None) -> None:
        self._memory = anonymous(nbytes) if memory is None else memory
        self.address = self._memory.ctypes.data
        self.nbytes, self.used = nbytes, 0

    def take(self, shape: int | tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """An array whose elements are not set.

        Raises:
            ArenaFull: it does not fit what is left.
        """
        return self._take(shape, dtype, aligned(self.used))

    def _take(self, shape: int | tuple[int, ...], dtype: np.dtype, start: int) -> np.ndarray:
        nbytes = (prod(shape) if isinstance(shape, tuple) else shape) * dtype.itemsize
        if start + nbytes > self.nbytes:
            raise ArenaFull(f"{nbytes} bytes asked of an arena with {self.nbytes - start} left")
        self.used = start + nbytes
        return np.ndarray(shape, dtype, self._memory, start)

    def rows(self, count: int, row_bytes: int, first: int = 0) -> np.ndarray:
        """Rows of bytes, uint8 `[count, row_bytes]`; where row 0 would be, if these start with row
        `first`, an array may start."""
        step = BLOCK if count * row_bytes >= LEAST and self.nbytes >= ROOMY else ALIGNMENT
        start = self.used + (first * row_bytes - self.address - self.used) % step
        return self._take((count, row_bytes), np.dtype(np.uint8), start)

    def back_to(self, used: int) -> None:
        """Take back what was handed out since `used` was this."""
        self.used = used

    def reset(self) -> None:
        """Take everything back."""
        self.used = 0


def anonymous(nbytes: int) -> np.ndarray:
    """Fresh memory, uint8 `[nbytes]`, in huge pages where it is long: from the start of one on, as
    a disk fills what lies in small ones at a third of its rate."""
    if nbytes < ROOMY or not hasattr(mmap, "MADV_HUGEPAGE"):
        return np.frombuffer(_mapped(nbytes), np.uint8)
    memory = _mapped(nbytes + HUGE)
    whole = np.frombuffer(memory, np.uint8)
    start = -whole.ctypes.data % HUGE
    with suppress(OSError):  # a system without them; the last part of one would take a whole one
        memory.madvise(mmap.MADV_HUGEPAGE, start, nbytes // HUGE * HUGE)
    return whole[start : start + nbytes]


def in_huge_pages(whole: np.ndarray) -> np.ndarray:
    """The bytes of an array from the start of a huge page on: `HUGE` fewer than it has, uint8.
    What numpy asks of the system asks for huge pages where it is long."""
    start = -whole.ctypes.data % HUGE
    return whole[start : start + whole.size - HUGE]


def _mapped(nbytes: int) -> mmap.mmap:
    return mmap.mmap(-1, max(nbytes, 1), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


# Not in every C library.
_malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)


def give_back_free_memory() -> None:
    """Let the allocator give the system what nobody uses: each thread that was there leaves some
    hundred KiB, which no budget counts."""
    if _malloc_trim is not None:
        _malloc_trim(ctypes.c_size_t(0))


def slack(nbytes: int, arrays: int) -> int:
    """What placing so many arrays of so many bytes in all takes beside them.

    Example:
        >>> slack(1000, 2), slack(2**21, 2)
        (128, 8192)
    """
    return arrays * (BLOCK if nbytes >= ROOMY else ALIGNMENT)


def aligned(nbytes: int) -> int:
    """Bytes up to the next place where an array may start."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT
