"""Where the arrays of a run over a graph in a file lie: on the device, or staged from elsewhere."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tiga.backends.triton.paged_link import Link
from tiga.runtime.pages import MemoryRows, Rows
from tiga.runtime.platform import Platform
from tiga.types import DType

PIECE = 2**23
"""Bytes that are read together when an array goes to the device whole."""


class HostRows(MemoryRows):
    """Rows in memory of the host, which no kernel can address."""

    @property
    def address(self) -> int:
        return 0


@dataclass(eq=False)
class DeviceRows:
    """Rows on the device: `block` is uint8 `[count * row_bytes]` of the platform.

    They are read from the host only where a page numbers rows anew and others of its arrays are
    not on the device; `settle` waits for the kernels that fill them.
    """

    platform: Platform
    block: Any
    count: int
    row_bytes: int
    settle: Callable[[], None] = field(default=lambda: None)
    in_file: bool = False

    @property
    def address(self) -> int:
        return self.platform.address(self.block)

    def view(self, size: int, dtype: DType) -> Any:
        """The elements as an array of the platform."""
        return self.platform.view(self.block, 0, self.count * size, dtype)

    def mapped(self) -> MemoryRows:
        raise AssertionError("rows on a device are not mapped")

    def read_into(self, low: int, out: np.ndarray) -> None:
        self.settle()
        out[...] = self._rows[low : low + len(out)].cpu().numpy()

    def take(self, ids: np.ndarray, out: np.ndarray, scratch: np.ndarray) -> None:
        self.settle()
        out[...] = self._rows[self.platform.sent(ids)].cpu().numpy()

    def write(self, low: int, block: np.ndarray) -> None:
        self._rows[low : low + len(block)] = self.platform.sent(block)

    def put(self, ids: np.ndarray, block: np.ndarray) -> None:
        self._rows[self.platform.sent(ids)] = self.platform.sent(block)

    @property
    def _rows(self) -> Any:
        return self.block.reshape(self.count, self.row_bytes)


def load(home: Rows, link: Link, platform: Platform) -> DeviceRows:
    """All rows of an array, copied to the device while they are read."""
    block = platform.arena(max(1, home.count * home.row_bytes))
    found = DeviceRows(platform, block, home.count, home.row_bytes)
    step = max(1, PIECE // max(1, home.row_bytes))
    buffers = [link.pinned(step * home.row_bytes).reshape(step, home.row_bytes) for _ in range(2)]
    start, marks = link.mark(), [link.mark()] * 2
    for number, low in enumerate(range(0, home.count, step)):
        part = buffers[number % 2][: min(step, home.count - low)]
        marks[number % 2].wait()
        home.read_into(low, part)
        copy = (found.address + low * home.row_bytes, part.ctypes.data, part.nbytes)
        marks[number % 2] = link.send([copy], start)
    for mark in marks:
        link.follow(mark)
        mark.wait()
    return found
