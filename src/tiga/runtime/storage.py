"""Blocks of bytes in each tier, with one interface: read, write, copy, close."""

import ctypes
import weakref
from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from tiga.errors import InvalidState, InvalidType, InvalidValue
from tiga.runtime.caller import user_line
from tiga.runtime.driver import driver
from tiga.runtime.spill import SpillFile

COPY_PIECE = 16 * 2**20
"""Bytes that a copy between tiers moves at a time: its only host memory."""


class Storage(ABC):
    """`nbytes` bytes somewhere, zero at first; `tier` says where."""

    tier: str

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        self.closed = False

    def read(self, offset: int = 0, nbytes: int | None = None) -> bytes:
        """A copy of `nbytes` bytes from `offset` on (default: to the end)."""
        count = self.nbytes - offset if nbytes is None else nbytes
        self._check(offset, count)
        return self._read(offset, count).tobytes()

    def write(self, data: Any, offset: int = 0) -> None:
        """Store bytes, or any contiguous buffer, at `offset`."""
        try:
            array = np.frombuffer(data, np.uint8)
        except (TypeError, ValueError):
            raise InvalidType(
                f"write: expected bytes, or an array that is contiguous; got {type(data).__name__}."
            ) from None
        self._check(offset, array.size)
        self._write(offset, array)

    def copy_to(self, other: "Storage") -> None:
        """Copy all bytes into another block of the same size."""
        if other.nbytes != self.nbytes:
            raise InvalidValue(f"copy: {self.nbytes} bytes do not fit a block of {other.nbytes}.")
        self._check(0, self.nbytes)
        other._check(0, other.nbytes)
        for offset in range(0, self.nbytes, COPY_PIECE):
            count = min(COPY_PIECE, self.nbytes - offset)
            if isinstance(other, HostStorage):
                self._read_into(other.array[offset : offset + count], offset)
            else:
                other._write(offset, self._read(offset, count))

    def close(self) -> None:
        """Free the bytes; a second time does nothing."""
        if not self.closed:
            self.closed = True
            self._close()

    def _check(self, offset: int, count: int) -> None:
        if self.closed:
            raise InvalidState(
                f"{user_line()}: a block of tier {self.tier!r} was used after it was closed; "
                "expected one that lives: allocate another, or close it later."
            )
        if offset < 0 or count < 0 or offset + count > self.nbytes:
            raise InvalidValue(
                f"bytes {offset} to {offset + count} are not within the {self.nbytes} bytes of "
                f"this block of tier {self.tier!r}."
            )

    @abstractmethod
    def _read(self, offset: int, count: int) -> np.ndarray:
        """uint8 `[count]`; may share the block's memory."""

    def _read_into(self, out: np.ndarray, offset: int) -> None:
        out[:] = self._read(offset, out.size)

    @abstractmethod
    def _write(self, offset: int, data: np.ndarray) -> None: ...

    @abstractmethod
    def _close(self) -> None: ...


class HostStorage(Storage):
    """Bytes in ordinary memory; `array` is them, uint8."""

    tier = "host"

    def __init__(self, nbytes: int) -> None:
        super().__init__(nbytes)
        self.array = np.zeros(nbytes, np.uint8)

    def _read(self, offset: int, count: int) -> np.ndarray:
        return self.array[offset : offset + count]

    def _write(self, offset: int, data: np.ndarray) -> None:
        self.array[offset : offset + data.size] = data

    def _close(self) -> None:
        self.array = np.empty(0, np.uint8)


class PinnedStorage(HostStorage):
    """Bytes in host memory that a GPU copies directly; needs an NVIDIA driver."""

    tier = "host-pinned"

    def __init__(self, nbytes: int, device: int = 0) -> None:
        owner = driver(device)
        super().__init__(0)
        self.nbytes = nbytes
        address = owner.allocate_pinned(nbytes)
        block = (ctypes.c_ubyte * nbytes).from_address(address)
        self.array = np.ctypeslib.as_array(block)
        self.array[:] = 0
        self._free = weakref.finalize(self, owner.free_pinned, address)

    def _close(self) -> None:
        super()._close()
        self._free()


class DeviceStorage(Storage):
    """Bytes on an NVIDIA GPU at `address`."""

    tier = "device"

    def __init__(self, nbytes: int, device: int = 0) -> None:
        super().__init__(nbytes)
        self._driver = driver(device)
        self.address = self._driver.allocate(nbytes)
        self._free = weakref.finalize(self, self._driver.free, self.address)
        self._driver.zero(self.address, nbytes)

    def _read(self, offset: int, count: int) -> np.ndarray:
        block = np.empty(count, np.uint8)
        self._read_into(block, offset)
        return block

    def _read_into(self, out: np.ndarray, offset: int) -> None:
        self._driver.copy_out(out.ctypes.data, self.address + offset, out.size)

    def _write(self, offset: int, data: np.ndarray) -> None:
        data = np.ascontiguousarray(data)
        self._driver.copy_in(self.address + offset, data.ctypes.data, data.size)

    def copy_to(self, other: Storage) -> None:
        if not isinstance(other, DeviceStorage) or other._driver is not self._driver:
            super().copy_to(other)
            return
        self._check(0, self.nbytes)
        other._check(0, self.nbytes)
        self._driver.copy_on(0, other.address, self.address, self.nbytes)
        self._driver.synchronize(0)

    def _close(self) -> None:
        self._free()


class DiskStorage(Storage):
    """Bytes in an extent of a spill file."""

    tier = "nvme"

    def __init__(self, nbytes: int, file: SpillFile) -> None:
        super().__init__(nbytes)
        self._file = file
        self._start = file.allocate(nbytes)
        self._free = weakref.finalize(self, file.free, self._start, nbytes)
        # An extent that was in use before holds old bytes.
        for offset in range(0, nbytes, COPY_PIECE):
            file.write(self._start + offset, np.zeros(min(COPY_PIECE, nbytes - offset), np.uint8))

    def _read(self, offset: int, count: int) -> np.ndarray:
        return self._file.read(self._start + offset, count)

    def _write(self, offset: int, data: np.ndarray) -> None:
        self._file.write(self._start + offset, np.ascontiguousarray(data))

    def _close(self) -> None:
        self._free()
