"""Floats as integers, also where the integers do not hold them: the same on every backend."""

import numpy as np

from tiga.types import DType


def truncated(x: np.ndarray, to: DType) -> np.ndarray:
    """Floats without their fractions, as an integer type.

    NaN is 0; values past the range of 32 bits (64 for 64-bit targets) become its ends, and 8- and
    16-bit targets keep the low bits.

    Example:
        >>> import numpy as np
        >>> from tiga.ops.truncation import truncated
        >>> from tiga.types import int32
        >>> truncated(np.array([-1.5, 1e20, np.nan]), int32).tolist()
        [-1, 2147483647, 0]
    """
    wide = np.dtype(np.int64 if to.itemsize == 8 else np.int32)
    limits, beyond = np.iinfo(wide), -float(np.iinfo(wide).min)
    x = x if x.dtype.kind == "f" else x.astype(np.float32)
    whole = np.where((x >= -beyond) & (x < beyond), x, 0).astype(wide)
    whole = np.where(x >= beyond, limits.max, np.where(x < -beyond, limits.min, whole))
    return whole.astype(to.numpy)
