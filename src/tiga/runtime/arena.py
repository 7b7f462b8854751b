"""Memory that page after page is staged in: asking the system for it anew would cost more than
reading the page."""

import mmap
from math import prod

import numpy as np

ALIGNMENT = 64


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
        self._memory = _anonymous(nbytes) if memory is None else memory
        self.nbytes, self.used = nbytes, 0

    @property
    def address(self) -> int:
        """That of its first byte."""
        return self._memory.ctypes.data

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
        skipped = first * row_bytes % ALIGNMENT
        return self._take((count, row_bytes), np.dtype(np.uint8), aligned(self.used) + skipped)

    def back_to(self, used: int) -> None:
        """Take back what was handed out since `used` was this."""
        self.used = used

    def reset(self) -> None:
        """Take everything back."""
        self.used = 0


def _anonymous(nbytes: int) -> np.ndarray:
    private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    return np.frombuffer(mmap.mmap(-1, max(nbytes, 1), private), np.uint8)


def aligned(nbytes: int) -> int:
    """Bytes up to the next place where an array may start."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT
