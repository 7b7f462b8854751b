"""Where the arrays of a run over a graph in a file lie: on the device, or staged from elsewhere."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from tiga.backends.triton.paged.link import Link
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


@dataclass(eq=False)
class Loader:
    """Copies arrays to the device whole, through two pieces of pinned memory of `nbytes` in all."""

    link: Link
    platform: Platform
    nbytes: int = 2 * PIECE

    @cached_property
    def _pinned(self) -> np.ndarray:
        return self.link.pinned(self.nbytes)

    def load(self, home: Rows) -> DeviceRows:
        """All rows of an array; one piece is read while the other is copied."""
        found = DeviceRows(
            self.platform, self.platform.arena(max(1, home.count * home.row_bytes)), home.count,
            home.row_bytes,
        )  # fmt: skip
        step = max(1, self.nbytes // 2 // max(1, home.row_bytes))
        start, marks = self.link.mark(), [self.link.mark()] * 2
        for number, low in enumerate(range(0, home.count, step)):
            count, at = min(step, home.count - low), number % 2 * step
            part = self._pinned[at * home.row_bytes : (at + count) * home.row_bytes]
            marks[number % 2].wait()
            home.read_into(low, part.reshape(count, home.row_bytes))
            copy = (found.address + low * home.row_bytes, part.ctypes.data, part.nbytes)
            marks[number % 2] = self.link.send([copy], start)
        for mark in marks:
            self.link.follow(mark)
            mark.wait()
        return found
