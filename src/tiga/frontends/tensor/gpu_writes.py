"""Writes at tensors of positions, and where masks hold, on a GPU."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from tiga.backends.triton.dense.moves import contiguous, copy_into
from tiga.backends.triton.index_arrays import ARRAYS, IndexArray, from_start, index_array, positions
from tiga.backends.triton.machine import machine
from tiga.errors import InvalidIndex
from tiga.frontends.tensor.arrays import duplicate
from tiga.frontends.tensor.core import Tensor
from tiga.frontends.tensor.functions.indexing import flat_position, parts_of
from tiga.frontends.tensor.gpu_values import flat
from tiga.frontends.tensor.graph_indices import plain
from tiga.frontends.tensor.lazy import LazyNode, here
from tiga.frontends.tensor.storage import wrap
from tiga.frontends.tensor.written_parts import places_in_memory
from tiga.runtime.device_array import DeviceArray
from tiga.types import bool_


def assign_at(x: Tensor, entries: tuple[Any, ...], values: Any, what: str) -> None:
    """`x[entries] = values`, where some entries are tensors; of places that are given twice the
    last is stored. `values` is an array of x's dtype that is broadcast.

    Raises:
        InvalidIndex: a position that does not exist; nothing is written.
    """
    array: Any = x._array
    target, axes, shape, places = _one_mask(x, entries) or _selected(x, entries, what)
    others = [axis for axis in range(target.ndim) if axis not in axes]
    first = axes[0] if axes == list(range(axes[0], axes[0] + len(axes))) else 0
    before, after = others[:first], others[first:]
    extents = [target.shape[axis] for axis in (*before, *after)]
    part = (*extents[:first], *shape, *extents[first:])
    if not isinstance(values, DeviceArray):
        values = machine(array.machine.index).platform.sent(np.ascontiguousarray(values))
        values = plain(values).reshape(())
    try:
        fits: Any = np.broadcast_to(values, part)
    except ValueError as error:
        raise InvalidIndex(f"{what}: {error} ({here()}).") from None
    picked = range(first, first + len(shape))
    rest = [axis for axis in range(len(part)) if axis not in picked]
    moved = target.transpose(*axes, *before, *after)
    _put_rows(moved, len(axes), places, duplicate(fits.transpose(*picked, *rest)))


@dataclass
class PositionedPart:
    """The part of a tensor on a GPU that an index with tensors names; see `WrittenPart`."""

    tensor: Tensor
    entries: tuple[Any, ...]
    what: str
    is_whole = False

    @cached_property
    def _numbers(self) -> Tensor:
        """The row-major number in the tensor of every element that is written."""
        x = self.tensor
        numbers = wrap(plain(positions(x._array.machine, x.size)))  # type: ignore
        return numbers.reshape(x.shape)[self.entries].realize()

    @property
    def shape(self) -> tuple[int, ...]:
        return self._numbers.shape

    def store(self, values: Any) -> None:
        assign_at(self.tensor, self.entries, values, self.what)

    def shown_by(self, viewer: Tensor) -> tuple[LazyNode, LazyNode | None] | None:
        if not self._numbers.size:
            return None
        shown, own = places_in_memory(viewer, self.tensor)
        numbers = flat(self._numbers)
        sent = machine(numbers.machine.index).platform.sent
        extent = int(max(shown.max(initial=0), own.max(initial=0))) + 1
        at, which = _last(sent(own.reshape(-1))[numbers], extent)
        # Counted from 1 on: what shows nothing written has 0.
        table = ARRAYS.put(ARRAYS.full(numbers, extent, 0), at, which + 1)
        origin = table[sent(shown.reshape(-1))]
        places = wrap(plain(origin - (origin > 0)))  # type: ignore[arg-type]
        written = wrap(plain(origin > 0)).reshape(viewer.shape)  # type: ignore[arg-type]
        return places._node, written._node


Selection = tuple[DeviceArray, list[int], tuple[int, ...], IndexArray]
"""A view of what is written, its axes that positions pick from, the shape of the positions, and
those positions in row-major order of these axes."""


def _one_mask(x: Tensor, entries: Sequence[Any]) -> Selection | None:
    """A mask of the first axes, and nothing else."""
    mask = entries[0]
    if len(entries) > 1 or mask.dtype != bool_ or mask.shape != x.shape[: mask.ndim]:
        return None
    places = ARRAYS.where(flat(mask))
    return x._array, list(range(mask.ndim)), (places.size,), places  # type: ignore[return-value]


def _selected(x: Tensor, entries: tuple[Any, ...], what: str) -> Selection:
    """Any mix of tensors with numbers, slices, None and an ellipsis."""
    axis, axes, basic, tensors = 0, [], [], []
    for part in parts_of(x, entries):
        basic.append(slice(None) if part.kind == "tensor" else part.value)
        if part.kind == "tensor":
            axes.append(axis)
            tensors.append(part)
        axis += part.kind != "integer"
    array: Any = x._array
    try:
        target = array[tuple(basic)]
    except IndexError as error:
        raise InvalidIndex(f"{what}: {error} ({here()}).") from None
    extents = [target.shape[axis] for axis in axes]
    found = [_positions(part, extent, what) for part, extent in zip(tensors, extents, strict=True)]
    if len(found) == 1:
        return target, axes, found[0].shape, flat(found[0])
    joined = flat_position(found, extents)
    return target, axes, joined.shape, flat(joined)


def _positions(part: Any, extent: int, what: str) -> Tensor:
    """Positions along an axis, none negative."""
    tensor, wanted = part.value
    where = here()  # called from the backend it would name the backend's line
    if wanted not in (None, extent):
        raise InvalidIndex(f"{what}: a mask of extent {wanted} for one of {extent} ({where}).")

    def refused(wrong: int) -> InvalidIndex:
        return InvalidIndex(f"{what}: position {wrong} for an extent of {extent} ({where}).")

    places = from_start(flat(tensor), extent, refused)
    return wrap(plain(places)).reshape(tensor.shape)  # type: ignore[arg-type]


def _last(places: IndexArray, extent: int) -> tuple[IndexArray, IndexArray]:
    """Places below an extent without those that come again, and which they are."""
    ordered, order = ARRAYS.sort(places, max(extent, 1))
    if places.size < 2:
        return ordered, order
    is_last = ARRAYS.where(ordered[1:] != ordered[:-1])
    last = ARRAYS.join([is_last, ARRAYS.full(order, 1, places.size - 1)])
    return ordered[last], order[last]


def _put_rows(target: Any, count: int, places: IndexArray, values: DeviceArray) -> None:
    """Store rows at places along the first `count` axes of an array."""
    rows, inner = prod(target.shape[:count]), prod(target.shape[count:])
    ordered, order = _last(places, rows)
    whole = contiguous(target)
    at, given = ordered, order
    if inner != 1:
        element = positions(target.machine, order.size * inner)
        row = element // max(inner, 1)
        within = element - row * max(inner, 1)
        at, given = at[row] * inner + within, given[row] * inner + within
    stored = index_array(values.reshape(values.size))[given]
    ARRAYS.put(index_array(whole.reshape(whole.size)), at, stored)
    if whole is not target:
        copy_into(target, whole)
