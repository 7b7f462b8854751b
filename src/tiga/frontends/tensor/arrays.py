"""Arrays of tensors, of the CPU or a GPU, where it matters which."""

from typing import Any

import numpy as np

from tiga.errors import InvalidIndex
from tiga.frontends.tensor.lazy import here
from tiga.runtime.device_array import DeviceArray


def duplicate(array: Any) -> Any:
    """A row-major copy on the same device."""
    if not isinstance(array, DeviceArray):
        return np.array(array)
    from tiga.frontends.tensor import placement

    return placement.duplicate(array)


def part_shape(array: Any, index: Any, what: str) -> tuple[int, ...]:
    """The shape of a part of an array.

    Raises:
        InvalidIndex: there is no such part.
    """
    try:
        part = array[index]
    except IndexError as error:
        raise InvalidIndex(f"{what}: {error} ({here()}).") from None
    return tuple(np.shape(part)) if isinstance(array, np.ndarray) else part.shape


def store(array: Any, index: Any, values: Any, what: str) -> None:
    """Write values, of the array's dtype and on its device, broadcast into a part of it.

    Raises:
        InvalidIndex: there is no such part.
    """
    try:
        if not isinstance(array, DeviceArray):
            array[index] = values
            return
        part = array[index]
    except IndexError as error:
        raise InvalidIndex(f"{what}: {error} ({here()}).") from None
    from tiga.frontends.tensor.placement import write

    write(part, values, what)


def beside(array: np.ndarray, other: Any) -> Any:
    """An array of the CPU, on a GPU if another array is there."""
    if not isinstance(other, DeviceArray):
        return array
    from tiga.frontends.tensor.placement import to_gpu

    return to_gpu(array, other.machine.index)
