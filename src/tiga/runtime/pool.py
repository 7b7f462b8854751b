"""Memory of large values, used again: asking the system for pages costs more than most kernels.

A block is free when nothing but the pool refers to it, so nobody has to give it back.
"""

import math
from ctypes import Array, addressof, c_char
from dataclasses import dataclass, field
from sys import getrefcount
from threading import RLock
from typing import Any

import numpy as np

POOLED_FROM = 1 << 19
"""Bytes from which memory is pooled."""

PARTIAL_FROM = 1 << 14
"""The same for partial results, which every run of a kernel makes and drops."""

ALIGNMENT = 64
"""Bytes of a cache line, at whose start arrays start."""

PAGE = 4096
"""Bytes after which places share lines of the nearest cache."""

STAGGER = 9 * ALIGNMENT
"""Bytes between the starts of one block's array and the next one's: odd in lines, so that all
places in a page come before one comes again."""

MARGIN = PAGE + ALIGNMENT
"""Bytes beside an array in its block, so that arrays can start at different places in a page."""

_OWN_REFERENCES = 2
"""References to the memory of a free block: the block's own, and the count's argument."""


class Memory(Array):
    """Bytes of a block, by a class of its own per number of bytes."""

    _type_ = c_char
    _length_ = 0

    @staticmethod
    def of(nbytes: int) -> "Memory":
        """New memory, whose bytes are not set."""
        sized: Any = type("Memory", (Memory,), {"_length_": nbytes})
        memory: Memory = sized.from_buffer(np.empty(nbytes, np.uint8))
        return memory


def is_pooled(array: np.ndarray) -> bool:
    """Whether an array's memory is a pool's, and no other array's."""
    return isinstance(array.base, Memory)


class Block:
    """Memory, and where an array starts in it: at another place in a page than in other blocks.

    Rows of several arrays that start at the same place in a page compete for the same few lines
    of the nearest cache. The memory is no array itself, so that each array in it stands for itself
    where memory is accounted for: the array dies, the block waits for the next.
    """

    __slots__ = ("memory", "nbytes", "start")

    def __init__(self, nbytes: int, number: int) -> None:
        self.nbytes = nbytes
        self.memory: Any = Memory.of(nbytes + MARGIN)
        self.start = (number * STAGGER - addressof(self.memory)) % PAGE

    @property
    def free(self) -> bool:
        """Whether nothing else refers to the memory."""
        return getrefcount(self.memory) <= _OWN_REFERENCES


@dataclass
class Pool:
    """Blocks of memory; at most `limit` bytes of them wait for use. What takes a block is no less
    than one part in `most` of it.

    Example:
        >>> pool = Pool()
        >>> first = pool.array((1000, 1000), np.dtype(np.float32))
        >>> place = first.ctypes.data
        >>> del first
        >>> pool.array((1000, 1000), np.dtype(np.float32)).ctypes.data == place
        True
    """

    limit: int = 256 * 2**20
    most: float = 2
    _blocks: list[Block] = field(default_factory=list, repr=False)
    # Re-entrant: making a block may set off a collection, and so a finalizer that asks for memory.
    _lock: Any = field(default_factory=RLock, repr=False)
    _made: int = field(default=0, repr=False)

    def array(
        self, shape: tuple[int, ...], dtype: np.dtype, least: int = POOLED_FROM
    ) -> np.ndarray:
        """An array whose elements are not set; one of less than `least` bytes is not pooled."""
        nbytes = math.prod(shape) * dtype.itemsize
        if nbytes < least:
            return np.empty(shape, dtype)
        with self._lock:
            block = self._waiting_for(nbytes) or self._new(nbytes)
            return np.ndarray(shape, dtype, block.memory, block.start)

    def _waiting_for(self, nbytes: int) -> Block | None:
        """A free block that is not much too large. The one that was used last is the likeliest to
        be in a cache."""
        blocks = self._blocks
        for block in reversed(blocks):
            if not nbytes <= block.nbytes <= self.most * nbytes:
                continue
            if getrefcount(block.memory) <= _OWN_REFERENCES:  # `Block.free`, without a call
                if block is not blocks[-1]:
                    blocks.remove(block)
                    blocks.append(block)
                return block
        return None

    def _new(self, nbytes: int) -> Block:
        if self.waiting > self.limit:
            self._blocks = [block for block in self._blocks if not block.free]
        self._made += 1
        made = Block(nbytes, self._made)
        self._blocks.append(made)
        return made

    @property
    def waiting(self) -> int:
        """Bytes that wait for use."""
        return sum([block.nbytes for block in self._blocks if block.free])

    def shrink(self, nbytes: int) -> None:
        """Give memory that waits for use back to the system until no more than `nbytes` of it is
        left, what was not used for longest first."""
        with self._lock:
            kept: list[Block] = []
            excess = self.waiting - nbytes
            for block in self._blocks:
                if excess > 0 and block.free:
                    excess -= block.nbytes
                else:
                    kept.append(block)
            self._blocks = kept


POOL = Pool()
"""The pool that values of tensors come from."""
