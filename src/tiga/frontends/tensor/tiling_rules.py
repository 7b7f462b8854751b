"""Which rows of an op's operands its rows, or its share of a total, come from."""

from collections.abc import Callable
from typing import Any

import numpy as np

from tiga.ops.base import Pointwise
from tiga.ops.feature import Concat, Permute, Reshape
from tiga.ops.tensor_index import ArgSort, IndexTake, TakeAlong
from tiga.ops.tensor_matmul import Matmul
from tiga.ops.tensor_reduce import (
    AllTrue,
    AnyTrue,
    ArgExtremum,
    Max,
    Min,
    Prod,
    Quantifier,
    Reduction,
    Sum,
)
from tiga.ops.tensor_scan import AxisScan
from tiga.ops.tensor_views import Slice
from tiga.trace.node import Node

FOLDS: dict[type, Callable[[Any, Any], Any]] = {
    Sum: np.add, Prod: np.multiply, Max: np.maximum, Min: np.minimum,
    AllTrue: np.logical_and, AnyTrue: np.logical_or,
}  # fmt: skip
"""How the reductions of tiles are joined."""

ALONG_AN_AXIS = (ArgExtremum, ArgSort, Concat, AxisScan, Slice, TakeAlong)
"""Ops on lines along their `axis`: of the same rows, unless that is the first."""


def needs(node: Node) -> tuple[bool, ...] | None:
    """For each input, whether a row of the node comes from the same row of it (else from all of
    it); None where rows depend on other rows."""
    op: Any = node.op
    if not _by_rows(op, node):
        return None
    if isinstance(op, IndexTake):
        return op.axis != 0, op.axis == 0
    if isinstance(op, Matmul):
        return True, len(node.type.shape) > 2
    return (True,) * len(node.inputs)


def _by_rows(op: Any, node: Node) -> bool:
    if isinstance(op, (Reduction, Quantifier)):
        return 0 not in op.axes
    if isinstance(op, IndexTake):
        return bool(op.axis or node.inputs[1].type.shape)
    if isinstance(op, ALONG_AN_AXIS):
        return bool(op.axis != 0)
    if isinstance(op, Permute):
        return bool(op.axes) and op.axes[0] == 0
    if isinstance(op, Reshape):
        return op.to[:1] == node.inputs[0].type.shape[:1]
    return isinstance(op, (Pointwise, Matmul))


def turns(node: Node) -> bool:
    """Whether rows of a matrix become its columns."""
    return isinstance(node.op, Permute) and node.op.axes == (1, 0)


def join_of(node: Node) -> Callable[[Any, Any], Any] | None:
    """How what a node makes of some rows is joined with what it makes of others, if it is."""
    op: Any = node.op
    if isinstance(op, (Reduction, Quantifier)) and 0 in op.axes:
        return FOLDS.get(type(op))
    if isinstance(op, Matmul) and turns(node.inputs[0]):
        return np.add
    return None
