"""Files past the page cache.

Through the page cache, a large file costs a copy and fresh memory for each of its pages, and both
cost more than the disk. Past it, the disk fills our own memory, which is used again and again;
where that lies in huge pages, requests are few and as fast as the disk is.

Requests are of whole blocks of the file and of memory. So memory lies as far behind the start of a
block as its bytes do in the file; what else is in the blocks at either end is read beside, and
those blocks are left to the page cache when the rest is written.
"""

import ctypes
import errno
import fcntl
import mmap
import os
import weakref
from contextlib import suppress

import numpy as np

BLOCK = 4096
"""Offsets, lengths and addresses of requests are multiples: no disk asks for more."""

LEAST = 2**17
"""Shorter requests are left to the page cache, which reads ahead for them."""

WARM = 8
"""A range is read through the page cache if all but one in so many of its pages are there."""

LOOKED_AT = 2**18
"""Bytes in the middle of a range that are asked after: to tell of all of a large range takes longer
than to read a small one, and what is cached lies together."""

_REFUSALS = (errno.EINVAL, errno.EOPNOTSUPP, errno.EFAULT)
"""Alignments, file systems, and memory (of a device's driver, say) that cannot be filled so."""

# Keeps Python's lock, as it takes microseconds: another thread would have to be waited for.
_mincore = ctypes.PyDLL(None).mincore


class DirectFile:
    """A second descriptor of a file that is open, for requests of whole blocks past the page cache.

    `refused` becomes True when the file system has no such requests.
    """

    def __init__(self, fd: int) -> None:
        """`fd` is open for reading, and for writing if this is to write."""
        self._plain, self._fd, self.refused = fd, -1, False
        self._whole = np.empty(0, np.uint8)
        mode = os.O_RDWR if _writable(fd) else os.O_RDONLY
        try:
            self._fd = os.open(f"/proc/self/fd/{fd}", mode | os.O_CLOEXEC | os.O_DIRECT)
        except (OSError, AttributeError):
            self.refused = True
            return
        weakref.finalize(self, os.close, self._fd).atexit = False

    def serves(self, offset: int, nbytes: int) -> bool:
        """Whether a range is better read this way: it is long, and not in memory already."""
        return nbytes >= LEAST and not self.refused and not self.is_cached(offset, nbytes)

    def read(self, out: np.ndarray, offset: int) -> bool:
        """Fill contiguous memory, uint8, that is as far behind the start of a block as `offset` is;
        False if the file system refuses.

        Raises:
            EOFError: the file ends before.
        """
        before = -offset % BLOCK
        after = (offset + out.size) % BLOCK
        ends = _two_blocks()
        ranges = [ends[0]] if before else []
        ranges += [out[before : out.size - after]]
        ranges += [ends[1]] if after else []
        start = offset + before - BLOCK * bool(before)
        if not self._fill([memoryview(part.data) for part in ranges], start, offset + out.size):
            return False
        out[:before] = ends[0][BLOCK - before :]
        out[out.size - after :] = ends[1][:after]
        return True

    def _fill(self, ranges: list[memoryview], start: int, end: int) -> bool:
        """Read into ranges of whole blocks, up to byte `end` of the file at least."""
        while start < end:
            try:
                count = os.preadv(self._fd, ranges, start)
            except OSError as error:
                return self._refuse(error)
            start += count
            if start < end and (not count or count % BLOCK):
                raise EOFError(f"the file ends at byte {start}, {end - start} bytes too early")
            while ranges and count >= len(ranges[0]):
                count -= len(ranges.pop(0))
            if count:
                ranges[0] = ranges[0][count:]
        return True

    def write(self, data: np.ndarray, offset: int) -> int:
        """Store the whole blocks of contiguous memory, uint8, that is as far behind the start of a
        block as `offset` is: the bytes of them, 0 if the file system refuses.

        Raises:
            OSError: the disk is full.
        """
        before = -offset % BLOCK
        whole = (data.size - before) // BLOCK * BLOCK
        left, offset = memoryview(data[before : before + whole].data), offset + before
        while len(left):
            try:
                count = os.pwritev(self._fd, [left], offset)
            except OSError as error:
                return int(self._refuse(error))
            left, offset = left[count:], offset + count
        return whole

    def _refuse(self, error: OSError) -> bool:
        if error.errno not in _REFUSALS:
            raise error
        self.refused = True
        return False

    def is_cached(self, offset: int, nbytes: int) -> bool:
        """Whether the page cache has the middle of a range; True if the file does not reach it: a
        plain read says so."""
        looked_at = min(nbytes, LOOKED_AT)
        first = offset + (nbytes - looked_at) // 2
        start = first - first % mmap.PAGESIZE
        length = first + looked_at - start
        if start + length > self._mapped(start + length).size:
            return True
        there = np.zeros(-(-length // mmap.PAGESIZE), np.uint8)
        place = ctypes.c_void_p(self._whole.ctypes.data + start)
        if _mincore(place, ctypes.c_size_t(length), ctypes.c_void_p(there.ctypes.data)):
            return True
        absent = len(there) - int(np.count_nonzero(there & 1))
        return absent * WARM <= len(there)

    def _mapped(self, nbytes: int) -> np.ndarray:
        """The file, mapped as far as it goes: addresses to ask by, which nobody reads."""
        if nbytes > self._whole.size:
            with suppress(OSError, ValueError):  # an empty file, or one that cannot be mapped
                memory = mmap.mmap(self._plain, 0, prot=mmap.PROT_READ)
                self._whole = np.frombuffer(memory, np.uint8)
        return self._whole


def _writable(fd: int) -> bool:
    return fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDWR


def _two_blocks() -> np.ndarray:
    """uint8 `[2, BLOCK]`, for what lies around the ends of a range."""
    memory = np.empty(3 * BLOCK, np.uint8)
    skip = -memory.ctypes.data % BLOCK
    return memory[skip : skip + 2 * BLOCK].reshape(2, BLOCK)


def fits(out: np.ndarray, offset: int) -> bool:
    """Whether memory is as far behind the start of a block as an offset of a file is."""
    return bool((out.ctypes.data - offset) % BLOCK == 0)
