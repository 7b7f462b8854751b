"""From expressions to values: numpy for small programs, compiled kernels for large ones."""

import sys
from collections.abc import Callable, Sequence
from functools import cache
from time import perf_counter
from typing import Any, NamedTuple
from weakref import ref

import numpy as np

from tiga import knobs
from tiga.backends.reference.dense import apply_op
from tiga.errors import InvalidIndex, OutOfBudget
from tiga.frontends.tensor.arrays import duplicate
from tiga.frontends.tensor.core import Tensor, give_array, share
from tiga.frontends.tensor.devices import CPU, Device
from tiga.frontends.tensor.lazy import (
    COMPILE_FROM,
    LARGE,
    OWN_REFERENCES,
    Cell,
    LazyNode,
    Leaf,
    leaf,
)
from tiga.frontends.tensor.placement import places
from tiga.frontends.tensor.recipe import Made, made_by
from tiga.ops.base import Pointwise
from tiga.ops.dense import Dense
from tiga.ops.leaf import StopGradient
from tiga.ops.pointwise import Cast, Where
from tiga.ops.tensor_complex import RealLinear
from tiga.ops.tensor_transfer import ToDevice
from tiga.runtime.collector import uncollected
from tiga.runtime.scope import active
from tiga.trace.node import Node
from tiga.trace.origin import Origin
from tiga.types import bfloat16, float16


class Evaluation(NamedTuple):
    """How values were computed by numpy."""

    seconds: float

    def report(self) -> dict[str, Any]:
        """As `Tensor.execution` tells it."""
        total = self.seconds * 1e3
        return {"backend": "python-oracle", "cache_hit": False, "compile_ms": 0.0,
                "launch_ms": total, "materialize_ms": total, "saved_bytes": 0}  # fmt: skip


def call(node: Node, arrays: Sequence[np.ndarray]) -> np.ndarray:
    """One op by numpy; its arrays have no leading axis here."""
    try:
        if isinstance(node.op, Dense) and not node.op.widens:
            return np.asarray(node.op.compute(*arrays))
        value = apply_op(node, [array[None] for array in arrays])
    except IndexError as error:
        raise InvalidIndex(f"{node.op.name}: {error} (built at {node.where}).") from None
    return value.reshape(node.type.shape) if value.size == node.type.size else value[0]


def pending(roots: Sequence[Node]) -> list[Node]:
    """The nodes that must be computed for `roots`, each after its inputs."""
    order: list[Node] = []
    seen: set[int] = set()
    stack = list(reversed(roots))
    while stack:
        node = stack[-1]
        key = id(node)
        if key in seen or node.cell is not None:
            stack.pop()
            continue
        waiting = [c for c in node.inputs if id(c) not in seen and c.cell is None]
        if waiting:
            stack.extend(reversed(waiting))
            continue
        seen.add(key)
        order.append(node)
        stack.pop()
    return order


def report(tensor: Tensor) -> dict[str, Any]:
    """How a tensor was computed, and what tells its program from others."""
    how = tensor._execution
    told: dict[str, Any] = how if isinstance(how, dict) else how.report()
    if "semantic_hash" not in told:
        from tiga.frontends.tensor.inspection import hash_of

        told["semantic_hash"] = hash_of(tensor)
    return told


def evaluate_numpy(order: Sequence[Node], roots: Sequence[Node]) -> list[np.ndarray]:
    """Values of `roots` by numpy, op by op in `order`."""
    known: dict[int, np.ndarray] = {}
    with np.errstate(all="ignore"):
        for node in order:
            arrays = []
            for child in node.inputs:
                found = known.get(id(child))
                arrays.append(child.cell.array if found is None else found)
            known[id(node)] = _evaluate_one(node, arrays)
    return [_owned(known[id(root)], root) for root in roots]


def _evaluate_one(node: Node, arrays: Sequence[np.ndarray]) -> np.ndarray:
    op, dtype = node.op, node.type.dtype
    if isinstance(op, Pointwise) and dtype is not float16 and dtype is not bfloat16:
        value = op.reference(*arrays)
        target = dtype.numpy
        return value if value.dtype is target else np.asarray(value, target)
    if op.origin is Origin.NUMBER:
        return np.broadcast_to(np.asarray(op.value, dtype.numpy), op.of.shape)
    return call(node, arrays)


def _small(root: LazyNode) -> np.ndarray:
    """The value of a short expression of small values."""
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
    known[id(node)] = value = _evaluate_one(node, arrays)
    return value


def _owned(array: np.ndarray, node: Node) -> np.ndarray:
    """The value as an array in row-major memory of its own."""
    op = node.op
    if isinstance(op, Pointwise) and not isinstance(op, _ALIASING):
        if array.__class__ is np.ndarray and array.flags.c_contiguous:
            return array
        return np.array(array, order="C")
    fresh = array.__class__ is np.ndarray and array.base is None and node.inputs
    return array if fresh and array.flags.c_contiguous else np.array(array, order="C")


_ALIASING = (RealLinear, StopGradient, Cast, Where)
"""Pointwise ops whose numpy meaning may be the operand's own memory."""


def realize(tensor: Tensor) -> None:
    """Give one tensor its value."""
    if tensor._buffer is not None:
        absent = tensor._buffer.absent
        if absent is not None:  # else another thread has brought it back by now
            absent.restore()
        return
    if tensor._plan is not None:
        plan, tensor._plan = tensor._plan, None
        plan.settle()
        return
    source = tensor._source
    if source is not None:
        base, through = source
        base.realize()
        if tensor._array is None:
            share(tensor, base, through)
        tensor._node.cell = Cell(tensor._in_memory())
        return
    if active() is None and tensor._node.cell is None:
        _realize_one(tensor, knobs.read("tensor_backend"))
    else:
        realize_all([tensor])


def realize_all(tensors: Sequence[Tensor]) -> None:
    """Give tensors their values, in one program, within the budgets in force."""
    if active() is None:
        _realize_all(tensors)
        return
    from tiga.frontends.tensor.working import working

    try:
        with working(tensors):
            _realize_all(tensors)
    except OutOfBudget:
        from tiga.frontends.tensor.tiling import realize_each_in_tiles

        if not realize_each_in_tiles(tensors):
            raise


def _realize_all(tensors: Sequence[Tensor]) -> None:
    mode = knobs.read("tensor_backend")
    if len(tensors) == 1 and tensors[0]._array is None and tensors[0]._node.cell is None:
        _realize_one(tensors[0], mode)
        return
    waiting = [t for t in tensors if t._array is None]
    if len(waiting) > 1 and _is_apart([t._node for t in waiting]):
        for tensor in waiting:
            _realize_all([tensor])
        return
    roots = list({id(t._node): t._node for t in waiting if t._node.cell is None}.values())
    arrays, how = run(roots, mode) if roots else ([], None)
    fresh = dict(zip(map(id, roots), arrays, strict=True))
    numbers = {id(root): number for number, root in enumerate(roots)}
    del roots
    for tensor in waiting:
        number = numbers.get(id(tensor._node), 0)
        array = fresh.pop(id(tensor._node), None)
        # A second tensor of the same value gets memory of its own: it may be written in place.
        _settle(tensor, duplicate(value_of(tensor._node)) if array is None else array, how, number)


def _realize_one(tensor: Tensor, mode: str) -> None:
    node: LazyNode | None = tensor._node
    assert node is not None
    if mode != "native" and node.largest < COMPILE_FROM and node.depth <= SHORT:
        start = perf_counter()
        array = _small(node)
        how: Any = Evaluation(perf_counter() - start)
    elif mode == "auto" and COMPILE_FROM <= node.largest < LARGE:
        (array,), how = _compiler()((node,))
    else:
        (array,), how = run((node,), mode)
    node = None  # `_settle` counts who refers to it
    _settle(tensor, array, how, 0)


@cache
def _compiler() -> Callable[..., Any]:
    """`run_compiled`, which loads the compiler: programs of small values need none."""
    with uncollected():
        from tiga.frontends.tensor.compiled import run_compiled

    return run_compiled


FEW = 4096
"""Elements up to which a value may keep its operands alive, so that its expression can be shown."""

SHORT = 32
"""Links of the longest chain that is evaluated by recursion."""


def _are_on_cpu(roots: Sequence[Node]) -> bool:
    """Whether nothing of any other device is in expressions, as far as their sizes tell."""
    return all(getattr(root, "largest", LARGE) < LARGE for root in roots)


def _is_apart(roots: Sequence[Node]) -> bool:
    """Whether values are on several devices, or need copies between them: no program has both."""
    if _are_on_cpu(roots):
        return False
    order = pending(roots)
    return any(isinstance(n.op, ToDevice) for n in order) or len(set(places(order, roots))) > 1


def device_of_node(node: Node) -> Device:
    """Where a value will be that is not computed yet."""
    if _are_on_cpu([node]):
        return CPU
    (found,) = places(pending([node]), [node])
    return CPU if found is None else found


def _settle(tensor: Tensor, array: np.ndarray, how: Any, number: int) -> None:
    """Store value number `number` of a run. A tensor without derivatives forgets its operands, so
    that a long loop keeps no history; how it was computed can still be shown."""
    node = tensor._node
    give_array(tensor, array)
    tensor._execution = how
    if tensor._grad:
        node.cell = node.cell or Cell(array)
        return
    tensor._node = leaf(array, node.type, node.place)
    shared, few = sys.getrefcount(node) > OWN_REFERENCES, node.largest <= FEW
    if node.cell is None and (shared or few):
        node.cell = Cell(array)
    if few:
        tensor._expression = node
    else:
        recipe = getattr(how, "recipe", None) or made_by(node)
        tensor._expression = Made(recipe, number) if number else recipe
    # Other expressions read the value too: a write in place has to know of it.
    if shared:
        assert tensor._buffer is not None
        tensor._buffer.nodes.append((ref(node), ref(array)))


def stands_for_many(node: Node) -> bool:
    """Whether an expression depends on what stands for all edges, rows or examples."""
    return any(isinstance(below.op, Leaf) for below in pending([node]))


def begin(tensor: Tensor) -> None:
    """Make a computed tensor a leaf, unless it stands for many values and so has none."""
    if stands_for_many(tensor._node):
        return
    tensor.realize()
    tensor._leaf = True
    if tensor._node.inputs:
        assert tensor._array is not None
        tensor._node = leaf(tensor._array, tensor._node.type, tensor._node.place)
        tensor._expression = None


def run(roots: Sequence[Node], mode: str) -> tuple[list[np.ndarray], Any]:
    """Values of `roots`, all on one device, and how they were computed."""
    if not _are_on_cpu(roots):
        from tiga.frontends.tensor.gpu import run_anywhere, run_known

        found: Any = run_known(roots) or run_anywhere(pending(roots), roots, mode)
        if found:
            arrays, how = found
            return arrays, how
    large = mode == "auto" and any(map(_is_surely_large, roots))
    order = [] if large or mode == "native" else pending(roots)
    if mode == "native" or (mode == "auto" and (large or _is_large(order))):
        arrays, how = _compiler()(roots, mode == "native")
        return arrays, how
    start = perf_counter()
    arrays = evaluate_numpy(order, roots)
    return arrays, Evaluation(perf_counter() - start)


def value_of(node: Node) -> Any:
    """The array of a node, computed now if it is not in memory."""
    if node.cell is not None:
        return node.cell.array
    (array,), _ = run((node,), knobs.read("tensor_backend"))
    return array


def _is_surely_large(root: Node) -> bool:
    """Whether a value of the expression is large, as far as that was noted when it was built."""
    return COMPILE_FROM <= getattr(root, "largest", 0) < LARGE or root.type.size >= COMPILE_FROM


def realize_strictly(tensor: Tensor) -> None:
    """Give one computed tensor its value by compiled code whose sums add in order."""
    if tensor._source is None and tensor._plan is None and tensor._node.cell is None:
        device = device_of_node(tensor._node)
        if device != CPU:
            from tiga.frontends.tensor.gpu import run_on_gpu

            found: Any = run_on_gpu([tensor._node], device.index, "native", relaxed=False)
        else:
            found = _compiler()([tensor._node], True, False)
        (array,), how = found
        _settle(tensor, array, how, 0)


def _is_large(order: Sequence[Node]) -> bool:
    for node in order:
        if node.type.size >= COMPILE_FROM:
            return True
        for child in node.inputs:
            if child.type.size >= COMPILE_FROM:
                return True
    return False
