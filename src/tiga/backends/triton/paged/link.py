"""Copies between a GPU and pinned memory of the host, on streams beside the one that computes.

Under Triton's interpreter the device is the host: copies are made at once.
"""

import ctypes
import mmap
import weakref
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, Protocol

import numpy as np

from tiga.runtime.arena import HUGE, ROOMY, Arena, anonymous
from tiga.runtime.crew import Crew
from tiga.runtime.driver import StreamEvent, driver
from tiga.runtime.floor import by_parts, off_the_floor
from tiga.runtime.platform import Platform
from tiga.runtime.queue import READY

MOVERS = 8
"""Threads that copy within the host: so many reach most of what its memory gives."""

Copy = tuple[int, int, int]
"""An address on the device, one on the host, and bytes."""


class Mark(Protocol):
    """A point in a stream's work."""

    def wait(self) -> None:
        """Return when the work before it is done."""


class Link(Protocol):
    """How a run moves bytes to its device and back; `movers` are threads that copy within the host,
    where one alone takes longer than the bus."""

    movers: Crew

    def pinned(self, nbytes: int) -> np.ndarray:
        """Memory of the host that copies take directly, uint8 `[nbytes]`."""

    def pin(self, memory: np.ndarray) -> int:
        """Pin memory that there is, as long as it is; the address that kernels find it at, 0 if it
        cannot be."""

    def mark(self) -> Mark:
        """What was launched so far."""

    def follow(self, mark: Mark) -> None:
        """Let what is launched from now on come after a mark."""

    def send(self, copies: Iterable[Copy], after: Mark, pinned: bool = False) -> Mark:
        """Copy to the device once a mark is reached; it is done at the result. Of `pinned` memory
        that only begins here."""

    def fetch(self, copies: Iterable[Copy], after: Mark, pinned: bool = False) -> Mark:
        """Copy to the host once a mark is reached; it is done at the result."""

    def double(self, copy: Copy) -> None:
        """Copy within the device, from the second address to the first, in order with kernels."""

    def settle(self) -> None:
        """Return when all copies are done."""


class HostLink:
    """The host in the place of a device."""

    def __init__(self) -> None:
        self.movers = Crew(2, "tiga-copy")

    def pinned(self, nbytes: int) -> np.ndarray:
        return Arena(nbytes).take(nbytes, np.dtype(np.uint8))

    def pin(self, memory: np.ndarray) -> int:
        return memory.ctypes.data

    def mark(self) -> Mark:
        return READY

    def follow(self, mark: Mark) -> None:
        """Nothing is under way."""

    def send(self, copies: Iterable[Copy], after: Mark, pinned: bool = False) -> Mark:
        for device, host, nbytes in copies:
            ctypes.memmove(device, host, nbytes)
        return READY

    def fetch(self, copies: Iterable[Copy], after: Mark, pinned: bool = False) -> Mark:
        for device, host, nbytes in copies:
            ctypes.memmove(host, device, nbytes)
        return READY

    def double(self, copy: Copy) -> None:
        ctypes.memmove(*copy)

    def settle(self) -> None:
        """Nothing is under way."""


class GpuLink:
    """A GPU whose kernels run on a stream `compute`."""

    def __init__(self, index: int, compute: int) -> None:
        self.gpu, self.compute, self.movers = driver(index), compute, Crew(MOVERS, "tiga-copy")
        self.inward, self.outward = self.gpu.new_stream(), self.gpu.new_stream()
        for stream in (self.inward, self.outward):
            weakref.finalize(self, self.gpu.close_stream, stream).atexit = False

    def pinned(self, nbytes: int) -> np.ndarray:
        """Our own huge pages where the driver takes them: a disk fills these, and those that the
        driver makes it does not."""
        own = anonymous(nbytes) if nbytes >= ROOMY else np.empty(0, np.uint8)
        by_parts(own.size, partial(_touch, own), HUGE)  # the system makes pages for several threads
        if own.size and self.pin(own):
            return own
        address = self.gpu.allocate_pinned(nbytes)
        memory = (ctypes.c_uint8 * max(nbytes, 1)).from_address(address)
        weakref.finalize(memory, self.gpu.free_pinned, address).atexit = False
        return np.frombuffer(memoryview(memory).cast("B"), np.uint8)

    def pin(self, memory: np.ndarray) -> int:
        if not self.gpu.pin(memory.ctypes.data, memory.nbytes):
            return 0
        weakref.finalize(memory, self.gpu.unpin, memory.ctypes.data).atexit = False
        return self.gpu.address_of_pinned(memory.ctypes.data)

    def mark(self) -> Mark:
        return StreamEvent(self.gpu, self.compute)

    def follow(self, mark: Mark) -> None:
        self._wait(self.compute, mark)

    def send(self, copies: Iterable[Copy], after: Mark, pinned: bool = False) -> Mark:
        self._wait(self.inward, after)
        for device, host, nbytes in copies:
            self.gpu.copy_in_on(self.inward, device, host, nbytes, pinned)
        return StreamEvent(self.gpu, self.inward)

    def fetch(self, copies: Iterable[Copy], after: Mark, pinned: bool = False) -> Mark:
        self._wait(self.outward, after)
        for device, host, nbytes in copies:
            self.gpu.copy_out_on(self.outward, host, device, nbytes, pinned)
        return StreamEvent(self.gpu, self.outward)

    def double(self, copy: Copy) -> None:
        self.gpu.copy_on(self.compute, *copy)

    def settle(self) -> None:
        for stream in (self.inward, self.outward):
            self.gpu.synchronize(stream)

    def _wait(self, stream: int, mark: Mark) -> None:
        assert isinstance(mark, StreamEvent)
        self.gpu.wait_event(stream, mark.handle)


def _touch(memory: np.ndarray, low: int, high: int) -> None:
    memory[low : high : mmap.PAGESIZE] = 0


def copy_bytes(to: int, source: int, nbytes: int) -> None:
    """Copy within the host, off the floor, by several threads where this one has help."""
    by_parts(nbytes, lambda low, high: _copy(to + low, source + low, high - low))


def _copy(to: int, source: int, nbytes: int) -> None:
    ctypes.memmove(to, source, nbytes)


def link_of(platform: Platform) -> Link:
    """A link to a device, beside its current stream."""
    return GpuLink(platform.index, platform.stream()) if platform.is_gpu else HostLink()


_UNPINNED = np.empty(0, np.uint8)


class PairedArena(Arena):
    """Pinned memory and as much of the device: what is staged in one lies at the same place of the
    other once it is sent. Whoever stages its first page pins the memory.

    `source` is what else is copied from until then.
    """

    def __init__(self, nbytes: int, link: Link, platform: Platform) -> None:
        super().__init__(nbytes, _UNPINNED)
        self.link, self.block = link, platform.arena(max(nbytes, 1))
        self.device, self.offset = platform.address(self.block), 0
        self.computed, self.copied = link.mark(), link.mark()
        self.source: Any = None

    def begin(self) -> None:
        """Wait until what was staged before may be written over."""
        with off_the_floor():
            if self._memory is _UNPINNED:
                self._pin()
            self.copied.wait()
        self.source = None

    def _pin(self) -> None:
        """Have memory, and know how far behind a byte of it the device has its copy."""
        self._memory = self.link.pinned(self.nbytes)
        self.address = self._memory.ctypes.data
        self.offset = self.device - self.address

    def sent(self, start: int, end: int) -> Copy:
        """The copy to the device of bytes [start, end) of what is staged."""
        return self.device + start, self.address + start, end - start

    def send(self, copies: Sequence[Copy]) -> Mark:
        """Copy to the device once its kernels are done with what was there."""
        self.copied = self.link.send(copies, self.computed, True)
        return self.copied

    def fetch(self, blocks: Sequence[np.ndarray]) -> Mark:
        """Copy blocks from the device, once what was launched so far is done."""
        places = [(b.ctypes.data, b.nbytes) for b in blocks]
        copies = [(host + self.offset, host, nbytes) for host, nbytes in places]
        self.copied = self.link.fetch(copies, self.computed, True)
        return self.copied
