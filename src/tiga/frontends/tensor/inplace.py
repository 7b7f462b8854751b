"""What writes into a tensor's storage: seen through every view, and caught by autograd.

A write happens at once: what is written is computed, compared with the part that it goes to, and
stored with its history (`tracked.py`) or without (`writes.py`).
"""

from typing import Any

import numpy as np

from tiga.errors import InvalidType, InvalidValue
from tiga.frontends.tensor.build import as_tensor, operands, relabel
from tiga.frontends.tensor.core import Tensor
from tiga.frontends.tensor.dtypes import RANK
from tiga.frontends.tensor.functions.elementwise import add, multiply, subtract
from tiga.frontends.tensor.functions.selection import astype, divide
from tiga.frontends.tensor.lazy import LazyNode, here
from tiga.frontends.tensor.scalars import SCALARS, number, number_of
from tiga.frontends.tensor.tracked import is_tracked, write_tracked
from tiga.frontends.tensor.writes import viewers_of, write
from tiga.frontends.tensor.written_parts import IndexedPart, WrittenPart
from tiga.runtime.device_array import DeviceArray
from tiga.types import Shape, dtype_of_numpy

ASSIGNMENT = "assignment to a part"
"""How messages call `x[index] = value`."""


def _require_writable(tensor: Tensor, what: str) -> None:
    """Compute a tensor, and refuse memory that no write may change.

    Raises:
        InvalidValue: it shows an element several times, is lent to read, or stands for many.
    """
    array = tensor._in_memory()
    if tensor.size > 1 and 0 in array.strides:
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


def _elements(x: Tensor, dtype: Any) -> Any:
    """The value's array, cast to a numpy dtype."""
    array = x._in_memory()
    if not isinstance(array, DeviceArray):
        return array.astype(dtype, copy=False)
    return astype(x, dtype_of_numpy(dtype), copy=False)._in_memory()


# all of a tensor


def _update(tensor: Tensor, value: Tensor, other: Any, what: str) -> Tensor:
    """Write the elements of `value`, made of the tensor itself and `other`, of its own shape.

    A leaf that requires derivatives is updated without history, as by an optimiser.
    """
    _require_writable(tensor, what)
    if value.shape != tensor.shape:
        raise InvalidValue(f"{what}: shape {value.shape} does not fit {tensor.shape} ({here()}).")
    if RANK[value.dtype.kind] > RANK[tensor.dtype.kind]:
        raise InvalidType(
            f"{what}: {value.dtype} values into {tensor.dtype} ({here()}) would lose what they "
            "are; use x = x + y, or cast with .astype(...)."
        )
    viewers, whole = viewers_of(tensor), IndexedPart(tensor, ..., what)
    if is_tracked(viewers, other):
        return write_tracked(whole, viewers, value)
    return write(whole, _elements(value, tensor.dtype.numpy))


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
    _require_writable(x, "fill_")
    value = number_of(value, x.dtype, "fill_")
    viewers, whole = viewers_of(x), IndexedPart(x, ..., "fill_")
    if is_tracked(viewers, None):
        return write_tracked(whole, viewers, _number(x, value))
    return write(whole, np.asarray(value, x.dtype.numpy))


def zero_(x: Tensor, /) -> Tensor:
    """Zero in every element of x's storage; returns x."""
    return fill_(x, 0)


def _number(x: Tensor, value: Any) -> Tensor:
    """A number that an element of x is to be, checked."""
    return Tensor(number(value, x._node.type.with_shape(())), False)


# a part of it


def setitem(x: Tensor, index: Any, value: Any) -> None:
    """x[index] = value, broadcast and cast."""
    _require_writable(x, ASSIGNMENT)
    part, viewers = _part(x, index), viewers_of(x)
    given = _number(x, value) if isinstance(value, SCALARS) else as_tensor(value)
    if given.dtype.is_complex and not x.dtype.is_complex:
        raise InvalidType(f"{ASSIGNMENT} of complex values to {x.dtype} ({here()}).")
    if is_tracked(viewers, value):
        write_tracked(part, viewers, given)
        return
    is_number = isinstance(value, SCALARS)
    dtype = x.dtype.numpy
    values = np.asarray(value, dtype) if is_number else _elements(given, dtype)
    if isinstance(part, IndexedPart) and not _broadcasts(values.shape, part.shape):
        raise InvalidValue(
            f"{ASSIGNMENT}: shape {values.shape} does not fit {part.shape} ({here()})."
        )
    array: Any = x._in_memory()
    on_cpu = isinstance(values, np.ndarray) and isinstance(array, np.ndarray)
    write(part, np.array(values) if on_cpu and np.shares_memory(values, array) else values)


def _broadcasts(shape: Shape, target: Shape) -> bool:
    """Whether values of a shape broadcast to another."""
    pairs = zip(reversed(shape), reversed(target), strict=False)
    return len(shape) <= len(target) and all(extent in (1, wanted) for extent, wanted in pairs)


def _part(x: Tensor, index: Any) -> WrittenPart:
    """The part of a computed tensor that an index names."""
    entries = index if isinstance(index, tuple) else (index,)
    positions = [entry for entry in entries if isinstance(entry, Tensor)]
    if positions and isinstance(x._in_memory(), DeviceArray):
        from tiga.frontends.tensor.gpu_writes import PositionedPart

        for entry in positions:
            if entry.realize().device != x.device:
                raise InvalidValue(
                    f"{ASSIGNMENT}: an index is on {entry.device} ({here()}); .to(x.device)."
                )
        return PositionedPart(x, entries, ASSIGNMENT)
    plain = tuple(entry.numpy() if isinstance(entry, Tensor) else entry for entry in entries)
    return IndexedPart(x, plain, ASSIGNMENT)
