"""From expressions to values: numpy for small programs, compiled kernels for large ones."""

import sys
from collections.abc import Callable, Sequence
from functools import cache
from time import perf_counter
from typing import Any
from weakref import ref

import numpy as np

from tiga import knobs
from tiga.errors import OutOfBudget
from tiga.frontends.tensor.arrays import duplicate
from tiga.frontends.tensor.by_numpy import SHORT, Evaluation, by_recursion, in_order
from tiga.frontends.tensor.core import Tensor
from tiga.frontends.tensor.devices import CPU
from tiga.frontends.tensor.inspection import hash_of
from tiga.frontends.tensor.lazy import COMPILE_FROM, LARGE, OWN_REFERENCES, Cell, LazyNode, leaf
from tiga.frontends.tensor.memory.working import working
from tiga.frontends.tensor.placement import are_on_cpu, device_of_node, is_apart
from tiga.frontends.tensor.recipe import Made, made_by
from tiga.frontends.tensor.storage import give_array, share
from tiga.frontends.tensor.waiting import pending, stands_for_many
from tiga.runtime.collector import uncollected
from tiga.runtime.scope import active
from tiga.trace.node import Node


def report(tensor: Tensor) -> dict[str, Any]:
    """How a tensor was computed, and what tells its program from others."""
    how = tensor._execution
    told: dict[str, Any] = how if isinstance(how, dict) else how.report()
    if "semantic_hash" not in told:
        told["semantic_hash"] = hash_of(tensor)
    return told


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
    try:
        with working(tensors):
            _realize_all(tensors)
    except OutOfBudget:
        from tiga.frontends.tensor.memory.tiling import realize_each_in_tiles

        if not realize_each_in_tiles(tensors):
            raise


def _realize_all(tensors: Sequence[Tensor]) -> None:
    mode = knobs.read("tensor_backend")
    if len(tensors) == 1 and tensors[0]._array is None and tensors[0]._node.cell is None:
        _realize_one(tensors[0], mode)
        return
    waiting = [t for t in tensors if t._array is None]
    if len(waiting) > 1 and is_apart([t._node for t in waiting]):
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
        array = by_recursion(node)
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
    if not are_on_cpu(roots):
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
    arrays = in_order(order, roots)
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
