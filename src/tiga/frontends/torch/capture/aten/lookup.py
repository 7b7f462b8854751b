"""Values by an integer field: rows of a global table, and elements along a feature axis."""

from tiga.frontends.torch.capture.aten.table import Call, aten, feature_axis
from tiga.ops.align import expand_to
from tiga.ops.feature import concat, feature_sum, reshape, take
from tiga.ops.leaf import constant, stop_gradient, zeros_like
from tiga.ops.lookup import lookup
from tiga.ops.pointwise import add, cast, eq, ge, logical_and, lt, where
from tiga.trace.node import Node
from tiga.types import GLOBAL, int64

MOST_PICKED_FROM = 64
"""The extent of an axis up to which picking along it is fused: every element is looked at."""


def rows_of(call: Call, table: Node, index: Node, lowest: int) -> Node:
    """The rows of a table; `lowest` is the least index that names one, counted from the end below
    zero."""
    if table.type.space != GLOBAL or not table.type.shape:
        raise call.unfusable("a table that differs from edge to edge")
    if index.type.dtype.kind not in "iu":
        raise call.unfusable(f"an index of dtype {index.type.dtype}")
    extent = table.type.shape[0]
    call.bound(index, lowest, extent - 1)
    index = cast(index, int64)
    if lowest < 0:
        from_end = add(index, constant(extent, index.type))
        index = where(lt(index, constant(0, index.type)), from_end, index)
    return lookup(table, index)


@aten("embedding")
def _embedding(
    call: Call, table: Node, index: Node, padding_idx: int = -1,
    scale_grad_by_freq: bool = False, sparse: bool = False,
) -> Node:  # fmt: skip
    if scale_grad_by_freq:
        raise call.unfusable("gradients scaled by how often an index occurs")
    found = rows_of(call, table, index, 0)
    if padding_idx < 0:
        return found
    padding = eq(index, constant(padding_idx, index.type))
    axes = len(found.type.shape) - len(index.type.shape)
    padding = reshape(padding, (*padding.type.shape, *(1,) * axes))
    spread = expand_to(padding, found.type.shape, found.type.space)
    return where(spread, stop_gradient(found), found)


@aten("gather")
def _gather(call: Call, x: Node, dim: int, index: Node, *, sparse_grad: bool = False) -> Node:
    """Elements along a feature axis: the sum over the axis of what the index does not mask."""
    if GLOBAL in (x.type.space, index.type.space):
        raise call.unfusable("picking from, or by, a value that all edges share")
    axis = feature_axis(call, x, dim)
    extent, shape = x.type.shape[axis], index.type.shape
    if extent > MOST_PICKED_FROM:
        raise call.unfusable(f"picking from more than {MOST_PICKED_FROM} elements")
    call.bound(index, 0, extent - 1)
    for other, count in enumerate(shape):
        if other != axis and count < x.type.shape[other]:
            x = take(x, other, tuple(range(count)))
    # The axis itself, and after it one for what is picked.
    before, after = shape[:axis], shape[axis:]
    at = reshape(cast(index, int64), (*before, 1, *after))
    is_picked = concat(axis, *(eq(at, constant(i, at.type)) for i in range(extent)))
    whole, space = (*before, extent, *after), at.type.space
    each = expand_to(reshape(x, (*before, extent, 1, *after[1:])), whole, space)
    found = feature_sum(where(is_picked, each, zeros_like(each)), axis)
    if not found.type.dtype.is_float:
        return found
    at = reshape(at, found.type.shape)
    inside = logical_and(ge(at, constant(0, at.type)), lt(at, constant(extent, at.type)))
    return where(inside, found, constant(float("nan"), found.type))
