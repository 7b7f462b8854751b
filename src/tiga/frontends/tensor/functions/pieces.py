"""Pieces of tensors, and tensors joined from pieces."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tiga.errors import InvalidIndex, InvalidType, InvalidValue
from tiga.frontends.tensor.arguments import integer, normalize_axes, normalize_axis
from tiga.frontends.tensor.build import apply, as_tensor, convert, result, takes_tensor, view
from tiga.frontends.tensor.core import Tensor
from tiga.frontends.tensor.dtypes import result_dtype
from tiga.frontends.tensor.functions.views import expand_dims, ravel, reshape, squeeze
from tiga.frontends.tensor.lazy import here
from tiga.frontends.tensor.scalars import number
from tiga.frontends.tensor.storage import helper
from tiga.ops import feature as o
from tiga.ops.tensor_views import Slice, along, join, slice_, stepped, unslice
from tiga.trace.node import Node


@takes_tensor
def flip(x: Tensor, /, *, axis: Any = None, dims: Any = None) -> Tensor:
    """The elements along axes (all by default) in reverse order.

    Example:
        >>> import tiga as tg
        >>> tg.flip(tg.tensor([1, 2, 3])).tolist()
        [3, 2, 1]
    """
    node: Node = x._node
    for place in normalize_axes(axis, x.ndim, dims):
        count = node.type.shape[place]
        node = slice_(node, place, max(count - 1, 0), count, -1)
    return result(node, x)


@takes_tensor
def roll(x: Tensor, /, shift: Any, *, axis: Any = None) -> Tensor:
    """The elements moved along axes; what leaves at one end enters at the other.

    Example:
        >>> import tiga as tg
        >>> tg.roll(tg.tensor([1, 2, 3]), 1).tolist()
        [3, 1, 2]
    """
    if axis is None:
        return reshape(roll(ravel(x), shift, axis=0), x.shape)
    axes = axis if isinstance(axis, (tuple, list)) else (axis,)
    shifts = shift if isinstance(shift, (tuple, list)) else (shift,) * len(axes)
    if len(shifts) != len(axes):
        raise InvalidValue(f"roll expected a shift per axis, got {shift} for {axis} ({here()}).")
    node: Node = x._node
    for place, by in zip((normalize_axis(a, x.ndim) for a in axes), shifts, strict=True):
        count = node.type.shape[place]
        cut = -integer(by, "shift=") % count if count else 0
        if cut:
            node = join(place, slice_(node, place, cut, count - cut), slice_(node, place, 0, cut))
    return result(node, x)


def _same_dtype(arrays: Sequence[Any]) -> list[Tensor]:
    if not isinstance(arrays, (tuple, list)):
        raise InvalidType(f"expected a sequence of tensors to join, got {arrays!r} ({here()}).")
    tensors = [as_tensor(a) for a in arrays]
    if not tensors:
        raise InvalidValue(f"expected at least one tensor to join ({here()}).")
    return tensors


def concat(arrays: Sequence[Any], /, *, axis: int | None = 0, dim: int | None = None) -> Tensor:
    """Tensors after one another along an axis; `axis=None` flattens them first.

    Example:
        >>> import tiga as tg
        >>> tg.concat([tg.tensor([1]), tg.tensor([2, 3])]).tolist()
        [1, 2, 3]
    """
    tensors = _same_dtype(arrays)
    place = axis if dim is None else dim
    if place is None:
        tensors, place = [ravel(t) for t in tensors], 0
    place = normalize_axis(place, tensors[0].ndim)
    rest = {t.shape[:place] + t.shape[place + 1 :] for t in tensors}
    if len(rest) > 1 or len({t.ndim for t in tensors}) > 1:
        shapes = " and ".join(str(t.shape) for t in tensors)
        raise InvalidValue(f"concat along axis {place} of shapes {shapes} ({here()}).")
    dtype = result_dtype(*(t.dtype for t in tensors))
    return result(join(place, *(convert(t._node, dtype) for t in tensors)), *tensors)


def stack(arrays: Sequence[Any], /, *, axis: int = 0, dim: int | None = None) -> Tensor:
    """Tensors of one shape along a new axis.

    Example:
        >>> import tiga as tg
        >>> tg.stack([tg.tensor([1, 2]), tg.tensor([3, 4])]).tolist()
        [[1, 2], [3, 4]]
    """
    place = axis if dim is None else dim
    tensors = _same_dtype(arrays)
    if len({t.shape for t in tensors}) > 1:
        shapes = " and ".join(str(t.shape) for t in tensors)
        raise InvalidValue(f"stack of shapes {shapes} ({here()}): they must be equal.")
    return concat(
        [expand_dims(t, place) for t in tensors], axis=normalize_axis(place, tensors[0].ndim + 1)
    )


@takes_tensor
def unstack(x: Tensor, /, *, axis: int = 0) -> tuple[Tensor, ...]:
    """The pieces along an axis, without it.

    Example:
        >>> import tiga as tg
        >>> [row.tolist() for row in tg.unstack(tg.tensor([[1, 2], [3, 4]]))]
        [[1, 2], [3, 4]]
    """
    place = normalize_axis(axis, x.ndim)
    return tuple(
        squeeze(narrow(x, place, i, 1), axis=place) for i in range(x.shape[place])
    )  # fmt: skip


@takes_tensor
def narrow(x: Tensor, axis: int, start: int, count: int, step: int = 1) -> Tensor:
    """`count` positions along one axis, sharing storage.

    Example:
        >>> import tiga as tg
        >>> tg.narrow(tg.arange(6), 0, 1, 2, step=3).tolist()
        [1, 4]
    """
    axis = normalize_axis(axis, x.ndim)
    start, count = integer(start, "start="), integer(count, "count=", 0)
    inside = range(x.shape[axis])
    if count and not (start in inside and start + (count - 1) * step in inside):
        raise InvalidIndex(
            f"narrow of axis {axis} of extent {x.shape[axis]} to {count} positions from {start}, "
            f"{step} apart ({here()})."
        )
    node = apply(Slice(axis, start, count, step), x._node)
    piece = along(axis, stepped(start, count, step))
    # Strides of views are never negative.
    return view(x, node, (lambda a: a[piece]) if step > 0 else None)


@takes_tensor
def split(x: Tensor, sizes: Any, /, *, axis: int = 0, dim: int | None = None) -> tuple[Tensor, ...]:
    """Consecutive pieces along an axis: of given sizes, or of one size (the last is smaller).

    Example:
        >>> import tiga as tg
        >>> [piece.tolist() for piece in tg.split(tg.arange(5), 2)]
        [[0, 1], [2, 3], [4]]
    """
    place = normalize_axis(axis if dim is None else dim, x.ndim)
    total = x.shape[place]
    if isinstance(sizes, int):
        if sizes < 1:
            raise InvalidValue(f"split expected a size of at least 1, got {sizes} ({here()}).")
        whole = [sizes] * (total // sizes)
        sizes = whole + ([total % sizes] if total % sizes else [])
    if not isinstance(sizes, (tuple, list)):
        raise InvalidType(f"split expected an integer or a list of them, got {sizes!r} ({here()}).")
    sizes = [integer(size, "a size of split", 0) for size in sizes]
    if sum(sizes) != total:
        raise InvalidValue(f"split of {total} elements into sizes {list(sizes)} ({here()}).")
    pieces, start = [], 0
    for size in sizes:
        pieces.append(narrow(x, place, start, size))
        start += size
    return tuple(pieces)


@takes_tensor
def tile(x: Tensor, repetitions: Sequence[int], /) -> Tensor:
    """The tensor repeated along its axes.

    Example:
        >>> import tiga as tg
        >>> tg.tile(tg.tensor([1, 2]), (2,)).tolist()
        [1, 2, 1, 2]
    """
    if not isinstance(repetitions, (tuple, list)):
        raise InvalidType(f"tile expected a count per axis, got {repetitions!r} ({here()}).")
    counts = tuple(integer(count, "a count of tile", 0) for count in repetitions)
    rank = max(len(counts), x.ndim)
    counts = (1,) * (rank - len(counts)) + counts
    node: Node = o.reshape(x._node, (1,) * (rank - x.ndim) + x.shape)
    for axis, count in enumerate(counts):
        if count == 0:
            node = slice_(node, axis, 0, 0)
        elif count > 1:
            node = join(axis, *[node] * count)
    return result(node, x)


def _counts(repeats: Any) -> np.ndarray | None:
    """How often elements are repeated; None if these are no counts."""
    try:
        counts = np.asarray(repeats.numpy() if isinstance(repeats, Tensor) else repeats)
    except ValueError:  # lists of lists of different lengths
        return None
    return counts if counts.dtype.kind in "iu" and (counts >= 0).all() else None


@takes_tensor
def repeat(x: Tensor, repeats: Any, /, *, axis: int | None = None) -> Tensor:
    """Every element repeated: a number of times, or per position along an axis.

    Example:
        >>> import tiga as tg
        >>> tg.repeat(tg.tensor([1, 2]), 2).tolist()
        [1, 1, 2, 2]
    """
    from tiga.frontends.tensor.functions.indexing import take

    if axis is None:
        x, axis = ravel(x), 0
    place = normalize_axis(axis, x.ndim)
    counts = _counts(repeats)
    if counts is None or counts.size not in (1, x.shape[place]):
        raise InvalidValue(
            f"repeat expected a count of at least 0, or one for each of {x.shape[place]} elements, "
            f"got {repeats!r} ({here()})."
        )
    positions = np.repeat(np.arange(x.shape[place]), counts.reshape(-1).astype(np.int64))
    return take(x, helper(positions), axis=place)


@takes_tensor
def pad(x: Tensor, widths: Sequence[tuple[int, int]], *, value: Any = 0) -> Tensor:
    """With `value` before and after every axis: a pair of widths per axis.

    Example:
        >>> import tiga as tg
        >>> tg.pad(tg.tensor([1.0]), [(1, 2)]).tolist()
        [0.0, 1.0, 0.0, 0.0]
    """
    pairs = isinstance(widths, (list, tuple)) and len(widths) == x.ndim
    if not pairs or not all(
        isinstance(w, (list, tuple)) and len(w) == 2 and min(w) >= 0 for w in widths
    ):
        raise InvalidValue(
            f"pad expected {x.ndim} pairs of widths, none below 0, got {widths!r} ({here()})."
        )
    node: Node = x._node
    for axis, (before, after) in enumerate(widths):
        shape = node.type.shape
        if before == after == 0:
            continue
        if value == 0:
            node = unslice(node, axis, before, 1, before + shape[axis] + after)
            continue
        sides = [
            number(value, node.type.with_shape(o.with_axis(shape, axis, width)))
            for width in (before, after)
        ]
        node = join(axis, sides[0], node, sides[1])
    return result(node, x)
