"""Tensors that leave memory and come back: to a spill file, or to the snapshot they came from.

Those of a GPU leave for pinned memory of the host if that has a budget, else for the spill file.

What moves is a block of memory with every tensor that views it, so that views stay views. A block
that something else holds too (a numpy array, a torch tensor) stays: nothing would be freed.
"""

import mmap
import weakref
from functools import partial
from typing import Any

import numpy as np

from tiga.errors import InvalidState, OutOfBudget
from tiga.frontends.tensor.core import Tensor
from tiga.frontends.tensor.lazy import here
from tiga.frontends.tensor.memory.absent import Absent, Backing, Leaving, Spilled, flat
from tiga.frontends.tensor.memory.mapped_results import KIND, is_mapped
from tiga.frontends.tensor.storage import watch
from tiga.runtime.buffer import Buffer
from tiga.runtime.device_array import DeviceArray, DeviceMemory
from tiga.runtime.locks import Ordered
from tiga.runtime.pool import is_pooled
from tiga.runtime.scope import Scope, active, block_of, fallback


def adopt(tensor: Tensor) -> None:
    """Charge a tensor's memory to the scope in force, which may spill it when it needs room."""
    scope, buffer, array = active(), tensor._buffer, tensor._array
    assert buffer is not None
    if scope is None or array is None or not _is_ours(block_of(array)):
        return
    if not buffer.viewers:
        watch(tensor, array)
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
    absent = absence(x)
    if absent is not None:
        raise InvalidState(
            f"spill(): the tensor is not in memory ({absent.backing.kind}) ({here()})."
        )
    if is_mapped(x._in_memory()):
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


def absence(x: Tensor) -> "Absent | None":
    """Where the tensor's value is, if it has one that is not in memory."""
    if x._array is not None or x._buffer is None:
        return None
    found: Absent | None = x._buffer.absent
    return found


# One block leaves at a time: two threads must not move the same one.
_moves = Ordered("moves")


def _move_out(x: Tensor) -> bool:
    """Move a block out with all that views it; False if it is held elsewhere, and so stays."""
    buffer = x._buffer
    assert buffer is not None
    with _moves:
        array = x._array
        if array is None or buffer.absent is not None:
            return False  # another thread was faster
        leaves = _has_origin(buffer) or _is_movable(block_of(array))
        leaving = Leaving("device" if isinstance(array, DeviceArray) else "host")
        del array
        keep = partial(_kept, buffer)
        return leaves and Absent(buffer, leaving, x.device).take_from(x, keep)


def _has_origin(buffer: Buffer) -> bool:
    """Whether the bytes are still those of the file that they came from."""
    return buffer.origin is not None and buffer.version == 0


def _kept(buffer: Buffer, block: Any) -> Backing:
    """Where the bytes of a block are, outside of its tier."""
    if _has_origin(buffer):
        origin: Backing = buffer.origin
        return origin
    return _stored(block, active() or fallback())


def _stored(block: Any, scope: Scope) -> Backing:
    """A copy of a block's bytes out of its tier."""
    if isinstance(block, DeviceMemory):
        from tiga.frontends.tensor.memory.device_spill import store

        return store(block, scope)
    return Spilled(scope.spill(_bytes(block), f"a spilled tensor of {block.nbytes} bytes"))


def _is_movable(block: Any) -> bool:
    """Whether a block's bytes are one run of memory that Tiga may free."""
    if isinstance(block, DeviceMemory):
        return _is_ours(block)
    ours = _is_ours(block) or isinstance(block.base, mmap.mmap)
    return ours and (block.flags.c_contiguous or block.flags.f_contiguous)


def _bytes(block: np.ndarray) -> memoryview:
    return flat(block).data


def residency(x: Tensor) -> dict[str, Any]:
    """Where the tensor's bytes are: `device`, `resident` (in memory), `backing` ("snapshot",
    "temporary-spill", "mapped-spill" for a result that did not fit, or None), `bytes` and
    `version`."""
    absent, array = absence(x), x._array
    mapped = array is not None and is_mapped(array)
    return {
        "device": str(x.device),
        "resident": array is not None and not mapped,
        "backing": KIND if mapped else None if absent is None else absent.backing.kind,
        "bytes": x.nbytes,
        "version": x.version,
    }
