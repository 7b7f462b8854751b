"""One op of a whole-tensor program by numpy."""

from collections.abc import Sequence

import numpy as np

from tiga.trace.node import Node
from tiga.types import DType


def widened(array: np.ndarray, dtype: DType) -> np.ndarray:
    """16-bit floats as float32, everything else as it is."""
    return array if dtype == dtype.compute else array.astype(np.float32)


def apply_op(node: Node, arrays: Sequence[np.ndarray]) -> np.ndarray:
    """The op on arrays with a leading axis of 1; 16-bit floats are widened, and rounded after."""
    if getattr(node.op, "widens", True):
        arrays = [widened(a, n.type.dtype) for a, n in zip(arrays, node.inputs, strict=True)]
    value = node.op.reference(*arrays)
    target = node.type.dtype.numpy
    return value if value.dtype == target else value.astype(target)
