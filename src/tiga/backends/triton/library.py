"""Dense products of node values, sums by index, and rearranged global values, through torch."""

from functools import lru_cache
from typing import Any

import numpy as np

from tiga.ops.feature import moved_lanes
from tiga.trace.node import Node

BLOCK_ROWS = 1024
"""Rows per partial sum of outer products: a fixed order whatever the GPU."""

MOST_TABLES = 512
"""Tables that rows are added to side by side."""

ROWS_PER_ENTRY = 16
"""The fewest rows, in the mean, that a row of one of several tables is made of."""


def call_library(node: Node, inputs: list[Any], out: Any) -> None:
    """Compute a library node into its tensor. Tensors are contiguous, entity axis first."""
    if not out.numel():
        return
    if not node.op.stands_alone:
        _rearrange(node, inputs, out)
    elif node.op.by_index:
        _index_sum(node, inputs, out)
    elif node.op.table is not None:
        _contract(node, inputs, out)
    else:
        _outer_sum(node, inputs, out)


def _contract(node: Node, inputs: list[Any], out: Any) -> None:
    import torch

    x, matrix = inputs
    inner, outer = node.inputs[1].type.shape
    torch.mm(x.reshape(-1, inner), matrix.reshape(inner, outer), out=out.view(-1, outer))


def _outer_sum(node: Node, inputs: list[Any], out: Any) -> None:
    """Per block of rows, then the blocks' sum in a fixed order."""
    import torch

    x, y = inputs
    inner, outer = node.type.shape
    left, right = x.reshape(-1, inner), y.reshape(-1, outer)
    full = len(left) // BLOCK_ROWS * BLOCK_ROWS
    wide = torch.float32 if left.dtype.itemsize == 2 else left.dtype
    blocks = left[:full].view(-1, BLOCK_ROWS, inner).transpose(1, 2)
    pieces = torch.bmm(blocks.to(wide), right[:full].view(-1, BLOCK_ROWS, outer).to(wide))
    rest = left[full:].to(wide).T @ right[full:].to(wide)
    out.view(inner, outer).copy_(pieces.sum(0) + rest)


def _index_sum(node: Node, inputs: list[Any], out: Any) -> None:
    """Rows added to those of a table: a table per block of rows, then the tables' sum.

    torch sorts rows by index and adds those of one index in their order, one after another: many
    rows to few indices would take long. One more row of each table takes what names none.
    """
    import torch

    index, y = inputs
    extent, size = node.op.extent, node.type.size // max(node.op.extent, 1)
    known = (index >= 0) & (index < extent)
    place = torch.where(known, index, extent).reshape(-1)
    count = len(place)
    blocks = table_blocks(count, extent)
    if blocks > 1:
        number = torch.arange(count, device=place.device)
        place = place + (number * blocks).div_(count, rounding_mode="floor") * (extent + 1)
    tables = y.new_zeros(blocks * (extent + 1), size)
    tables.index_put_((place,), y.reshape(count, size), accumulate=True)
    out.view(extent, size).copy_(tables.view(blocks, extent + 1, size)[:, :extent].sum(0))


def table_blocks(rows: int, extent: int) -> int:
    """Into how many blocks so many rows are cut that are added to a table of `extent` rows: by
    their numbers alone, and so that the tables take little beside the rows."""
    return max(1, min(MOST_TABLES, rows // (ROWS_PER_ENTRY * (extent + 1))))


def _rearrange(node: Node, inputs: list[Any], out: Any) -> None:
    import torch

    if not node.op.moves:
        (x,) = inputs
        source = x.reshape(node.inputs[0].type.shape)
        kinds = {"add": torch.sum, "mul": torch.prod, "maximum": torch.amax, "minimum": torch.amin}
        out.view(node.type.shape).copy_(kinds[node.op.combine](source, node.op.axis))
        return
    flat = torch.cat([*(x.reshape(-1) for x in inputs), inputs[0].new_zeros(1)])
    torch.index_select(flat, 0, _chosen(node, flat.device), out=out.view(-1))


@lru_cache(maxsize=1024)
def _chosen(node: Node, device: Any) -> Any:
    """The position of every element of a movement's result in its inputs and the zero after them.

    Copied to the device once: a copy from the CPU waits, and no CUDA graph can hold it.
    """
    import torch

    lanes = moved_lanes(node)
    zero = sum(n.type.size for n in node.inputs)
    return torch.from_numpy(np.where(lanes >= 0, lanes, zero).ravel()).to(device)
