"""Reading and writing parts: slices, integer and boolean tensors, take and scatter."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from tiga.errors import InvalidIndex, InvalidType, InvalidValue
from tiga.frontends.tensor.arguments import integer, normalize_axis
from tiga.frontends.tensor.build import apply, as_tensor, broadcast_shapes, operands, result
from tiga.frontends.tensor.core import Tensor
from tiga.frontends.tensor.functions.creation import from_numpy
from tiga.frontends.tensor.functions.pieces import narrow
from tiga.frontends.tensor.functions.views import permute_dims, reshape, squeeze
from tiga.frontends.tensor.lazy import here
from tiga.frontends.tensor.scalars import number
from tiga.frontends.tensor.storage import helper
from tiga.ops import pointwise as p
from tiga.ops.feature import broadcast, with_axis
from tiga.ops.tensor_index import AddAlong, IndexAdd, IndexTake, TakeAlong, linear_positions
from tiga.trace.node import Node
from tiga.types import bool_, int64


@dataclass(frozen=True)
class AxisIndex:
    """One entry of an index: how it reads one axis (`new`: none, it makes one)."""

    kind: str  # "slice" | "integer" | "new" | "tensor"
    value: Any = None


def parts_of(x: Tensor, index: Any) -> list[AxisIndex]:
    """An index as one part per axis, ellipsis and boolean tensors written out."""
    entries = list(index) if isinstance(index, tuple) else [index]
    parts: list[AxisIndex | None] = []
    for entry in entries:
        parts.extend(_part(entry))
    consumed = sum(part is not None and part.kind != "new" for part in parts)
    missing = x.ndim - consumed
    if missing < 0:
        raise InvalidIndex(f"{consumed} indices for {x.ndim} axes ({here()}).")
    if parts.count(None) > 1:
        raise InvalidIndex(f"an index has at most one ... ({here()}).")
    place = parts.index(None) if None in parts else len(parts)
    rest = [p for p in parts if p is not None]
    return [*rest[:place], *[AxisIndex("slice", slice(None))] * missing, *rest[place:]]


def _part(entry: Any) -> list[AxisIndex | None]:
    if entry is Ellipsis:
        return [None]
    if entry is None:
        return [AxisIndex("new")]
    if isinstance(entry, slice):
        return [AxisIndex("slice", entry)]
    if isinstance(entry, (list, np.ndarray)):
        entry = helper(from_numpy(_rectangular(entry)).numpy())
    single = isinstance(entry, Tensor) and entry.dtype == bool_ and not entry.shape
    if single or isinstance(entry, bool):
        raise InvalidType(f"an index expected no single truth value ({here()}).")
    if isinstance(entry, Tensor):
        return _tensor_part(entry)
    if hasattr(entry, "__index__"):
        return [AxisIndex("integer", int(entry))]
    raise InvalidType(
        f"an index expected integers, slices, None, ... or tensors, got {entry!r} ({here()})."
    )


def _rectangular(entry: Any) -> np.ndarray:
    try:
        found = np.array(entry)
        return found if found.size else found.astype(np.int64)
    except ValueError:
        raise InvalidType(
            f"an index expected lists of equal lengths, got {entry!r} ({here()})."
        ) from None


def _tensor_part(entry: Tensor) -> list[AxisIndex | None]:
    if entry.dtype == bool_:
        # Its shape is a value: where the mask holds is looked up now.
        from tiga.frontends.tensor.functions.sorting import where_true

        return [AxisIndex("tensor", (a, entry.shape[i])) for i, a in enumerate(where_true(entry))]
    if entry.dtype.kind not in "iu":
        raise InvalidType(
            f"an index expected integers or truth values, got {entry.dtype} ({here()})."
        )
    return [AxisIndex("tensor", (entry, None))]


def getitem(x: Tensor, index: Any) -> Tensor:
    """x[index] as in numpy: integers, slices, None and ... share storage; tensors copy.

    Raises:
        InvalidIndex: a position that does not exist, or too many of them.
        InvalidType: something that is no index.

    Example:
        >>> import tiga as tg
        >>> x = tg.arange(6).reshape(2, 3)
        >>> x[1, ::2].tolist()
        [3, 5]
    """
    parts = parts_of(x, index)
    picked: list[tuple[int, Tensor]] = []
    axis = 0
    for part in parts:
        if part.kind == "slice":
            x, axis = _slice(x, axis, part.value), axis + 1
        elif part.kind == "integer":
            x = squeeze(narrow(x, axis, _position(part.value, x.shape[axis]), 1), axis=axis)
        elif part.kind == "new":
            x, axis = reshape(x, (*x.shape[:axis], 1, *x.shape[axis:])), axis + 1
        else:
            positions, extent = part.value
            _check_mask(extent, x.shape[axis], axis)
            picked.append((axis, positions))
            axis += 1
    return _pick(x, picked) if picked else x


def _check_mask(extent: int | None, actual: int, axis: int) -> None:
    if extent is not None and extent != actual:
        raise InvalidIndex(
            f"a mask of extent {extent} for axis {axis} of extent {actual} ({here()})."
        )


def _position(position: int, extent: int) -> int:
    if not -extent <= position < extent:
        raise InvalidIndex(f"index {position} is out of range for extent {extent} ({here()}).")
    return position % extent


def _slice(x: Tensor, axis: int, piece: slice) -> Tensor:
    try:
        start, stop, step = piece.indices(x.shape[axis])
    except (TypeError, ValueError) as error:
        raise InvalidType(f"a slice: {error} ({here()}).") from None
    count = len(range(start, stop, step))
    if count == x.shape[axis] and step == 1:
        return x
    return narrow(x, axis, start if count else 0, count, step)


def _pick(x: Tensor, picked: list[tuple[int, Tensor]]) -> Tensor:
    """x at integer tensors, one per axis, broadcast together."""
    axes = [axis for axis, _ in picked]
    if len(axes) == 1:
        return take(x, picked[0][1], axis=axes[0])
    flat = flat_position([t for _, t in picked], [x.shape[a] for a in axes])
    adjacent = axes == list(range(axes[0], axes[0] + len(axes)))
    place = axes[0] if adjacent else 0
    others = [a for a in range(x.ndim) if a not in axes]
    moved = permute_dims(x, [*others[:place], *axes, *others[place:]]) if not adjacent else x
    extents = [x.shape[a] for a in axes]
    rest = moved.shape[place + len(axes) :]
    joined = reshape(moved, (*moved.shape[:place], int(np.prod(extents)), *rest))
    return take(joined, flat, axis=place)


def flat_position(positions: list[Tensor], extents: list[int]) -> Tensor:
    """Positions along several axes, broadcast together, as row-major ones; far outside where one
    of them does not exist."""
    shape = broadcast_shapes(*(position.shape for position in positions))
    total = None
    for tensor, extent, step in zip(positions, extents, linear_positions(tuple(extents)),
                                    strict=True):  # fmt: skip
        node = p.mul(_wrapped(tensor, extent), number(step, tensor._node.type.with_dtype(int64)))
        node = broadcast(node, shape)
        total = node if total is None else p.add(total, node)
    assert total is not None
    return result(total, *positions)


def _positions(index: Tensor, extent: int) -> Node:
    """Positions as ops take them: negative ones count from the end."""
    _check_bounds(index, extent)
    return p.cast(index._node, int64)


def _wrapped(index: Tensor, extent: int) -> Node:
    """Positions with none negative; those that do not exist are `NOWHERE`."""
    node = _positions(index, extent)
    zero, whole = number(0, node.type), number(extent, node.type)
    wrapped = p.where(p.lt(node, zero), p.add(node, whole), node)
    if isinstance(index._array, np.ndarray):  # they were looked at
        return wrapped
    nowhere = number(NOWHERE, node.type)
    below = p.where(p.lt(wrapped, whole), wrapped, nowhere)
    return p.where(p.lt(wrapped, zero), nowhere, below)


NOWHERE = -(2**62)
"""A position so far outside that no sum with others exists."""


LOOKED_AT = 32768
"""Positions that are looked at when an expression is built. What reads or writes at them checks
every one; looking at more of them twice would take longer than that."""


def _check_bounds(index: Tensor, extent: int) -> None:
    """Refuse positions that do not exist, where they are few and known already."""
    if not isinstance(index._array, np.ndarray) or not 0 < index.size <= LOOKED_AT:
        return
    low, high = int(index._array.min()), int(index._array.max())
    if low < -extent or high >= extent:
        wrong = low if low < -extent else high
        raise InvalidIndex(f"index {wrong} is out of range for extent {extent} ({here()}).")


def _index_tensor(indices: Any) -> Tensor:
    tensor = as_tensor(_rectangular(indices) if isinstance(indices, (list, tuple)) else indices)
    if tensor.dtype.kind not in "iu":
        raise InvalidType(f"indices expected integers, got {tensor.dtype} ({here()}).")
    return tensor


def take(x: Any, indices: Any, /, *, axis: int | None = None) -> Tensor:
    """x at integer positions along an axis.

    Example:
        >>> import tiga as tg
        >>> tg.take(tg.tensor([5, 6, 7]), tg.tensor([2, 0]), axis=0).tolist()
        [7, 5]
    """
    x, index = as_tensor(x), _index_tensor(indices)
    if axis is None and x.ndim != 1:
        raise InvalidValue(f"take: axis= is needed for {x.ndim} axes ({here()}).")
    place = normalize_axis(0 if axis is None else axis, x.ndim)
    node = apply(IndexTake(place), x._node, _positions(index, x.shape[place]))
    return result(node, x)


def _check_ranks(what: str, x: Tensor, index: Tensor) -> None:
    if x.ndim != index.ndim:
        raise InvalidValue(
            f"{what} expected positions with as many axes as the tensor, got shapes {index.shape} "
            f"and {x.shape} ({here()})."
        )


def take_along_axis(x: Any, indices: Any, /, *, axis: int = -1) -> Tensor:
    """Per line along an axis, x at the line's own positions; other axes broadcast.

    Example:
        >>> import tiga as tg
        >>> tg.take_along_axis(tg.tensor([[1, 2], [3, 4]]), tg.tensor([[1], [0]]), axis=1).tolist()
        [[2], [3]]
    """
    x, index = as_tensor(x), _index_tensor(indices)
    place = normalize_axis(axis, x.ndim)
    _check_ranks("take_along_axis", x, index)
    lead = broadcast_shapes(with_axis(x.shape, place, 1), with_axis(index.shape, place, 1))
    source = broadcast(x._node, with_axis(lead, place, x.shape[place]))
    where = _positions(index, x.shape[place])
    where = broadcast(where, with_axis(lead, place, index.shape[place]))
    return result(apply(TakeAlong(place), source, where), x)


def gather(x: Any, index: Any, /, *, axis: int = 0, dim: int | None = None) -> Tensor:
    """`take` for positions of one axis, as rows of `x`; `take_along_axis` for as many axes as x.

    Example:
        >>> import tiga as tg
        >>> tg.gather(tg.tensor([10, 20, 30]), tg.tensor([2, 0])).tolist()
        [30, 10]
    """
    tensor, positions = as_tensor(x), _index_tensor(index)
    place = axis if dim is None else dim
    if positions.ndim == tensor.ndim and tensor.ndim > 1:
        return take_along_axis(tensor, positions, axis=place)
    return take(tensor, positions, axis=place)


def scatter_add(values: Any, index: Any, num_segments: int, /, *, axis: int = 0) -> Tensor:
    """Values added up at integer positions along an axis of extent `num_segments`.

    Example:
        >>> import tiga as tg
        >>> tg.scatter_add(tg.tensor([1.0, 2.0, 3.0]), tg.tensor([1, 0, 1]), 2).tolist()
        [2.0, 4.0]
    """
    values, positions = as_tensor(values), _index_tensor(index)
    num_segments = integer(num_segments, "num_segments=", 0)
    place = normalize_axis(axis, values.ndim)
    if values.shape[place : place + positions.ndim] != positions.shape:
        raise InvalidValue(
            f"scatter_add of values of shape {values.shape} at positions of shape "
            f"{positions.shape} along axis {place} ({here()})."
        )
    where = _positions(positions, num_segments)
    return result(apply(IndexAdd(place, num_segments), values._node, where), values)


segment_sum = scatter_add


def scatter_add_along_axis(values: Any, indices: Any, extent: int, /, *, axis: int = -1) -> Tensor:
    """Per line along an axis, values added up at the line's own positions below `extent`.

    Example:
        >>> import tiga as tg
        >>> tg.scatter_add_along_axis(tg.ones(3), tg.tensor([1, 1, 0]), 2).tolist()
        [1.0, 2.0]
    """
    values, index = as_tensor(values), _index_tensor(indices)
    place = normalize_axis(axis, values.ndim)
    if values.shape != index.shape:
        raise InvalidValue(f"values {values.shape} and indices {index.shape} differ ({here()}).")
    extent = integer(extent, "extent=", 0)
    where = _positions(index, extent)
    return result(apply(AddAlong(place, extent), values._node, where), values)


def masked_fill(x: Any, mask: Any, value: Any, /) -> Tensor:
    """x with `value` where the mask holds.

    Example:
        >>> import tiga as tg
        >>> tg.masked_fill(tg.tensor([1, 2]), tg.tensor([True, False]), 0).tolist()
        [0, 2]
    """
    (node, fill), tensors = operands(x, value, dtype=as_tensor(x).dtype)
    flags = as_tensor(mask, "mask")
    if flags.dtype != bool_ or broadcast_shapes(flags.shape, node.type.shape) != node.type.shape:
        raise InvalidValue(
            f"masked_fill expected a mask of bools that broadcasts to {node.type.shape}, got "
            f"{flags.dtype} of shape {flags.shape} ({here()})."
        )
    where = broadcast(flags._node, node.type.shape)
    return result(apply(p.where, where, fill, node), *tensors)
