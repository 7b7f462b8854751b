"""Writes in place that derivatives pass through: the graph of the value is updated too.

The memory is written as always. The expression of every tensor that shows it becomes that of its
new value: where its elements were written, those of what was written, elsewhere its old ones.
Expressions built before keep the old value, and so do their derivatives.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol
from weakref import ref

import numpy as np

from tiga.errors import InvalidValue
from tiga.frontends.tensor.arrays import beside, duplicate, part_shape, store
from tiga.frontends.tensor.build import apply, relabel
from tiga.frontends.tensor.core import Tensor, address_of
from tiga.frontends.tensor.lazy import Cell, LazyNode, here, leaf
from tiga.frontends.tensor.selection import astype
from tiga.frontends.tensor.views import broadcast_to
from tiga.ops.feature import reshape
from tiga.ops.pointwise import where
from tiga.ops.tensor_index import IndexTake
from tiga.runtime.buffer import Buffer
from tiga.trace.node import Node
from tiga.types import GLOBAL, Type, dtype_of_numpy


def is_tracked(viewers: Sequence[Tensor], value: Any) -> bool:
    """Whether derivatives pass through a write of `value` into the first of tensors that show the
    same memory."""
    if isinstance(value, Tensor) and value._grad:
        return True
    same, _ = parted(viewers)
    return any(viewer._grad and not viewer._leaf for viewer in same)


def parted(viewers: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    """Tensors that show the same memory: those on the first one's side of `detach`, and others."""
    side = viewers[0]._apart
    same = [viewer for viewer in viewers if viewer._apart is side]
    return same, [viewer for viewer in viewers if viewer._apart is not side]


def check_others(viewers: Sequence[Tensor]) -> None:
    """Refuse to change a computed value behind the back of its derivatives."""
    _, others = parted(viewers)
    for viewer in others:
        if viewer._grad and not viewer._leaf:
            raise InvalidValue(
                f"a write into a detached tensor ({here()}) would change the one that was built at "
                f"{viewer.where}, but not its derivatives: write into a copy, "
                "tg.asarray(x.detach(), copy=True)."
            )


def check_leaves(viewers: Sequence[Tensor], what: str) -> None:
    """Refuse to make a leaf that derivatives are asked for into a computed value."""
    for viewer in viewers:
        if viewer._grad and viewer._leaf:
            raise InvalidValue(
                f"{what} into the memory of a leaf that requires derivatives, built at "
                f"{viewer.where} ({here()}): it would not be a leaf any more. Use x = x + y, or "
                "write into x.detach() where no derivative is to pass."
            )


def begin_write(tensor: Tensor) -> Buffer:
    """Keep a tensor's memory where it is until the end of a write, which takes back what it adds to
    the `writes` of the buffer."""
    while True:
        tensor._in_memory()
        buffer = tensor._buffer
        assert buffer is not None
        # In this order: who moves the memory out says so first, and looks for writes then.
        buffer.writes.append(None)
        if buffer.absent is None and tensor._array is not None:
            return buffer
        buffer.writes.pop()
        if (absent := buffer.absent) is not None:
            absent.restore()


class WrittenPart(Protocol):
    """A part of a tensor that is written."""

    @property
    def is_whole(self) -> bool:
        """Whether it is all of the tensor, in its order."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of what is written into it."""

    def store(self, values: Any) -> None:
        """Write an array of the tensor's dtype, broadcast."""

    def shown_by(self, viewer: Tensor) -> tuple[LazyNode, LazyNode | None] | None:
        """For every element of a viewer the number of the written element that it shows, and which
        show one (None: all); None if none does."""


@dataclass(frozen=True)
class IndexedPart:
    """The part that an index without tensors of a GPU names; `...`: all of it."""

    tensor: Tensor
    index: Any
    what: str

    @property
    def is_whole(self) -> bool:
        return self.index is ...

    @cached_property
    def shape(self) -> tuple[int, ...]:
        return part_shape(self.tensor._in_memory(), self.index, self.what)

    def store(self, values: Any) -> None:
        store(self.tensor._array, self.index, values, self.what)

    def shown_by(self, viewer: Tensor) -> tuple[LazyNode, LazyNode | None] | None:
        origin = _origin(viewer, self.tensor, self.index)
        written = origin >= 0
        if not written.any():
            return None
        places = _beside(np.where(written, origin, 0).reshape(-1), viewer)
        return places, None if written.all() else _beside(written, viewer)


def write_tracked(
    tensor: Tensor, viewers: Sequence[Tensor], value: Tensor, part: WrittenPart, what: str
) -> Tensor:
    """Write `value` into a part of a tensor, and into the graph.

    Args:
        viewers: all tensors that show the memory, the tensor itself first.
        value: of the tensor's dtype, and a shape that broadcasts to the part.
    """
    check_leaves(parted(viewers)[0], what)
    given = astype(value, tensor.dtype, copy=False)
    source = broadcast_to(given, part.shape)
    written = duplicate(given._in_memory())
    buffer = begin_write(tensor)
    try:
        _write_recorded(tensor, viewers, source, written, part)
    finally:
        buffer.writes.pop()
    return tensor


def _write_recorded(
    tensor: Tensor, viewers: Sequence[Tensor], source: Tensor, written: Any, part: WrittenPart
) -> None:
    same, others = parted(viewers)
    buffer = tensor._buffer
    assert buffer is not None
    fresh = [_new_node(viewer, tensor, part, source) for viewer in same]
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
    shared = viewers if buffer.viewers else ()
    buffer.nodes[:] = [(ref(viewer._node), ref(viewer._array)) for viewer in shared]


def renew(viewer: Tensor) -> None:
    """Give a tensor whose memory was written, or is about to be, a new leaf: whoever refers to the
    old node keeps the old value."""
    array, node = viewer._array, viewer._node
    assert array is not None
    viewer._node = leaf(array, node.type, node.place)
    if viewer._grad:
        viewer._node.wanted = True
    viewer._expression = viewer._execution = None


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


def _new_node(viewer: Tensor, tensor: Tensor, part: WrittenPart, source: Tensor) -> LazyNode | None:
    """The expression of what a viewer shows after the write; None where nothing of it changed."""
    if viewer is tensor and part.is_whole:
        return _own(reshape(source._node, tensor.shape), source)
    shown = part.shown_by(viewer)
    if shown is None:
        return None
    places, written = shown
    flat = reshape(source._node, (source.size,))
    shaped = reshape(apply(IndexTake(0), flat, places), viewer.shape)
    if written is None:
        return _own(shaped, source)
    return _own(where(written, shaped, viewer._node), source)


def _beside(array: np.ndarray, tensor: Tensor) -> LazyNode:
    """A given value where a tensor is."""
    return leaf(
        beside(array, tensor._array), Type(dtype_of_numpy(array.dtype), array.shape, GLOBAL)
    )


def _own(node: Node, source: Tensor) -> LazyNode:
    """A node of its own: the cell of another tensor's must not become this memory."""
    if isinstance(node, LazyNode):
        return LazyNode(node.op, node.inputs, node.type, node.place, node.depth, node.largest)
    return relabel(node)


def _origin(viewer: Tensor, tensor: Tensor, index: Any) -> np.ndarray:
    """For every element of a viewer the number of the written element that it shows; -1: none."""
    shown, places = places_in_memory(viewer, tensor)
    places = places[index]
    table = np.full(int(max(shown.max(initial=0), places.max(initial=0))) + 1, -1, np.int64)
    table[places] = np.arange(places.size).reshape(places.shape)
    return table[shown]


def places_in_memory(*tensors: Tensor) -> list[np.ndarray]:
    """Where the elements of tensors that share memory are, counted from the first of all."""
    start = min(address_of(tensor._array) for tensor in tensors)
    return [_places(tensor, start) for tensor in tensors]


def _places(tensor: Tensor, start: int) -> np.ndarray:
    """Where every element is in memory, counted in elements from `start`."""
    array = tensor._array
    assert array is not None
    places = np.asarray((address_of(array) - start) // array.itemsize, np.int64)
    for extent, stride in zip(array.shape, array.strides, strict=True):
        places = places[..., None] + np.arange(extent) * (stride // array.itemsize)
    return places
