"""Addresses of arrays."""

from ctypes import addressof, c_char

import numpy as np

_first_byte = c_char.from_buffer


def address(array: np.ndarray) -> int:
    """Where the first element of an array is.

    Asking through the buffer protocol takes a sixth of the time of `__array_interface__`, which
    serves arrays that are empty, read-only or of a type that no buffer has.
    """
    try:
        return addressof(_first_byte(array))  # type: ignore[arg-type]
    except (TypeError, ValueError):
        found: int = array.__array_interface__["data"][0]
        return found
