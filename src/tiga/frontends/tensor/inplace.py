"""Writing into a tensor's storage: seen through every view, and caught by autograd.

A write happens at once. Expressions that were built before and still wait for a value keep the old
one: it is copied aside if anything but the tensor itself refers to it.
"""

import sys
from collections.abc import Callable
from typing import Any
from weakref import ref

import numpy as np

from tiga.errors import InvalidIndex, InvalidType, InvalidValue
from tiga.frontends.tensor.arrays import duplicate, part_shape, store
from tiga.frontends.tensor.build import (
    SCALARS,
    as_tensor,
    broadcast_shapes,
    number,
    operands,
    relabel,
)
from tiga.frontends.tensor.core import Tensor
from tiga.frontends.tensor.creation import from_numpy
from tiga.frontends.tensor.elementwise import add, multiply, subtract
from tiga.frontends.tensor.filled import number_of
from tiga.frontends.tensor.lazy import Cell, LazyNode, here
from tiga.frontends.tensor.selection import astype, divide
from tiga.frontends.tensor.tracked import (
    IndexedPart,
    WrittenPart,
    begin_write,
    check_others,
    is_tracked,
    renew,
    write_tracked,
)
from tiga.runtime.buffer import Buffer
from tiga.runtime.device_array import DeviceArray
from tiga.types import dtype_of_numpy

_RANKS = {"b": 0, "u": 1, "i": 1, "f": 2, "c": 3}
"""Kinds of dtypes: values of a higher one do not fit a lower one."""


def _references(node: Any) -> int:
    return sys.getrefcount(node)


def _own_references() -> int:
    node = object()
    return _references(node)


_OWN_REFERENCES = _own_references()
"""References to a node that only the variable of whoever counts them holds: how many the count
itself adds differs between versions of Python."""


def _viewers(tensor: Tensor) -> list[Tensor]:
    """All living tensors that show the same memory, the tensor itself first."""
    assert tensor._buffer is not None
    found = [reference() for reference in tensor._buffer.viewers]
    others = [view for view in found if view is not None and view is not tensor]
    tensor._buffer.viewers[:] = [r for r in tensor._buffer.viewers if r() is not None]
    check_others([tensor, *others])
    return [tensor, *others]


def _check(tensor: Tensor, what: str) -> None:
    if tensor._node.type.space.kind != "global":
        raise InvalidValue(f"{what} of a field inside edge or node ({here()}); use x = x + y.")
    array = tensor._in_memory()
    if 0 in array.strides and tensor.size > 1 and max(tensor.shape) > 1:
        repeated = any(s == 0 and e > 1 for s, e in zip(array.strides, tensor.shape, strict=True))
        if repeated:
            raise InvalidValue(
                f"{what} of an expanded tensor ({here()}): several of its elements are one place "
                "in memory; make a copy first with tg.asarray(x, copy=True)."
            )
    if isinstance(array, np.ndarray) and not array.flags.writeable:
        raise InvalidValue(
            f"{what} of memory that another library only lends to read ({here()}): make a copy "
            "first with tg.asarray(x, copy=True)."
        )


def _keep_value(node: LazyNode, array: np.ndarray, is_read: bool) -> None:
    """Let an expression that shows memory about to be written keep its value, if it is read."""
    if node.cell is not None:
        node.cell.stale = True
    if is_read and (node.cell is None or node.cell.array is array):
        node.cell = Cell(duplicate(array))
        node.cell.stale = True


def _renew(tensor: Tensor) -> None:
    """Give a tensor that is about to be written a new leaf."""
    array, node = tensor._array, tensor._node
    assert array is not None
    _keep_value(node, array, _references(node) > _OWN_REFERENCES + 1)  # the tensor refers to it
    renew(tensor)


def _keep_all(buffer: Buffer, viewers: list[Tensor]) -> None:
    """Let expressions that show the memory keep their values: all but those of the tensors that do,
    which are kept when these get new ones."""
    current = {id(viewer._node) for viewer in viewers}
    for node_reference, array_reference in buffer.nodes:
        node, array = node_reference(), array_reference()
        if node is not None and array is not None and id(node) not in current:
            _keep_value(node, array, _references(node) > _OWN_REFERENCES)


def _write(tensor: Tensor, values: np.ndarray, index: Any, what: str) -> Tensor:
    return _write_by(tensor, lambda: store(tensor._array, index, values, what))


def _write_by(tensor: Tensor, write: Callable[[], None]) -> Tensor:
    """Write into a tensor's memory by a function, once whoever needs the old value has it."""
    buffer = begin_write(tensor)
    try:
        viewers = _viewers(tensor)
        _keep_all(buffer, viewers)
        for viewer in viewers:
            _renew(viewer)
        shared = viewers if buffer.viewers else []
        buffer.nodes[:] = [(ref(viewer._node), ref(viewer._array)) for viewer in shared]
        write()
        buffer.version += 1
    finally:
        buffer.writes.pop()
    return tensor


def _elements(x: Tensor, dtype: Any) -> Any:
    """The value's array, cast to a numpy dtype."""
    array = x._in_memory()
    if not isinstance(array, DeviceArray):
        return array.astype(dtype, copy=False)
    return astype(x, dtype_of_numpy(dtype), copy=False)._in_memory()


def _update(tensor: Tensor, value: Tensor, other: Any, what: str) -> Tensor:
    """Write the elements of `value`, made of the tensor itself and `other`, of its own shape.

    A leaf that requires derivatives is updated without history, as by an optimiser.
    """
    tensor.realize()
    _check(tensor, what)
    if value.shape != tensor.shape:
        raise InvalidValue(f"{what}: shape {value.shape} does not fit {tensor.shape} ({here()}).")
    if _RANKS[value.dtype.kind] > _RANKS[tensor.dtype.kind]:
        raise InvalidType(
            f"{what}: {value.dtype} values into {tensor.dtype} ({here()}) would lose what they "
            "are; use x = x + y, or cast with .astype(...)."
        )
    viewers = _viewers(tensor)
    if is_tracked(viewers, other):
        return write_tracked(tensor, viewers, value, IndexedPart(tensor, ..., what), what)
    return _write(tensor, _elements(value, tensor.dtype.numpy), ..., what)


def add_(x: Tensor, other: Any, /, *, alpha: Any = 1) -> Tensor:
    """x += alpha * other, in x's storage; returns x."""
    scaled = other if alpha == 1 else multiply(as_tensor(other), alpha)
    return _update(x, add(x, scaled), scaled, "add_")


def sub_(x: Tensor, other: Any, /, *, alpha: Any = 1) -> Tensor:
    """x -= alpha * other, in x's storage; returns x."""
    scaled = other if alpha == 1 else multiply(as_tensor(other), alpha)
    return _update(x, subtract(x, scaled), scaled, "sub_")


def mul_(x: Tensor, other: Any, /) -> Tensor:
    """x *= other, in x's storage; returns x."""
    return _update(x, multiply(x, other), other, "mul_")


def div_(x: Tensor, other: Any, /) -> Tensor:
    """x /= other, in x's storage; returns x."""
    if x.dtype.kind not in "fc":
        raise InvalidType(f"div_ of {x.dtype} would not fit its type ({here()}).")
    return _update(x, divide(x, other), other, "div_")


def copy_(x: Tensor, other: Any, /) -> Tensor:
    """The elements of `other`, broadcast and cast, into x's storage; returns x."""
    (_, node), tensors = operands(x, other, dtype=x.dtype)
    grad = any(t._grad for t in tensors if t is not x)
    source = Tensor(node if isinstance(node, LazyNode) else relabel(node), grad)
    return _update(x, source, source, "copy_")


def fill_(x: Tensor, value: Any, /) -> Tensor:
    """One number in every element of x's storage; returns x."""
    x.realize()
    _check(x, "fill_")
    value = number_of(value, x.dtype, "fill_")
    node = number(value, x._node.type.with_shape(()))
    viewers = _viewers(x)
    if is_tracked(viewers, None):
        whole = IndexedPart(x, ..., "fill_")
        return write_tracked(x, viewers, Tensor(node, False), whole, "fill_")
    return _write(x, np.asarray(value, x.dtype.numpy), ..., "fill_")


def zero_(x: Tensor, /) -> Tensor:
    """Zero in every element of x's storage; returns x."""
    return fill_(x, 0)


def setitem(x: Tensor, index: Any, value: Any) -> None:
    """x[index] = value, broadcast and cast."""
    x.realize()
    _check(x, "assignment to a part")
    entries = index if isinstance(index, tuple) else (index,)
    viewers = _viewers(x)
    on_gpu = isinstance(x._in_memory(), DeviceArray)
    if on_gpu and any(isinstance(e, Tensor) for e in entries):
        _set_positions(x, viewers, entries, value)
        return
    plain = tuple(e.numpy() if isinstance(e, Tensor) else e for e in entries)
    if is_tracked(viewers, value):
        _set_tracked(x, viewers, IndexedPart(x, plain, "assignment to a part"), value)
        return
    if on_gpu:
        _set_part(x, plain, value)
        return
    array = np.asarray(value) if isinstance(value, SCALARS) else as_tensor(value).numpy()
    if isinstance(value, SCALARS):
        number(value, x._node.type.with_shape(()))
    if array.dtype.kind == "c" and x.dtype.kind != "c":
        raise InvalidType(f"assignment of complex values to {x.dtype} ({here()}).")
    try:
        fits = np.broadcast_to(array, x.numpy()[plain].shape)
    except (ValueError, IndexError) as error:
        kind = InvalidIndex if isinstance(error, IndexError) else InvalidValue
        raise kind(f"assignment to a part: {error} ({here()}).") from None
    if np.shares_memory(fits, x.numpy()):
        fits = np.array(fits)
    _write(x, fits.astype(x.dtype.numpy, copy=False), plain, "assignment to a part")


def _set_tracked(x: Tensor, viewers: list[Tensor], part: WrittenPart, value: Any) -> None:
    """An assignment to part of a tensor that derivatives pass through."""
    what = "assignment to a part"
    if isinstance(value, SCALARS):
        value = Tensor(number(value, x._node.type.with_shape(())), False)
    source = as_tensor(value)
    if source.dtype.is_complex and not x.dtype.is_complex:
        raise InvalidType(f"{what} of complex values to {x.dtype} ({here()}).")
    write_tracked(x, viewers, source, part, what)


def _set_positions(
    x: Tensor, viewers: list[Tensor], entries: tuple[Any, ...], value: Any
) -> None:  # fmt: skip
    """An assignment on a GPU at tensors of positions, or where masks there hold."""
    from tiga.frontends.tensor.gpu_writes import PositionedPart, assign_at

    what = "assignment to a part"
    for index in entries:
        if isinstance(index, Tensor) and index.realize().device != x.device:
            raise InvalidValue(f"{what}: an index is on {index.device} ({here()}); .to(x.device).")
    if is_tracked(viewers, value):
        _set_tracked(x, viewers, PositionedPart(x, entries, what), value)
        return
    values = _given(x, value)
    _write_by(x, lambda: assign_at(x, entries, values, what))


def _given(x: Tensor, value: Any) -> Any:
    """A value's array, in the dtype of a tensor on a GPU."""
    if isinstance(value, SCALARS):
        number(value, x._node.type.with_shape(()))
        value = from_numpy(np.asarray(value).astype(x.dtype.numpy))
    source = as_tensor(value)
    if source.dtype.is_complex and not x.dtype.is_complex:
        raise InvalidType(f"assignment of complex values to {x.dtype} ({here()}).")
    return _elements(source, x.dtype.numpy)


def _set_part(x: Tensor, index: Any, value: Any) -> None:
    """An assignment to part of a tensor on a GPU."""
    what = "assignment to a part"
    values = _given(x, value)
    broadcast_shapes(values.shape, part_shape(x._in_memory(), index, what))
    _write(x, values, index, what)
