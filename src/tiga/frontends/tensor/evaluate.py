"""From expressions to values: numpy for small programs, compiled kernels for large ones."""

from collections.abc import Sequence
from time import perf_counter
from typing import Any

import numpy as np

from tiga import knobs
from tiga.errors import InvalidIndex
from tiga.frontends.tensor.core import Tensor, give_array, share
from tiga.frontends.tensor.lazy import Cell, LazyNode, leaf
from tiga.ops.leaf import Constant
from tiga.trace.node import Node
from tiga.types import DType

COMPILE_FROM = 32768
"""Elements of a program's largest value from which it is compiled."""

_HALF = ("float16", "bfloat16")


def pending(roots: Sequence[Node]) -> list[Node]:
    """The nodes that must be computed for `roots`, each after its inputs."""
    order: list[Node] = []
    seen: set[int] = set()
    stack = list(reversed(roots))
    while stack:
        node = stack[-1]
        key = id(node)
        if key in seen or getattr(node, "cell", None) is not None:
            stack.pop()
            continue
        waiting = [c for c in node.inputs if id(c) not in seen and not has_value(c)]
        if waiting:
            stack.extend(reversed(waiting))
            continue
        seen.add(key)
        order.append(node)
        stack.pop()
    return order


def has_value(node: Node) -> bool:
    """Whether the node's value is in memory."""
    return getattr(node, "cell", None) is not None


def _widened(array: np.ndarray, dtype: DType) -> np.ndarray:
    return array.astype(np.float32) if dtype.name in _HALF else array


def apply_numpy(node: Node, arrays: Sequence[np.ndarray]) -> np.ndarray:
    """One op on arrays with a leading axis of 1; 16-bit floats are widened, and rounded after."""
    wide = [_widened(a, n.type.dtype) for a, n in zip(arrays, node.inputs, strict=True)]
    value = node.op.reference(*wide)
    target = node.type.dtype.numpy
    return value if value.dtype == target else value.astype(target)


def evaluate_numpy(order: Sequence[Node], roots: Sequence[Node]) -> list[np.ndarray]:
    """Values of `roots` by numpy, op by op in `order`."""
    known: dict[int, np.ndarray] = {}
    with np.errstate(all="ignore"):
        for node in order:
            arrays = []
            for child in node.inputs:
                found = known.get(id(child))
                arrays.append(child.cell.array[None] if found is None else found)  # type: ignore[attr-defined]
            known[id(node)] = _evaluate_one(node, arrays)
    return [_owned(known[id(root)], root) for root in roots]


def _evaluate_one(node: Node, arrays: Sequence[np.ndarray]) -> np.ndarray:
    dtype = node.type.dtype
    if node.op.name == "constant":
        return _constant_array(node.op)
    try:
        if dtype.name in _HALF or any(c.type.dtype.name in _HALF for c in node.inputs):
            return apply_numpy(node, arrays)
        value = node.op.reference(*arrays)
    except IndexError as error:
        raise InvalidIndex(f"{node.op.name}: {error} (built at {node.where}).") from None
    return value if value.dtype == dtype.numpy else value.astype(dtype.numpy)


def _constant_array(op: Constant) -> np.ndarray:
    one = np.full((1,) * (len(op.of.shape) + 1), op.value, op.of.dtype.numpy)
    return np.broadcast_to(one, (1, *op.of.shape))


def _owned(array: np.ndarray, node: Node) -> np.ndarray:
    """The value without its leading axis, in row-major memory of its own."""
    array = array.reshape(node.type.shape) if array.size == node.type.size else array[0]
    fresh = array.base is None or (array.base.base is None and array.base.size == array.size)
    shared = not array.flags.writeable or not array.flags.c_contiguous or not fresh
    view = shared or not node.inputs or hasattr(node.op, "lanes") or node.op.name in _ALIASING
    return np.array(array, order="C") if view else array


_ALIASING = ("real", "imag", "stop_gradient", "cast", "conj")


def realize(tensor: Tensor) -> None:
    """Give one tensor its value."""
    source = tensor._source
    if source is not None:
        base, through = source
        base.realize()
        if tensor._array is None:
            share(tensor, base, through)
        tensor._node.cell = Cell(tensor._array)  # type: ignore[arg-type]
        return
    realize_all([tensor])


def realize_all(tensors: Sequence[Tensor]) -> None:
    """Give tensors their values, in one program."""
    waiting = [t for t in tensors if t._array is None]
    roots = list({id(t._node): t._node for t in waiting if t._node.cell is None}.values())
    arrays, execution = run(pending(roots), roots) if roots else ([], {})
    fresh = dict(zip(map(id, roots), arrays, strict=True))
    for tensor in waiting:
        node = tensor._node
        array = fresh.pop(id(node), None)
        # A second tensor of the same value gets memory of its own: it may be written in place.
        _settle(tensor, np.array(_known(node)) if array is None else array, execution)


def _known(node: LazyNode) -> np.ndarray:
    assert node.cell is not None
    return node.cell.array


def _settle(tensor: Tensor, array: np.ndarray, execution: dict[str, Any]) -> None:
    """Store a value. A tensor without derivatives forgets how it was computed, but for
    inspection, so that a long loop keeps no history."""
    node = tensor._node
    give_array(tensor, array)
    tensor._execution = execution or None
    if node.cell is None:
        node.cell = Cell(array)
    if tensor._grad:
        return
    tensor._expression = node
    tensor._node = leaf(array, node.type, node.place)


def run(order: Sequence[Node], roots: Sequence[Node]) -> tuple[list[np.ndarray], dict[str, Any]]:
    """Values of `roots`, which need the nodes of `order`, and how they were computed."""
    mode = knobs.tensor_backend()
    if mode == "native" or (mode == "auto" and _is_large(order)):
        from tiga.frontends.tensor.compiled import run_compiled

        return run_compiled(roots, mode == "native")
    start = perf_counter()
    arrays = evaluate_numpy(order, roots)
    return arrays, {
        "backend": "python-oracle",
        "materialize_ms": (perf_counter() - start) * 1e3,
        "saved_bytes": 0,
    }


def _is_large(order: Sequence[Node]) -> bool:
    for node in order:
        if node.type.size >= COMPILE_FROM:
            return True
        for child in node.inputs:
            if child.type.size >= COMPILE_FROM:
                return True
    return False
