"""Arrays of tensors, of the CPU or a GPU, where it matters which: where they are, copies, parts.

What a GPU takes (`gpu_arrays.py`) is loaded when the first array there asks for it.
"""

from functools import cache
from typing import Any

import numpy as np

from tiga.errors import InvalidIndex
from tiga.frontends.tensor.devices import CPU, Device
from tiga.frontends.tensor.lazy import here
from tiga.runtime.device_array import DeviceArray
from tiga.types import Type

Array = Any
"""numpy's array, or a GPU's (`DeviceArray`)."""


@cache
def _gpu() -> Any:
    from tiga.frontends.tensor import gpu_arrays

    return gpu_arrays


def device_of(array: Array) -> Device:
    """The device of an array."""
    return Device("cuda", array.machine.index) if isinstance(array, DeviceArray) else CPU


def address_of(memory: Any) -> int:
    """The address of an array's first element; 0 for what is no array."""
    if isinstance(memory, DeviceArray):
        return memory.address
    if not isinstance(memory, np.ndarray):
        return 0
    return int(memory.__array_interface__["data"][0])


def duplicate(array: Array) -> Array:
    """A row-major copy on the same device."""
    return _gpu().duplicate(array) if isinstance(array, DeviceArray) else np.array(array)


def to_host(array: Array) -> np.ndarray:
    """An array on the CPU: itself, or a copy, which waits for the work that computes it."""
    found: np.ndarray = _gpu().to_host(array) if isinstance(array, DeviceArray) else array
    return found


def moved_to(array: Array, device: Device) -> Array:
    """An array on a device: itself if both are the CPU's, else a copy."""
    return to_host(array) if device == CPU else _gpu().to_gpu(array, device.index)


def beside(array: np.ndarray, other: Array) -> Array:
    """An array of the CPU, on a GPU if another array is there."""
    return moved_to(array, device_of(other))


def filled_on(type_: Type, value: Any, device: Device) -> DeviceArray:
    """An array on a GPU with one number in every element; None leaves them as they are."""
    made: DeviceArray = _gpu().filled(type_, value, device.index)
    return made


def part_shape(array: Array, index: Any, what: str) -> tuple[int, ...]:
    """The shape of a part of an array.

    Raises:
        InvalidIndex: there is no such part.
    """
    shape: tuple[int, ...] = _part(array, index, what).shape
    return shape


def store(array: Array, index: Any, values: Array, what: str) -> None:
    """Write values, of the array's dtype and on its device, broadcast into a part of it.

    Raises:
        InvalidIndex: there is no such part.
    """
    if isinstance(array, DeviceArray):
        _gpu().write(_part(array, index, what), values, what)
        return
    try:
        array[index] = values
    except IndexError as error:
        raise InvalidIndex(f"{what}: {error} ({here()}).") from None


def _part(array: Array, index: Any, what: str) -> Array:
    try:
        return array[index]
    except IndexError as error:
        raise InvalidIndex(f"{what}: {error} ({here()}).") from None
