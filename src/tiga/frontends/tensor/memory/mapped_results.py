"""Results that no budget of memory holds: in a file of their own, from which they are mapped."""

from math import prod
from typing import Any

import numpy as np

from tiga.runtime.mapped import file_at, map_file
from tiga.runtime.pages import FileRows, Traffic
from tiga.runtime.scope import Extent, Scope, block_of

KIND = "mapped-spill"


def mapped_rows(
    scope: Scope, shape: tuple[int, ...], dtype: np.dtype, what: str
) -> tuple[np.ndarray, FileRows]:
    """An array that is not empty, mapped from a file, and its rows there. Charged to the disk of
    the scope for as long as it lives.

    Raises:
        OutOfBudget: the disk's budget does not hold it.
        OSError: the disk is full.
    """
    nbytes = prod(shape) * dtype.itemsize
    extent = Extent(scope, nbytes, what, alone=True)
    block = map_file(extent.file.fd, extent.start, nbytes, extent, shared=True)
    rows = FileRows(extent.file.fd, extent.start, shape[0], nbytes // shape[0], Traffic(), extent)
    return block.view(dtype).reshape(shape), rows


def is_mapped(array: Any) -> bool:
    """Whether an array views such a result; those of a GPU do not."""
    block = block_of(array)
    if not isinstance(block, np.ndarray):
        return False
    return not block.flags.owndata and file_at(block.ctypes.data, block.nbytes) is not None
