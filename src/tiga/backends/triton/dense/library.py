"""Ops of whole-tensor programs that stand by themselves on a GPU: views, joins, picks, products."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tiga.backends.triton.dense import rows as rows
from tiga.backends.triton.dense.adds import add_at, linear_places, places_of
from tiga.backends.triton.dense.matmul import ProductTile, product
from tiga.backends.triton.dense.moves import contiguous, copy_into, pick_into
from tiga.backends.triton.dense.ordered import add_in_order
from tiga.backends.triton.dense.run import Room
from tiga.backends.triton.dense.sort import search_sorted, sorted_rows
from tiga.backends.triton.dense.values import part_dtype
from tiga.backends.triton.layout import padded
from tiga.errors import UnsupportedByBackend
from tiga.ops.feature import Broadcast, Permute, Reshape
from tiga.ops.leaf import StopGradient
from tiga.ops.tensor_views import Slice, along, stepped
from tiga.runtime.device_array import DeviceArray, upload
from tiga.trace.node import Node

Call = Callable[[Node, Sequence[DeviceArray], Room], DeviceArray]


def call_library(node: Node, inputs: Sequence[DeviceArray], room: Room) -> DeviceArray:
    """One op on arrays of a GPU.

    Raises:
        UnsupportedByBackend: it has no form there.
    """
    if node.type.size == 0 or any(child.type.size == 0 for child in node.inputs):
        return _of_nothing(node, inputs, room)
    call = CALLS.get(node.op.name)
    if call is None:
        raise UnsupportedByBackend(
            f"{node.op.name} of {', '.join(str(n.type.dtype) for n in node.inputs)} has no form on "
            f"GPUs yet (built at {node.where}); copy its operands to the CPU by name: x.cpu()."
        )
    return call(node, inputs, room)


def _of_nothing(node: Node, inputs: Sequence[DeviceArray], room: Room) -> DeviceArray:
    """A result that depends on extents and on no element, or has none."""
    made = room.array(node.type)
    if node.type.size == 0:
        return made
    nothing = [np.empty((1, *a.shape), a.dtype) for a in inputs if a.size == 0]
    if len(nothing) < len(inputs):
        return CALLS[node.op.name](node, inputs, room)
    value = np.broadcast_to(node.op.reference(*nothing)[0], node.type.shape)
    return upload(np.asarray(value, node.type.dtype.numpy), room.machine, made.memory)


# views


def _reshape(node: Node, inputs: Sequence[DeviceArray], room: Room) -> DeviceArray:
    return contiguous(inputs[0]).reshape(node.type.shape)


def _permute(node: Node, inputs: Sequence[DeviceArray], room: Room) -> DeviceArray:
    return inputs[0].transpose(node.op.axes)


def _broadcast(node: Node, inputs: Sequence[DeviceArray], room: Room) -> DeviceArray:
    view: Any = np.broadcast_to(inputs[0], node.type.shape)
    return view


def _slice(node: Node, inputs: Sequence[DeviceArray], room: Room) -> DeviceArray:
    op = node.op
    return inputs[0][along(op.axis, stepped(op.start, op.count, op.step))]


def _same(node: Node, inputs: Sequence[DeviceArray], room: Room) -> DeviceArray:
    return inputs[0]


# copies


def _join(node: Node, inputs: Sequence[DeviceArray], room: Room) -> DeviceArray:
    made, start = room.array(node.type), 0
    for part in inputs:
        count = part.shape[node.op.axis]
        copy_into(made[along(node.op.axis, slice(start, start + count))], part)
        start += count
    return made


def _unslice(node: Node, inputs: Sequence[DeviceArray], room: Room) -> DeviceArray:
    made, op = room.array(node.type), node.op
    room.machine.zero(made.address, made.nbytes)
    count = inputs[0].shape[op.axis]
    copy_into(made[along(op.axis, stepped(op.start, count, op.step))], inputs[0])
    return made


def _pick(node: Node, inputs: Sequence[DeviceArray], room: Room) -> DeviceArray:
    made = room.array(node.type)
    x, index = map(contiguous, inputs)
    pick_into(made, x, index, node.op.axis, node.op.per_line, node.where)
    return made


def _reorder(node: Node, inputs: Sequence[DeviceArray], room: Room) -> DeviceArray:
    made = room.array(node.type)
    x, order = map(contiguous, inputs[:2])
    pick_into(made, x, order, 0, False, node.where, checked=True)
    return made


def _index_add(node: Node, inputs: Sequence[DeviceArray], room: Room) -> DeviceArray:
    made, op = room.array(node.type), node.op
    values, index = map(contiguous, inputs)
    outer = math.prod(made.shape[: op.axis])
    places = places_of(index, op.extent, node.where)
    add_at(made, values, places, outer, op.extent, node.type.dtype, room.machine)
    return made


def _add_along(node: Node, inputs: Sequence[DeviceArray], room: Room) -> DeviceArray:
    made, op = room.array(node.type), node.op
    values, index = map(contiguous, inputs)
    places = places_of(index, op.extent, node.where)
    linear = linear_places(places, index.shape, op.axis, op.extent)
    add_at(made, values, linear, 1, made.size, node.type.dtype, room.machine)
    return made


# kernels along the last axis


def _last(array: DeviceArray, axis: int) -> DeviceArray:
    """A contiguous array with this axis last."""
    order = [i for i in range(array.ndim) if i != axis]
    return contiguous(array.transpose([*order, axis]))


def _first(array: DeviceArray, axis: int) -> DeviceArray:
    """A view with the last axis at this place."""
    order = list(range(array.ndim - 1))
    order.insert(axis, array.ndim - 1)
    return array.transpose(order)


def _argument(node: Node, inputs: Sequence[DeviceArray], room: Room) -> DeviceArray:
    dtype = node.inputs[0].type.dtype
    if dtype.is_complex:
        raise UnsupportedByBackend(f"{node.op.name} of complex numbers has no order.")
    x, made = _last(inputs[0], node.op.axis), room.array(node.type)
    columns = x.shape[-1]
    source = rows.arg_extremum(node.op.name, dtype, rows.window_of(columns))
    room.machine.bind(source, (x.size // columns, 1, 1), [None, None, columns])(
        [x.address, made.address]
    )
    return made


def _running_sum(node: Node, inputs: Sequence[DeviceArray], room: Room) -> DeviceArray:
    dtype, axis = node.type.dtype, node.op.axis
    given = _pairs(contiguous(inputs[0])) if dtype.is_complex else inputs[0]
    x = _last(given, axis)
    columns, made = x.shape[-1], room.like(x.shape, x.dtype)
    source = rows.running_sum(part_dtype(dtype), bool(node.op.reverse), rows.window_of(columns))
    room.machine.bind(source, (x.size // columns, 1, 1), [None, None, columns])(
        [x.address, made.address]
    )
    summed = _first(made, axis)
    if not dtype.is_complex:
        return summed
    whole = contiguous(summed)
    return DeviceArray(whole.memory, node.type.shape, dtype.numpy, None, whole.address)


def _pairs(array: DeviceArray) -> DeviceArray:
    """Complex numbers that lie one after another, as pairs of real ones along a last axis."""
    real = np.empty(0, array.dtype).real.dtype
    return DeviceArray(array.memory, (*array.shape, 2), real, None, array.address)


def _argsort(node: Node, inputs: Sequence[DeviceArray], room: Room) -> DeviceArray:
    dtype, op = node.inputs[0].type.dtype, node.op
    columns = inputs[0].shape[op.axis]
    x = _last(inputs[0], op.axis)
    if not rows.sortable(dtype, columns):
        return _first(sorted_rows(x, dtype, bool(op.descending)).reshape(x.shape), op.axis)
    made = room.like(x.shape, node.type.dtype.numpy)
    source = rows.argsort(dtype, bool(op.descending), padded(columns))
    room.machine.bind(source, (x.size // columns, 1, 1), [None, None, columns])(
        [x.address, made.address]
    )
    return _first(made, op.axis)


def _search_sorted(node: Node, inputs: Sequence[DeviceArray], room: Room) -> DeviceArray:
    x, bounds = inputs
    dtypes = [child.type.dtype for child in node.inputs]
    if dtypes[0] != dtypes[1]:
        raise UnsupportedByBackend(
            f"searchsorted of {dtypes[1]} in {dtypes[0]} on a GPU (built at {node.where}): give "
            "both the same type, x.astype(...)."
        )
    made = room.array(node.type)
    search_sorted(contiguous(x), contiguous(bounds), made, bool(node.op.right), dtypes[0])
    return made


def _matmul(node: Node, inputs: Sequence[DeviceArray], room: Room) -> DeviceArray:
    a, b = map(contiguous, inputs)
    made = room.array(node.type)
    *batch, count, inner = a.shape
    columns = b.shape[-1]
    tile = ProductTile.of(count, columns, inner)
    grid = (-(-count // tile.rows), -(-columns // tile.columns), math.prod(batch))
    source = product(node.type.dtype, tile)
    room.machine.bind(source, grid, [None, None, None, count, columns, inner])(
        [a.address, b.address, made.address]
    )
    return made


def _walk(node: Node, inputs: Sequence[DeviceArray], room: Room) -> DeviceArray:
    """A program over a graph, which knows by itself how it runs."""
    found: DeviceArray = node.op.compute_on_gpu([contiguous(x) for x in inputs], room)
    return found


CALLS: dict[str, Call] = {
    "reshape": _reshape, "permute": _permute, "broadcast": _broadcast, "slice": _slice,
    "stop_gradient": _same, "join": _join, "concat": _join, "unslice": _unslice,
    "index_take": _pick, "take_along": _pick, "argmax": _argument, "argmin": _argument,
    "index_add": _index_add, "add_along": _add_along, "cumsum": _running_sum,
    "argsort": _argsort, "search_sorted": _search_sorted, "matmul": _matmul, "reorder": _reorder,
    "graph_call": _walk, "ordered_sum": add_in_order,
}  # fmt: skip

VIEWS = (Reshape, Permute, Broadcast, Slice, StopGradient)
"""Ops that read the operand's memory in another way."""
