"""Where the arrays of a run over a graph in a file lie: on the device, or staged from elsewhere."""

from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

import numpy as np

from tiga.backends.triton.paged.link import MOVERS, Copy, Link, Mark, copy_bytes
from tiga.runtime.arena import anonymous
from tiga.runtime.crew import Crew
from tiga.runtime.floor import helped_by
from tiga.runtime.pages import ByRanges, MemoryRows, Rows, scratch_bytes
from tiga.runtime.platform import Platform
from tiga.types import DType

PIECE = 2**21
"""Bytes that a thread moves together when an array goes to the device, or comes from it, whole."""

LANES = 8
"""Threads that move an array: one alone copies at a fraction of what the bus takes."""

LEAST = 2**18
"""Bytes that are worth a thread more."""


class HostRows(MemoryRows):
    """Rows in memory of the host, which no kernel can address."""

    @property
    def address(self) -> int:
        return 0


class PinnedRows(MemoryRows):
    """Rows in pinned memory, which kernels read over the bus. `memory` is pinned as long as that
    very array is: views of it do not hold it."""

    def __init__(self, block: np.ndarray, memory: np.ndarray, address: int) -> None:
        super().__init__(block)
        self.memory, self._address = memory, address

    @property
    def address(self) -> int:
        return self._address


@dataclass(eq=False)
class DeviceRows(ByRanges):
    """Rows on the device, from byte `offset` of a block of its memory on.

    The host reads and writes them only where a page numbers rows anew and others of its arrays are
    not on the device: copies come after what was launched so far, and are waited for.
    """

    platform: Platform
    link: Link
    block: Any
    count: int
    row_bytes: int
    offset: int = 0
    in_file: bool = False

    @property
    def address(self) -> int:
        return self.platform.address(self.block) + self.offset

    def view(self, size: int, dtype: DType) -> Any:
        """The elements as an array of the platform."""
        return self.platform.view(self.block, self.offset, self.count * size, dtype)

    def read_into(self, low: int, out: np.ndarray) -> None:
        self.link.fetch([self._copy(low, out)], self.link.mark()).wait()

    def write(self, low: int, block: np.ndarray) -> None:
        whole = np.ascontiguousarray(block)
        self.link.send([self._copy(low, whole)], self.link.mark()).wait()

    def _copy(self, low: int, host: np.ndarray) -> Copy:
        return self.address + low * self.row_bytes, host.ctypes.data, host.nbytes


@dataclass(eq=False)
class Mover:
    """Copies arrays to the device, or from there, whole: through pinned memory of `nbytes` in all,
    of which each of up to `LANES` threads has its part."""

    link: Link
    platform: Platform
    nbytes: int = LANES * PIECE
    memory: np.ndarray = field(default_factory=lambda: np.empty(0, np.uint8))
    """What arrays go through, if there is some already."""

    def load(self, home: Rows) -> DeviceRows:
        """All rows of an array."""
        width = home.row_bytes
        block = self.platform.arena(max(1, home.count * width))
        found = DeviceRows(self.platform, self.link, block, home.count, width)
        self.bring(range(home.count), home, found.address)
        return found

    def bring(self, rows: "range | np.ndarray", home: Rows, address: int) -> None:
        """Copy rows of an array, a range of them or those of ascending, distinct numbers, to an
        address of the device, side by side, once what was launched so far is done."""
        width, start = home.row_bytes, self.link.mark()

        def move(low: int, part: np.ndarray) -> None:
            _read(rows[low : low + len(part)], home, part)
            copy = (address + low * width, part.ctypes.data, part.nbytes)
            self.link.send([copy], start).wait()

        self._by_parts(len(rows), width, move)

    def pin(self, home: Rows) -> Rows:
        """All rows of an array in pinned memory; the array itself where that cannot be."""
        count, width = home.count, home.row_bytes
        whole = anonymous(count * width)
        block, step = whole.reshape(count, width), max(1, PIECE // width)

        def move(low: int, _: None) -> None:
            home.read_into(low, block[low : low + step])

        _in_turn(count, step, [None] * LANES, move)
        address = self.link.pin(whole)
        return PinnedRows(block, whole, address) if address else home

    def fetch(self, address: int, out: np.ndarray) -> None:
        """Fill contiguous uint8 with what lies at an address of the device, once what was launched
        so far is done: while a part crosses the bus, threads copy the one before to its place."""
        flat = out.reshape(-1)
        half = max(1, min(self.nbytes // 2, len(flat)))
        self._provide(2 * half)
        start, before = self.link.mark(), None
        with helped_by(self.link.movers, MOVERS):
            for number, low in enumerate(range(0, len(flat), half)):
                part = self.memory[number % 2 * half :][: min(half, len(flat) - low)]
                copy = address + low, part.ctypes.data, part.nbytes
                coming = self.link.fetch([copy], start), part, flat[low:]
                _put(before)
                before = coming
            _put(before)

    def _provide(self, nbytes: int) -> None:
        """Have so many bytes of pinned memory, and some more if more were asked for before."""
        if self.memory.nbytes < nbytes:
            more = min(self.nbytes, 2 * nbytes) if self.memory.nbytes else nbytes
            self.memory = self.link.pinned(max(nbytes, more))

    def _by_parts(self, count: int, width: int, move: Callable[[int, np.ndarray], None]) -> None:
        """Move rows, as many at a time as a thread's part of the memory holds."""
        if not count * width:
            return
        lanes = max(1, min(LANES, self.nbytes // width, count * width // LEAST))
        step = max(1, min(self.nbytes // lanes // width, -(-count // lanes)))
        self._provide(lanes * step * width)
        parts = list(self.memory[: lanes * step * width].reshape(lanes, step, width))
        _in_turn(count, step, parts, lambda low, part: move(low, part[: count - low]))


def _read(rows: "range | np.ndarray", home: Rows, out: np.ndarray) -> None:
    if isinstance(rows, range):
        home.read_into(rows.start, out)
    else:
        home.take(rows, out, np.empty(scratch_bytes(home.row_bytes, out.nbytes), np.uint8))


def _put(coming: "tuple[Mark, np.ndarray, np.ndarray] | None") -> None:
    """Copy a part to the start of where it belongs, once it has come."""
    if coming is None:
        return
    mark, part, out = coming
    mark.wait()
    copy_bytes(out.ctypes.data, part.ctypes.data, part.nbytes)


def _in_turn(count: int, step: int, lanes: list[Any], move: Callable[[int, Any], None]) -> None:
    """Move rows, `step` at a time, by a thread for each lane, which takes what is next; by this one
    where there is one lane."""
    lows, turn = iter(range(0, count, step)), Lock()

    def serve(lane: Any) -> None:
        while True:
            with turn:
                low = next(lows, count)
            if low >= count:
                return
            move(low, lane)

    if len(lanes) == 1:
        serve(lanes[0])
        return
    with Crew(len(lanes), "tiga-move") as crew:
        done = [crew.submit(serve, lane) for lane in lanes]
    for one in done:
        one.result()
