"""Tensors that leave memory and come back: to a spill file, or to the snapshot they came from.

Those of a GPU leave for pinned memory of the host if that has a budget, else for the spill file.

What moves is a block of memory with every tensor that views it, so that views stay views. A block
that something else holds too (a numpy array, a torch tensor) stays: nothing would be freed.
"""

import mmap
import weakref
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from tiga.errors import InvalidState, OutOfBudget
from tiga.frontends.tensor.core import Tensor, address_of, watch
from tiga.frontends.tensor.devices import Device
from tiga.frontends.tensor.lazy import Cell, LazyNode, here
from tiga.frontends.tensor.mapped_results import KIND, is_mapped
from tiga.runtime.buffer import Buffer
from tiga.runtime.device_array import DeviceArray, DeviceMemory
from tiga.runtime.locks import Ordered
from tiga.runtime.pool import is_pooled
from tiga.runtime.scope import Extent, Scope, active, block_of, fallback


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


class Absent:
    """A block that is not in memory, and everything that will view it again."""

    def __init__(self, buffer: Buffer, backing: Backing, device: Device) -> None:
        self.backing, self.device = backing, device
        self.nbytes = buffer.nbytes if backing.kind == Spilled.kind else 0
        self._buffer = weakref.ref(buffer)
        self._tensors: list[tuple[weakref.ref[Tensor], Layout]] = []
        self._cells: list[tuple[weakref.ref[Cell], Layout]] = []
        self._lock = Ordered("value")
        self._done = False

    def take_from(self, x: Tensor) -> bool:
        """Take the block that a tensor views from all that views it; False if something else holds
        it too: then they keep it."""
        with self._lock:
            held = self._taken_from(x)()
            if held is None:
                return True
            self.put(held if isinstance(held, DeviceMemory) else _flat(held))
            self.backing.close()
            return False

    def _taken_from(self, x: Tensor) -> "weakref.ref[Any]":
        buffer, array = x._buffer, x._array
        assert buffer is not None
        assert array is not None
        block = block_of(array)
        buffer.absent = self  # first: another thread that finds no array asks for this, and waits
        for tensor in viewers(x):
            assert tensor._array is not None
            self.add(tensor, Layout.of(tensor._array, block))
        for cell in _cells_left(buffer, block):
            self.add_cell(cell, Layout.of(cell.array, block))
        buffer.owner = None
        return weakref.ref(block)

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

    def layout_of(self, cell: Cell) -> Layout | None:
        """How a cell's value views the block."""
        return next((layout for known, layout in self._cells if known() is cell), None)

    def restore(self) -> None:
        """Bring the block back for everything that views it."""
        room = self.backing.room()
        with self._lock:
            if self._done:
                return
            living = self.put(self.backing.bring(room))
            self.backing.close()
        if living is not None and active() is not None:
            adopt(living)

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


def adopt(tensor: Tensor) -> None:
    """Charge a tensor's memory to the scope in force, which may spill it when it needs room."""
    scope, buffer, array = active(), tensor._buffer, tensor._array
    assert buffer is not None
    assert array is not None
    if scope is None or not _is_ours(block_of(array)):
        return
    if not buffer.viewers:
        watch(tensor)
    reference = weakref.ref(buffer)

    def evict() -> bool:
        held = reference()
        return held is not None and _evict(held)

    if isinstance(array, DeviceArray):
        scope.hold(array.memory, evict, "device")
        return
    scope.adopt(array, f"the tensor of {tensor._node.type} built at {tensor.where}", evict)


def _is_ours(block: Any) -> bool:
    """Whether Tiga made a block, and frees it."""
    if isinstance(block, DeviceMemory):
        return block.owner is None
    return block.flags.owndata or is_pooled(block)


def _evict(buffer: Buffer) -> bool:
    living = [t for t in (r() for r in buffer.viewers) if t is not None and t._buffer is buffer]
    return bool(living) and _moved(living)


def _moved(living: list[Tensor]) -> bool:
    """Evict the block of these tensors; what the disk does not hold stays in memory."""
    try:
        return _move_out(living[0])
    except OutOfBudget:
        return False


def spill(x: Tensor) -> Tensor:
    """Move the tensor's memory to disk until it is next used; returns the tensor. That of a GPU
    moves to pinned memory of the host if that has a budget which holds it.

    Shape, dtype, version and history stay; tensors that view the same memory go along. Any use
    brings the bytes back and frees them on disk.

    Raises:
        InvalidState: it is on disk already, or its memory is held by something else too, so that
            it would stay charged.
        OutOfBudget: the disk's budget does not hold it.
        OSError: the disk is full; the tensor stays as it is.

    Example:
        >>> import tiga as tg
        >>> x = tg.ones(3).spill()
        >>> x.residency["backing"]
        'temporary-spill'
        >>> x.tolist()
        [1.0, 1.0, 1.0]
    """
    if is_absent(x):
        assert x._buffer is not None
        raise InvalidState(
            f"spill(): the tensor is not in memory ({x._buffer.absent.backing.kind}) ({here()})."
        )
    x.realize()
    if is_mapped(_array_of(x)):
        raise InvalidState(
            f"spill(): the tensor did not fit when it was computed: it is mapped from a file "
            f"already, and takes no memory of a budget ({here()})."
        )
    if not _move_out(x):
        assert x._buffer is not None
        raise InvalidState(
            f"spill(): the tensor's {x._buffer.nbytes} bytes stay charged, as something else holds "
            f"them ({here()}): a numpy array from .numpy(), a torch tensor, a prepared call or "
            "memory that was shared with Tiga. Drop that first."
        )
    return x


def _array_of(x: Tensor) -> np.ndarray:
    assert x._array is not None
    return x._array


def is_absent(x: Tensor) -> bool:
    """Whether the tensor has a value that is not in memory."""
    return x._array is None and x._buffer is not None and x._buffer.absent is not None


# One block leaves at a time: two threads must not move the same one.
_moves = Ordered("moves")


def _move_out(x: Tensor) -> bool:
    """Move a block out with all that views it; False if it is held elsewhere, and so stays."""
    buffer = x._buffer
    assert buffer is not None
    with _moves:
        if x._array is None or buffer.absent is not None:
            return False  # another thread was faster
        backing = _kept(x._array, buffer)
        return backing is not None and Absent(buffer, backing, x.device).take_from(x)


def _kept(array: Any, buffer: Buffer) -> Backing | None:
    """Where the bytes of an array's block are, outside of its tier; None if it stays."""
    if buffer.origin is not None and buffer.version == 0:
        origin: Backing = buffer.origin
        return origin
    block = block_of(array)
    return _stored(block, active() or fallback()) if _is_movable(block) else None


def _stored(block: Any, scope: Scope) -> Backing:
    """A copy of a block's bytes out of its tier."""
    if isinstance(block, DeviceMemory):
        from tiga.frontends.tensor.device_spill import store

        return store(block, scope)
    return Spilled(scope.spill(_bytes(block), f"a spilled tensor of {block.nbytes} bytes"))


def _is_movable(block: Any) -> bool:
    """Whether a block's bytes are one run of memory that Tiga may free."""
    if isinstance(block, DeviceMemory):
        return _is_ours(block)
    ours = _is_ours(block) or isinstance(block.base, mmap.mmap)
    return ours and (block.flags.c_contiguous or block.flags.f_contiguous)


def _bytes(block: np.ndarray) -> memoryview:
    return _flat(block).data


def _flat(block: np.ndarray) -> np.ndarray:
    """A block's bytes in the order of memory, without a copy."""
    ordered = block if block.flags.c_contiguous else block.T
    return ordered.reshape(-1).view(np.uint8)


def residency(x: Tensor) -> dict[str, Any]:
    """Where the tensor's bytes are: `device`, `resident` (in memory), `backing` ("snapshot",
    "temporary-spill", "mapped-spill" for a result that did not fit, or None), `bytes` and
    `version`."""
    absent = x._buffer.absent if is_absent(x) else None  # type: ignore[union-attr]
    mapped = x._array is not None and is_mapped(x._array)
    return {
        "device": str(x.device),
        "resident": x._array is not None and not mapped,
        "backing": KIND if mapped else None if absent is None else absent.backing.kind,
        "bytes": x.nbytes,
        "version": x.version,
    }
