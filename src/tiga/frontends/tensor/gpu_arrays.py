"""Arrays in a GPU's memory: made, copied there and back, written into."""

from typing import Any

import numpy as np

from tiga.backends.triton.dense.executable import copied
from tiga.backends.triton.dense.moves import contiguous, copy_into
from tiga.backends.triton.dense.run import Room
from tiga.backends.triton.machine import machine
from tiga.errors import InvalidValue
from tiga.frontends.tensor.arrays import Array, device_of
from tiga.runtime.device_array import DeviceArray, DeviceMemory, download, upload
from tiga.runtime.scope import active
from tiga.types import Type


def room(index: int) -> Room:
    """A GPU with the budget in force."""
    return Room(machine(index), active())


def to_gpu(array: Array, index: int) -> DeviceArray:
    """A row-major copy on a GPU."""
    where = room(index)
    if isinstance(array, DeviceArray):
        if array.machine.index == index:
            return copied(array, where)
        array = to_host(array)
    made = where.like(array.shape, array.dtype)
    return upload(array, where.machine, made.memory)


def on_gpu(array: Array, index: int) -> DeviceArray:
    """An operand where it is; single numbers, and what Tiga made for itself, are copied there."""
    return array if isinstance(array, DeviceArray) else to_gpu(array, index)


def to_host(array: DeviceArray) -> np.ndarray:
    """A copy on the CPU; waits for the work that computes it."""
    return download(contiguous(array))


def duplicate(array: DeviceArray) -> DeviceArray:
    """A row-major copy on the same GPU."""
    return copied(array, room(array.machine.index))


def filled(type_: Type, value: Any, index: int) -> DeviceArray:
    """An array with one number in every element; None leaves them as they are."""
    made = room(index).array(type_)
    if value is not None:
        write(made, np.asarray(value, type_.dtype.numpy), "a new tensor")
    return made


def write(target: DeviceArray, values: Array, what: str) -> None:
    """Store values, broadcast and of the same dtype, into a view of a GPU's memory.

    Raises:
        InvalidValue: the values are on another device, and not a single number.
    """
    if not isinstance(values, DeviceArray):
        if values.size != 1:
            raise InvalidValue(
                f"{what}: the values are on the CPU and the tensor on {device_of(target)}; move "
                "them there by name: .to(x.device)."
            )
        values = _number(np.asarray(values), target)
    view: Any = np.broadcast_to(values, target.shape)
    shared = values.memory is target.memory
    copy_into(target, duplicate(view) if shared else view)


def _number(value: np.ndarray, like: DeviceArray) -> DeviceArray:
    """One number beside an array, in a few bytes that no budget counts."""
    return upload(value, like.machine, DeviceMemory(like.machine, value.nbytes))
