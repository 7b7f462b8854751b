"""Writes into memory: whoever needs the old value has a copy of it before they happen.

Expressions that were built before and still wait for a value keep the old one: it is copied aside
if anything but the tensor itself refers to it. Writes that derivatives pass through are in
`tracked.py`.
"""

from collections.abc import Sequence
from sys import getrefcount
from typing import Any
from weakref import ref

from tiga.errors import InvalidValue
from tiga.frontends.tensor.arrays import duplicate
from tiga.frontends.tensor.core import Tensor
from tiga.frontends.tensor.lazy import OWN_REFERENCES, Cell, LazyNode, here, leaf
from tiga.frontends.tensor.written_parts import WrittenPart
from tiga.runtime.buffer import Buffer


def viewers_of(tensor: Tensor) -> list[Tensor]:
    """All living tensors that show the same memory, the tensor itself first.

    Raises:
        InvalidValue: one of them is a computed value whose derivatives a write would not reach.
    """
    assert tensor._buffer is not None
    found = [reference() for reference in tensor._buffer.viewers]
    others = [view for view in found if view is not None and view is not tensor]
    tensor._buffer.viewers[:] = [r for r in tensor._buffer.viewers if r() is not None]
    viewers = [tensor, *others]
    _check_others(viewers)
    return viewers


def parted(viewers: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    """Tensors that show the same memory: those on the first one's side of `detach`, and others."""
    side = viewers[0]._apart
    same = [viewer for viewer in viewers if viewer._apart is side]
    return same, [viewer for viewer in viewers if viewer._apart is not side]


def _check_others(viewers: Sequence[Tensor]) -> None:
    """Refuse to change a computed value behind the back of its derivatives."""
    _, others = parted(viewers)
    for viewer in others:
        if viewer._grad and not viewer._leaf:
            raise InvalidValue(
                f"a write into a detached tensor ({here()}) would change the one that was built at "
                f"{viewer.where}, but not its derivatives: write into a copy, "
                "tg.asarray(x.detach(), copy=True)."
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


def write(part: WrittenPart, values: Any) -> Tensor:
    """Write an array into a part of a tensor, without history; returns the tensor."""
    tensor = part.tensor
    buffer = begin_write(tensor)
    try:
        viewers = viewers_of(tensor)
        _keep_all(buffer, viewers)
        for viewer in viewers:
            node = viewer._node
            assert viewer._array is not None
            # The tensor refers to it, too.
            _keep_value(node, viewer._array, getrefcount(node) > OWN_REFERENCES + 1)
            renew(viewer)
        note_nodes(buffer, viewers)
        part.store(values)
        buffer.version += 1
    finally:
        buffer.writes.pop()
    return tensor


def note_nodes(buffer: Buffer, viewers: Sequence[Tensor]) -> None:
    """Let shared memory know the expressions that show it now."""
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


def _keep_all(buffer: Buffer, viewers: list[Tensor]) -> None:
    """Let expressions that show the memory keep their values: all but those of the tensors that do,
    which are kept when these get new ones."""
    current = {id(viewer._node) for viewer in viewers}
    for node_reference, array_reference in buffer.nodes:
        node, array = node_reference(), array_reference()
        if node is not None and array is not None and id(node) not in current:
            _keep_value(node, array, getrefcount(node) > OWN_REFERENCES)


def _keep_value(node: LazyNode, array: Any, is_read: bool) -> None:
    """Let an expression that shows memory about to be written keep its value, if it is read."""
    if node.cell is not None:
        node.cell.stale = True
    if is_read and (node.cell is None or node.cell.array is array):
        node.cell = Cell(duplicate(array))
        node.cell.stale = True
