"""Memory of large values, used again: asking the system for pages costs more than most kernels.

A block is free when nothing but the pool refers to it, so nobody has to give it back.
"""

import math
import sys
from dataclasses import dataclass, field
from threading import Lock

import numpy as np

POOLED_FROM = 1 << 19
"""Bytes from which memory is pooled."""

ALIGNMENT = 64
PAGE = 4096
STAGGER = 9 * ALIGNMENT
MARGIN = PAGE + ALIGNMENT
"""Bytes beside an array in its block, so that arrays can start at different places in a page."""

_OWN_REFERENCES = 3
"""References to a free block: the pool's list, the loop's variable, the count's argument."""


@dataclass
class Pool:
    """Blocks of memory; at most `limit` bytes of them wait for use.

    Example:
        >>> pool = Pool()
        >>> first = pool.array((1000, 1000), np.dtype(np.float32))
        >>> place = first.ctypes.data
        >>> del first
        >>> pool.array((1000, 1000), np.dtype(np.float32)).ctypes.data == place
        True
    """

    limit: int = 256 * 2**20
    _blocks: list[np.ndarray] = field(default_factory=list, repr=False)
    _lock: Lock = field(default_factory=Lock, repr=False)

    def array(self, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """An array whose elements are not set."""
        nbytes = math.prod(shape) * dtype.itemsize
        if nbytes < POOLED_FROM:
            return np.empty(shape, dtype)
        with self._lock:
            block = self._take(nbytes)
        return _within(block, shape, dtype, len(self._blocks))

    def _take(self, nbytes: int) -> np.ndarray:
        """A free block that is not much too large, or a new one."""
        free = 0
        for place in range(len(self._blocks)):
            block = self._blocks[place]
            if sys.getrefcount(block) > _OWN_REFERENCES:
                continue
            if nbytes + MARGIN <= block.nbytes <= 2 * nbytes + MARGIN:
                self._blocks.append(self._blocks.pop(place))
                return block
            free += block.nbytes
        if free > self.limit:
            self._release()
        made = np.empty(nbytes + MARGIN, np.uint8)
        self._blocks.append(made)
        return made

    def _release(self) -> None:
        """Forget the free blocks."""
        busy = []
        while self._blocks:
            block = self._blocks.pop()
            # Here only the variable and the argument refer to a free block.
            if sys.getrefcount(block) > _OWN_REFERENCES - 1:
                busy.append(block)
        self._blocks = busy[::-1]


def _within(block: np.ndarray, shape: tuple[int, ...], dtype: np.dtype, number: int) -> np.ndarray:
    """An array inside a block, at a place in its page that depends on its number.

    Rows of several arrays that start at the same place in a page compete for the same few lines
    of the nearest cache.
    """
    place = number * STAGGER % PAGE
    start = (place - block.__array_interface__["data"][0]) % PAGE
    return np.ndarray(shape, dtype, buffer=block, offset=start)


def staggered(shape: tuple[int, ...], dtype: np.dtype, number: int) -> np.ndarray:
    """A new array that starts at another place in its page than those of other numbers."""
    block = np.empty(math.prod(shape) * dtype.itemsize + MARGIN, np.uint8)
    return _within(block, shape, dtype, number + 1)


POOL = Pool()
"""The pool that values of tensors come from."""
