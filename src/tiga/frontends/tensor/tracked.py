"""Writes in place that derivatives pass through: the graph of the value is updated too.

The memory is written as always. The expression of every tensor that shows it becomes that of its
new value: where its elements were written, those of what was written, elsewhere its old ones.
Expressions built before keep the old value, and so do their derivatives.
"""

from collections.abc import Sequence
from typing import Any

from tiga.errors import InvalidValue
from tiga.frontends.tensor.arrays import duplicate
from tiga.frontends.tensor.build import apply, relabel
from tiga.frontends.tensor.core import Tensor
from tiga.frontends.tensor.functions.selection import astype
from tiga.frontends.tensor.functions.views import broadcast_to
from tiga.frontends.tensor.lazy import Cell, LazyNode, here
from tiga.frontends.tensor.writes import begin_write, note_nodes, parted, renew
from tiga.frontends.tensor.written_parts import WrittenPart
from tiga.ops.feature import reshape
from tiga.ops.pointwise import where
from tiga.ops.tensor_index import IndexTake
from tiga.trace.node import Node


def is_tracked(viewers: Sequence[Tensor], value: Any) -> bool:
    """Whether derivatives pass through a write of `value` into the first of tensors that show the
    same memory."""
    if isinstance(value, Tensor) and value._grad:
        return True
    same, _ = parted(viewers)
    return any(viewer._grad and not viewer._leaf for viewer in same)


def _check_leaves(viewers: Sequence[Tensor], what: str) -> None:
    """Refuse to make a leaf that derivatives are asked for into a computed value."""
    for viewer in viewers:
        if viewer._grad and viewer._leaf:
            raise InvalidValue(
                f"{what} into the memory of a leaf that requires derivatives, built at "
                f"{viewer.where} ({here()}): it would not be a leaf any more. Use x = x + y, or "
                "write into x.detach() where no derivative is to pass."
            )


def write_tracked(part: WrittenPart, viewers: Sequence[Tensor], value: Tensor) -> Tensor:
    """Write `value` into a part of a tensor, and into the graph; returns the tensor.

    Args:
        viewers: all tensors that show the memory, the tensor itself first.
        value: of a shape that broadcasts to the part; it is cast.
    """
    tensor = part.tensor
    _check_leaves(parted(viewers)[0], part.what)
    given = astype(value, tensor.dtype, copy=False)
    source = broadcast_to(given, part.shape)
    written = duplicate(given._in_memory())
    buffer = begin_write(tensor)
    try:
        _write_recorded(part, viewers, source, written)
    finally:
        buffer.writes.pop()
    return tensor


def _write_recorded(
    part: WrittenPart, viewers: Sequence[Tensor], source: Tensor, written: Any
) -> None:
    same, others = parted(viewers)
    buffer = part.tensor._buffer
    assert buffer is not None
    fresh = [_new_node(viewer, part, source) for viewer in same]
    for node in _holders(viewers):
        _keep(node)
    part.store(written)
    buffer.version += 1
    for viewer, made in zip(same, fresh, strict=True):
        if made is not None:
            viewer._node, viewer._grad, viewer._leaf = made, True, False
            viewer._expression = viewer._execution = viewer._plan = None
        viewer._node.cell = Cell(viewer._array)  # type: ignore[arg-type]
    for viewer in others:
        # A leaf without the history of what was written: derivatives by its old value are refused.
        if viewer._node.cell is not None:
            viewer._node.cell.stale = True
        renew(viewer)
    note_nodes(buffer, viewers)


def _holders(viewers: Sequence[Tensor]) -> list[LazyNode]:
    """All expressions that show the memory."""
    buffer = viewers[0]._buffer
    assert buffer is not None
    others = [node() for node, _ in buffer.nodes]
    nodes = (*(viewer._node for viewer in viewers), *others)
    return list({id(node): node for node in nodes if node is not None}.values())


def _keep(node: LazyNode) -> None:
    """Let what was built from a value keep it: the memory is about to change."""
    if node.cell is not None:
        stale = node.cell.stale
        node.cell = Cell(duplicate(node.cell.array))
        node.cell.stale = stale


def _new_node(viewer: Tensor, part: WrittenPart, source: Tensor) -> LazyNode | None:
    """The expression of what a viewer shows after the write; None where nothing of it changed."""
    if viewer is part.tensor and part.is_whole:
        return _own(reshape(source._node, viewer.shape))
    shown = part.shown_by(viewer)
    if shown is None:
        return None
    places, written = shown
    flat = reshape(source._node, (source.size,))
    shaped = reshape(apply(IndexTake(0), flat, places), viewer.shape)
    if written is None:
        return _own(shaped)
    return _own(where(written, shaped, viewer._node))


def _own(node: Node) -> LazyNode:
    """A node of its own: the cell of another tensor's must not become this memory."""
    if isinstance(node, LazyNode):
        return LazyNode(node.op, node.inputs, node.type, node.place, node.depth, node.largest)
    return relabel(node)
