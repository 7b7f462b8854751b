"""Values of expressions by numpy, op by op: what small programs are not compiled for."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tiga.backends.reference.dense import call_op
from tiga.frontends.tensor.lazy import LazyNode
from tiga.trace.node import Node
from tiga.trace.origin import Origin
from tiga.types import bfloat16, float16

SHORT = 32
"""Links of the longest chain that is evaluated by recursion."""


class Evaluation(NamedTuple):
    """How values were computed by numpy."""

    seconds: float

    def report(self) -> dict[str, Any]:
        """As `Tensor.execution` tells it."""
        total = self.seconds * 1e3
        return {"backend": "python-oracle", "cache_hit": False, "compile_ms": 0.0,
                "launch_ms": total, "materialize_ms": total, "saved_bytes": 0}  # fmt: skip


def in_order(order: Sequence[Node], roots: Sequence[Node]) -> list[np.ndarray]:
    """Values of `roots`; `order` has the nodes to compute, each after its inputs."""
    known: dict[int, np.ndarray] = {}
    with np.errstate(all="ignore"):
        for node in order:
            arrays = []
            for child in node.inputs:
                found = known.get(id(child))
                arrays.append(child.cell.array if found is None else found)
            known[id(node)] = _evaluated(node, arrays)
    return [_owned(known[id(root)], root) for root in roots]


def by_recursion(root: LazyNode) -> np.ndarray:
    """The value of an expression of few links, in less time."""
    if root.op.defers:
        cells = [child.cell for child in root.inputs]
        if None not in cells:
            array: np.ndarray = root.op.compute(*[cell.array for cell in cells])
            return array
    with np.errstate(all="ignore"):
        return _owned(_recursive(root, {}), root)


def _recursive(node: Node, known: dict[int, np.ndarray]) -> np.ndarray:
    arrays = []
    for child in node.inputs:
        cell = child.cell
        if cell is not None:
            arrays.append(cell.array)
            continue
        found = known.get(id(child))
        arrays.append(_recursive(child, known) if found is None else found)
    known[id(node)] = value = _evaluated(node, arrays)
    return value


def _evaluated(node: Node, arrays: Sequence[np.ndarray]) -> np.ndarray:
    op, dtype = node.op, node.type.dtype
    if op.pointwise and dtype is not float16 and dtype is not bfloat16:
        value = op.reference(*arrays)
        target = dtype.numpy
        return value if value.dtype is target else np.asarray(value, target)
    if op.origin is Origin.NUMBER:
        return np.broadcast_to(np.asarray(op.value, dtype.numpy), op.of.shape)
    return call_op(node, arrays)


def _owned(array: np.ndarray, node: Node) -> np.ndarray:
    """The value as an array in row-major memory of its own."""
    fresh = array.__class__ is np.ndarray and array.base is None and node.inputs
    return array if fresh and array.flags.c_contiguous else np.array(array, order="C")
