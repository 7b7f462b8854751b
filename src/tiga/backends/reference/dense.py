"""One op of a whole-tensor program by numpy."""

from collections.abc import Sequence

import numpy as np

from tiga.errors import InvalidIndex
from tiga.ops.dense import Dense
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


def call_op(node: Node, arrays: Sequence[np.ndarray]) -> np.ndarray:
    """The op on arrays of its operands' shapes.

    Raises:
        InvalidIndex: a position that does not exist.
    """
    try:
        if isinstance(node.op, Dense) and not node.op.widens:
            return np.asarray(node.op.compute(*arrays))
        value = apply_op(node, [array[None] for array in arrays])
    except IndexError as error:
        raise InvalidIndex(f"{node.op.name}: {error} (built at {node.where}).") from None
    return value.reshape(node.type.shape) if value.size == node.type.size else value[0]
