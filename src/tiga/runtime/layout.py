"""Arrays in row-major memory."""

from collections.abc import Sequence

import numpy as np

LARGE = 1 << 20
"""Bytes from which it matters in which order elements are copied."""

CONFLICTS = 2048
"""Bytes of which steps are multiples that lead to few of a cache's lines, again and again."""

BLOCK = 64
"""Rows and columns that are copied together: the lines that hold them stay in a cache."""


def is_shown_as(shape: Sequence[int], strides: Sequence[int], target: Sequence[int]) -> bool:
    """Whether elements in memory can be shown under another shape where they lie.

    Axes of which one goes on where the other ends are one run; the new axes must divide the runs.

    Example:
        >>> from tiga.runtime.layout import is_shown_as
        >>> is_shown_as((4, 6), (12, 2), (2, 2, 1, 6)), is_shown_as((4, 6), (1, 4), (24,))
        (True, False)
    """
    runs: list[tuple[int, int]] = []
    for extent, step in zip(shape, strides, strict=True):
        if runs and runs[-1][1] == extent * step:
            runs[-1] = (runs[-1][0] * extent, step)
        elif extent != 1:
            runs.append((extent, step))
    left = [extent for extent in target if extent != 1]
    for rest, _ in runs:
        while rest > 1 and left and rest % left[0] == 0:
            rest //= left.pop(0)
        if rest > 1:
            return False
    return True


def row_major_array(array: np.ndarray) -> np.ndarray:
    """The array, or a row-major copy if it is not. Where neighbours of a row lie apart by steps
    that fill few lines of a cache, the copy is made by blocks: ten times as fast for a square of
    2048 float32 numbers."""
    return array if array.flags.c_contiguous else row_major_copy(array)


def row_major_copy(array: np.ndarray) -> np.ndarray:
    """A row-major copy of the array."""
    last = array.ndim - 1
    if array.nbytes < LARGE or last < 1 or array.strides[last] % CONFLICTS:
        return np.array(array, order="C")
    large = [axis for axis in range(last) if array.shape[axis] > 1]
    near = min(large, key=lambda axis: abs(array.strides[axis]), default=last)
    if not 0 < abs(array.strides[near]) < abs(array.strides[last]):
        return np.array(array, order="C")
    copy = np.empty(array.shape, array.dtype)
    for low in range(0, array.shape[near], BLOCK):
        rows = (slice(None),) * near + (slice(low, low + BLOCK),)
        for first in range(0, array.shape[last], BLOCK):
            part = (*rows, ..., slice(first, first + BLOCK))
            copy[part] = array[part]
    return copy
