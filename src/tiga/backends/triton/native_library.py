"""Products of node values, sums by index, and rearranged global values, in kernels of our own."""

from functools import lru_cache
from typing import Any

import numpy as np

from tiga.backends.triton.dense.adds import add_at
from tiga.backends.triton.dense.executable import compile_dense
from tiga.backends.triton.dense.matmul import ProductTile, product
from tiga.backends.triton.dense.moves import copy_into
from tiga.backends.triton.dense.outer import outer_sum
from tiga.backends.triton.dense.run import Room
from tiga.backends.triton.index_arrays import ARRAYS, IndexArray, index_array
from tiga.backends.triton.library import table_blocks
from tiga.backends.triton.totals import sum_pieces
from tiga.ops.feature import moved_lanes
from tiga.ops.leaf import Input
from tiga.ops.lookup import index_sum
from tiga.ops.tensor_reduce import Max, Min, Prod, Sum
from tiga.runtime.device_array import DeviceArray
from tiga.trace.node import Node
from tiga.trace.program import Program

REDUCTIONS = {kind.combine: kind for kind in (Sum, Prod, Max, Min)}


def call_library(node: Node, inputs: list[DeviceArray], out: DeviceArray) -> None:
    """Compute a library node into its array. Arrays are contiguous, entity axis first."""
    if out.size == 0:
        return
    machine: Any = out.machine
    room = Room(machine)
    if node.op.moves:
        _move(node, inputs, out, room)
    elif not node.op.stands_alone:
        _reduce(node, inputs[0], out, room)
    elif node.op.by_index:
        _index_sum(node, inputs, out, room)
    elif node.op.table is not None:
        _contract(node, inputs, out, room)
    else:
        _outer_sum(node, inputs, out, room)


def _contract(node: Node, inputs: list[DeviceArray], out: DeviceArray, room: Room) -> None:
    x, matrix = inputs
    inner, outer = node.inputs[1].type.shape
    rows = out.size // outer
    tile = ProductTile.of(rows, outer, inner)
    grid = (-(-rows // tile.rows), -(-outer // tile.columns), 1)
    source = product(node.type.dtype, tile)
    launch = room.machine.bind(source, grid, [None, None, None, rows, outer, inner])
    launch([x.address, matrix.address, out.address])


def _outer_sum(node: Node, inputs: list[DeviceArray], out: DeviceArray, room: Room) -> None:
    x, y = inputs
    inner, outer = node.type.shape
    if x.size == 0:
        room.machine.zero(out.address, out.nbytes)
        return
    outer_sum(x, y, out, node.type.dtype, inner, outer, room)


def _index_sum(node: Node, inputs: list[DeviceArray], out: DeviceArray, room: Room) -> None:
    """Rows added to those of a table per block of rows, in their order, then the tables' sum. One
    more row of each table takes what names none."""
    index, y = inputs
    extent, dtype = node.op.extent, node.type.dtype
    if index.size == 0:
        room.machine.zero(out.address, out.nbytes)
        return
    place = ARRAYS.cast(index_array(index.reshape(index.size)), 64)
    known = (place >= 0) & (place < extent)
    place = extent - (extent - place) * known
    size, count = node.type.size // max(extent, 1), place.size
    blocks = table_blocks(count, extent)
    if blocks > 1:
        place = place + ARRAYS.positions(place, count) * blocks // count * (extent + 1)
    tables = room.like((blocks, extent + 1, size), out.dtype)
    add_at(tables, y, place, 1, blocks * (extent + 1), dtype, room.machine)
    added = tables if blocks == 1 else _together(node, tables, room)
    room.machine.copy(out.address, added.address, out.nbytes)


def _together(node: Node, tables: DeviceArray, room: Room) -> DeviceArray:
    """The sum of tables of one row more than the node's."""
    blocks, *shape = tables.shape
    added = room.like(tuple(shape), tables.dtype)
    source = sum_pieces("tables", index_sum(node.op.extent + 1, *node.inputs))
    launch = room.machine.bind(source, (1, source.tile.windows, 1), [None, None, blocks])
    launch([tables.address, added.address])
    return added


def _move(node: Node, inputs: list[DeviceArray], out: DeviceArray, room: Room) -> None:
    """Pick every element of the result from those of the inputs and a zero after them."""
    flat = [index_array(x.reshape(x.size)) for x in inputs]
    zero = ARRAYS.full(flat[0], 1, 0)
    picked = ARRAYS.join([*flat, zero])[_chosen(node, room.machine)]
    room.machine.copy(out.address, picked.address, out.nbytes)


@lru_cache(maxsize=1024)
def _chosen(node: Node, machine: Any) -> IndexArray:
    """The position of every element of a movement's result in its inputs and the zero after."""
    lanes = moved_lanes(node)
    zero = sum(n.type.size for n in node.inputs)
    chosen: IndexArray = machine.platform.sent(np.where(lanes >= 0, lanes, zero).ravel())
    return chosen


def _reduce(node: Node, x: DeviceArray, out: DeviceArray, room: Room) -> None:
    """A reduction of a global value over one axis."""
    type_ = node.inputs[0].type
    given = Input("x", type_)()
    reduced = REDUCTIONS[node.op.combine]((node.op.axis,))(given)
    executable = compile_dense(Program((given,), (reduced,)))
    (found,) = executable.run([x.reshape(type_.shape)], room)
    copy_into(out, found.reshape(out.shape))
