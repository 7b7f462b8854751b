"""Blocks of memory whose bytes are elsewhere, with all that will view them again.

Other threads may use a block at any moment. One that is to leave is taken from all that views it
first; if nothing holds it then, nobody can come by it any more, and its bytes are copied. Whoever
looks for it meanwhile waits.
"""

import weakref
from collections.abc import Callable
from dataclasses import dataclass
from sys import getrefcount
from typing import Any, Protocol

import numpy as np

from tiga.frontends.tensor.arrays import address_of
from tiga.frontends.tensor.core import Tensor
from tiga.frontends.tensor.devices import Device
from tiga.frontends.tensor.lazy import Cell, LazyNode
from tiga.frontends.tensor.storage import charge
from tiga.runtime.buffer import Buffer
from tiga.runtime.device_array import DeviceArray, DeviceMemory
from tiga.runtime.locks import Ordered
from tiga.runtime.scope import Extent, active, block_of


class Backing(Protocol):
    """Where the bytes of a block are while they are not in memory."""

    kind: str
    tier: str
    """Where they come back to: "host" or "device"."""

    def room(self) -> Any:
        """Make room in the scope in force, which may move other blocks out; a block of a GPU's
        memory to bring the bytes to, None where `bring` makes an array."""

    def bring(self, room: Any) -> Any:
        """The bytes in memory, given what `room` gave: uint8 `[nbytes]`, or that block."""

    def close(self) -> None:
        """Forget them, where they were kept for this block alone."""


@dataclass(frozen=True)
class Layout:
    """How a tensor views a block."""

    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype

    @staticmethod
    def of(array: Any, block: Any) -> "Layout":
        offset = _address(array) - _address(block)
        return Layout(offset, array.shape, array.strides, array.dtype)

    @property
    def is_contiguous(self) -> bool:
        """Whether rows follow one another, without gaps."""
        step = self.dtype.itemsize
        for extent, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if stride != step:
                return False
            step *= extent
        return bool(self.shape)

    def over(self, block: Any) -> Any:
        """The view of another block with the same bytes."""
        if isinstance(block, DeviceMemory):
            place = block.address + self.offset
            return DeviceArray(block, self.shape, self.dtype, self.strides, place)
        return np.ndarray(self.shape, self.dtype, block, self.offset, self.strides)


def _address(memory: Any) -> int:
    return memory.address if isinstance(memory, DeviceMemory) else address_of(memory)


_OWN_REFERENCES = 2
"""References to a block that nobody else holds: a list's, and the count's argument."""


class Absent:
    """A block that is not in memory, and everything that will view it again."""

    def __init__(self, buffer: Buffer, backing: Backing, device: Device) -> None:
        self.backing, self.device = backing, device
        self._nbytes, self._buffer = buffer.nbytes, weakref.ref(buffer)
        self._tensors: list[tuple[weakref.ref[Tensor], Layout]] = []
        self._cells: list[tuple[weakref.ref[Cell], Layout]] = []
        self._lock = Ordered("value")
        self._done = False

    @property
    def nbytes(self) -> int:
        """Bytes of memory that are charged when it comes back."""
        return self._nbytes if self.backing.kind == Spilled.kind else 0

    def take_from(self, x: Tensor, keep: Callable[[Any], Backing]) -> bool:
        """Take the block that a tensor views from all that views it, and `keep` its bytes; False if
        something else holds it too, or it is written: then they have it as before.

        Raises:
            What `keep` does; they have it then, too.
        """
        buffer = x._buffer
        assert buffer is not None
        with self._lock:
            buffer.absent = self  # first: another thread that finds no array asks for this, waits
            if buffer.writes:
                self._done, buffer.absent = True, None
                return False
            held = [self._taken_from(x, buffer)]
            try:
                # From here on nobody can come by it: it is copied as nobody writes to it any more.
                leaves = getrefcount(held[0]) <= _OWN_REFERENCES
                if leaves:
                    self.backing = keep(held[0])
                return leaves
            finally:
                if isinstance(self.backing, Leaving):
                    self._put_back(held.pop())

    def _put_back(self, block: Any) -> None:
        self.put(block if isinstance(block, DeviceMemory) else flat(block))

    def _taken_from(self, x: Tensor, buffer: Buffer) -> Any:
        assert x._array is not None
        block = block_of(x._array)
        for tensor in viewers(x):
            assert tensor._array is not None
            self.add(tensor, Layout.of(tensor._array, block))
        for cell in _cells_left(buffer, block):
            self.add_cell(cell, Layout.of(cell.array, block))
        buffer.owner = None
        return block

    def add(self, tensor: Tensor, layout: Layout) -> None:
        """Take a tensor's memory, and that of its expressions' values."""
        tensor._array = None
        self._tensors.append((weakref.ref(tensor), layout))
        for cell in cells_of(tensor):
            self.add_cell(cell, layout)

    def add_cell(self, cell: Cell, layout: Layout) -> None:
        """Take the memory of an expression's value."""
        # In this order, for the same reason.
        known, cell.absent = cell.absent, self
        if known is None:
            del cell.array
        self._cells.append((weakref.ref(cell), layout))

    def rows_of(self, cell: Cell, low: int, high: int) -> np.ndarray | None:
        """Rows of a cell's value from the spill file; None if they are not one run of bytes there,
        or there no more."""
        layout = next((layout for known, layout in self._cells if known() is cell), None)
        if layout is None or not layout.is_contiguous:
            return None
        step = layout.strides[0]
        with self._lock:  # what is freed there is taken by others
            if self._done or not isinstance(self.backing, Spilled):
                return None
            block = self.backing.read(layout.offset + low * step, (high - low) * step)
        return block.view(layout.dtype).reshape(high - low, *layout.shape[1:])

    def restore(self) -> None:
        """Bring the block back for everything that views it."""
        with self._lock:  # what is on its way out stays, or is out
            if self._done:
                return
        room = self.backing.room()
        with self._lock:
            if self._done:
                return
            living = self.put(self.backing.bring(room))
            self.backing.close()
        if living is not None and active() is not None:
            charge(living)  # not what another thread has moved out by now

    def put(self, block: Any) -> Tensor | None:
        """Give a block to everything that views it; one of the tensors that do."""
        self._done = True
        buffer = self._buffer()
        living = None
        for tensor_ref, layout in self._tensors:
            tensor = tensor_ref()
            if tensor is not None and tensor._buffer is buffer:
                tensor._array = layout.over(block)
                living = tensor
        for cell_ref, layout in self._cells:
            cell = cell_ref()
            if cell is not None and cell.absent is self:
                cell.array, cell.absent = layout.over(block), None
        if buffer is not None:
            buffer.owner, buffer.absent = block, None
        return living


def cells_of(tensor: Tensor) -> list[Cell]:
    """The cells that hold the tensor's value: of its node, and of what computed it."""
    nodes = (tensor._node, tensor._expression)
    cells = (node.cell for node in nodes if isinstance(node, LazyNode))
    return list({id(c): c for c in cells if c is not None}.values())


def _cells_left(buffer: Buffer, block: Any) -> list[Cell]:
    """The cells in a block of expressions whose tensors are gone, or have others by now."""
    found = []
    for reference, _ in buffer.nodes:
        cell = getattr(reference(), "cell", None)
        if cell is not None and cell.absent is None and block_of(cell.array) is block:
            found.append(cell)
    return list({id(cell): cell for cell in found}.values())


def viewers(tensor: Tensor) -> list[Tensor]:
    """All living tensors that view the tensor's block, itself included."""
    assert tensor._buffer is not None
    found = [tensor, *(reference() for reference in tensor._buffer.viewers)]
    return list({id(t): t for t in found if t is not None}.values())


@dataclass
class Leaving:
    """Stands for where bytes will be while they are on their way out."""

    tier: str
    kind: str = "temporary-spill"

    def room(self) -> Any:
        """Nobody asks: who brings bytes back waits until they are out."""
        raise AssertionError("these bytes are on their way out")

    def bring(self, room: Any) -> Any:
        """The same."""
        raise AssertionError("these bytes are on their way out")

    def close(self) -> None:
        """Nothing is kept yet."""


class Spilled:
    """Bytes in a spill file."""

    kind = "temporary-spill"
    tier = "host"

    def __init__(self, extent: Extent) -> None:
        self._extent = extent

    def room(self) -> None:
        reserve(self._extent.nbytes, "a spilled tensor that is used again")

    def bring(self, room: None) -> np.ndarray:
        return self._extent.read()

    def read(self, offset: int, nbytes: int) -> np.ndarray:
        """Some of the bytes."""
        return self._extent.read(offset, nbytes)

    def close(self) -> None:
        self._extent.close()


def reserve(nbytes: int, what: str) -> None:
    """Make sure that the scope in force has room, if there is one."""
    scope = active()
    if scope is not None:
        scope.reserve(nbytes, what)


def flat(block: np.ndarray) -> np.ndarray:
    """A block's bytes in the order of memory, without a copy."""
    ordered = block if block.flags.c_contiguous else block.T
    return ordered.reshape(-1).view(np.uint8)
