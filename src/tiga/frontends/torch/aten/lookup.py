"""Rows of a global table by an integer field: embeddings, and tensors indexed by one."""

from tiga.frontends.torch.aten.table import Call, aten
from tiga.ops.align import expand_to
from tiga.ops.feature import reshape
from tiga.ops.leaf import constant, stop_gradient
from tiga.ops.lookup import lookup
from tiga.ops.pointwise import add, cast, eq, lt, where
from tiga.trace.node import Node
from tiga.types import GLOBAL, int64


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
