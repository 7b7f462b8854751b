"""Views that share storage, and rearrangements that copy."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tiga.errors import InvalidIndex, InvalidType, InvalidValue
from tiga.frontends.tensor.build import (
    apply,
    as_tensor,
    broadcast_shapes,
    convert,
    integer,
    normalize_axes,
    normalize_axis,
    number,
    result,
    takes_tensor,
    view,
)
from tiga.frontends.tensor.core import Tensor, helper
from tiga.frontends.tensor.dtypes import result_dtype
from tiga.frontends.tensor.lazy import here
from tiga.ops import feature as o
from tiga.ops.tensor_views import join, slice_, unslice
from tiga.trace.node import Node
from tiga.types import Shape


def _extents(given: tuple[Any, ...]) -> tuple[int, ...]:
    """A shape given as one sequence or as separate integers."""
    flat = given[0] if len(given) == 1 and isinstance(given[0], (tuple, list)) else given
    return tuple(integer(extent, "a shape") for extent in flat)


def _resolve(shape: tuple[int, ...], size: int) -> Shape:
    """A shape with its -1 computed."""
    known = math.prod(extent for extent in shape if extent != -1)
    if shape.count(-1) == 1 and known and size % known == 0:
        return tuple(size // known if extent == -1 else extent for extent in shape)
    if shape.count(-1) or any(extent < 0 for extent in shape) or known != size:
        raise InvalidValue(f"reshape of {size} elements to {shape} ({here()}).")
    return shape


@takes_tensor
def reshape(x: Tensor, /, *shape: Any, copy: bool | None = None) -> Tensor:
    """The same elements in row-major order under another shape; one extent may be -1.

    Contiguous storage is shared; other storage is copied when the value is looked at.

    Example:
        >>> import tiga as tg
        >>> tg.reshape(tg.arange(6), (2, -1)).shape
        (2, 3)
    """
    target = _resolve(_extents(shape), x.size)
    node = apply(o.Reshape(target), x._node)
    shares = copy is not True and x.is_contiguous
    if copy is False and not shares:
        raise InvalidValue(
            f"reshape with copy=False of a tensor that is not contiguous ({here()})."
        )
    return view(x, node, (lambda a: a.reshape(target)) if shares else None)


@takes_tensor
def permute_dims(x: Tensor, /, *axes: Any) -> Tensor:
    """The axes in another order, sharing storage.

    Example:
        >>> import tiga as tg
        >>> tg.permute_dims(tg.zeros((2, 3, 4)), (2, 0, 1)).shape
        (4, 2, 3)
    """
    order = tuple(normalize_axis(a, x.ndim) for a in _extents(axes))
    if sorted(order) != list(range(x.ndim)):
        raise InvalidValue(f"permute expected every one of {x.ndim} axes, got {axes} ({here()}).")
    return view(x, apply(o.Permute(order), x._node), lambda a: a.transpose(order))


@takes_tensor
def transpose(x: Tensor, dim0: int, dim1: int) -> Tensor:
    """Two axes exchanged, sharing storage."""
    order = list(range(x.ndim))
    a, b = normalize_axis(dim0, x.ndim), normalize_axis(dim1, x.ndim)
    order[a], order[b] = order[b], order[a]
    return permute_dims(x, order)


@takes_tensor
def matrix_transpose(x: Tensor, /) -> Tensor:
    """The last two axes exchanged, sharing storage."""
    if x.ndim < 2:
        raise InvalidValue(f"matrix_transpose expected two axes or more, got {x.ndim} ({here()}).")
    return transpose(x, -1, -2)


@takes_tensor
def moveaxis(x: Tensor, source: Any, destination: Any, /) -> Tensor:
    """Axes moved to other places, the rest in order."""
    starts = source if isinstance(source, (tuple, list)) else (source,)
    ends = destination if isinstance(destination, (tuple, list)) else (destination,)
    if len(starts) != len(ends):
        raise InvalidValue(f"moveaxis expected as many sources as destinations ({here()}).")
    from_ = [normalize_axis(a, x.ndim) for a in starts]
    to = [normalize_axis(a, x.ndim) for a in ends]
    order = [axis for axis in range(x.ndim) if axis not in from_]
    for place, axis in sorted(zip(to, from_, strict=True)):
        order.insert(place, axis)
    return permute_dims(x, order)


@takes_tensor
def squeeze(x: Tensor, /, axis: Any = None, *, dim: Any = None) -> Tensor:
    """Without axes of extent 1 (all of them by default), sharing storage."""
    chosen = axis if dim is None else dim
    if chosen is None:
        axes: Shape = tuple(i for i, extent in enumerate(x.shape) if extent == 1)
    else:
        axes = normalize_axes(chosen, x.ndim)
    wrong = [axis for axis in axes if x.shape[axis] != 1]
    if wrong:
        raise InvalidValue(f"squeeze: axis {wrong[0]} has extent {x.shape[wrong[0]]} ({here()}).")
    target = tuple(e for i, e in enumerate(x.shape) if i not in axes)
    return _unit_axes(x, target, lambda a: a.squeeze(axes))


def _unit_axes(x: Tensor, target: Shape, through: Any) -> Tensor:
    return view(x, apply(o.Reshape(target), x._node), through)


@takes_tensor
def expand_dims(x: Tensor, /, axis: int = 0, *, dim: int | None = None) -> Tensor:
    """With a new axis of extent 1, sharing storage."""
    place = normalize_axis(axis if dim is None else dim, x.ndim + 1)
    target = (*x.shape[:place], 1, *x.shape[place:])
    return _unit_axes(x, target, lambda a: np.expand_dims(a, place))


unsqueeze = expand_dims


@takes_tensor
def broadcast_to(x: Tensor, /, *shape: Any) -> Tensor:
    """Repeated along new leading axes and axes of extent 1, sharing storage with stride 0.

    Example:
        >>> import tiga as tg
        >>> y = tg.broadcast_to(tg.tensor([1.0, 2.0]), (3, 2))
        >>> y.shape, y.strides
        ((3, 2), (0, 1))
    """
    target = _extents(shape)
    lead = len(target) - x.ndim
    target = tuple(
        x.shape[i - lead] if extent == -1 and i >= lead else extent
        for i, extent in enumerate(target)
    )
    if lead < 0 or broadcast_shapes(x.shape, target) != target:
        raise InvalidValue(f"shape {x.shape} does not broadcast to {target} ({here()}).")
    return view(x, apply(o.Broadcast(target), x._node), lambda a: _expanded(a, target))


def _expanded(array: np.ndarray, shape: Shape) -> np.ndarray:
    """The array broadcast; where it may be written, so may be what shows no element twice."""
    found = np.broadcast_to(array, shape)
    if array.__class__ is np.ndarray and array.flags.writeable:
        found.flags.writeable = True
    return found


expand = broadcast_to


def broadcast_arrays(*arrays: Any) -> list[Tensor]:
    """The tensors broadcast to one shape."""
    tensors = [as_tensor(array) for array in arrays]
    shape = broadcast_shapes(*(tensor.shape for tensor in tensors))
    return [broadcast_to(tensor, shape) for tensor in tensors]


@takes_tensor
def flatten(x: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """Neighbouring axes as one."""
    if not x.ndim:
        return reshape(x, (1,))
    first, last = normalize_axis(start_dim, x.ndim), normalize_axis(end_dim, x.ndim)
    return reshape(x, (*x.shape[:first], -1, *x.shape[last + 1 :])) if x.size else reshape(
        x, (*x.shape[:first], math.prod(x.shape[first : last + 1]), *x.shape[last + 1 :])
    )  # fmt: skip


@takes_tensor
def ravel(x: Tensor) -> Tensor:
    """All elements along one axis."""
    return reshape(x, (x.size,))


@takes_tensor
def flip(x: Tensor, /, *, axis: Any = None, dims: Any = None) -> Tensor:
    """The elements along axes (all by default) in reverse order."""
    node: Node = x._node
    for place in normalize_axes(axis, x.ndim, dims):
        count = node.type.shape[place]
        node = slice_(node, place, max(count - 1, 0), count, -1)
    return result(node, x)


@takes_tensor
def roll(x: Tensor, /, shift: Any, *, axis: Any = None) -> Tensor:
    """The elements moved along axes; what leaves at one end enters at the other."""
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
    """Tensors of one shape along a new axis."""
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
    """The pieces along an axis, without it."""
    place = normalize_axis(axis, x.ndim)
    return tuple(
        squeeze(narrow(x, place, i, 1), axis=place) for i in range(x.shape[place])
    )  # fmt: skip


@takes_tensor
def narrow(x: Tensor, axis: int, start: int, count: int, step: int = 1) -> Tensor:
    """`count` positions along one axis, sharing storage."""
    from tiga.ops.tensor_views import Slice, along, stepped

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
    """Consecutive pieces along an axis: of given sizes, or of one size (the last is smaller)."""
    place = normalize_axis(axis if dim is None else dim, x.ndim)
    total = x.shape[place]
    if isinstance(sizes, int):
        if sizes < 1:
            raise InvalidValue(f"split expected a size of at least 1, got {sizes} ({here()}).")
        whole = [sizes] * (total // sizes)
        sizes = whole + ([total % sizes] if total % sizes else [])
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
    """The tensor repeated along its axes."""
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


@takes_tensor
def repeat(x: Tensor, repeats: Any, /, *, axis: int | None = None) -> Tensor:
    """Every element repeated: a number of times, or per position along an axis."""
    from tiga.frontends.tensor.indexing import take

    if axis is None:
        x, axis = ravel(x), 0
    place = normalize_axis(axis, x.ndim)
    counts = np.asarray(repeats.numpy() if isinstance(repeats, Tensor) else repeats)
    whole = counts.dtype.kind in "iu" and (counts >= 0).all()
    if not whole or counts.size not in (1, x.shape[place]):
        raise InvalidValue(
            f"repeat expected a count of at least 0, or one for each of {x.shape[place]} elements, "
            f"got {repeats!r} ({here()})."
        )
    positions = np.repeat(np.arange(x.shape[place]), counts.reshape(-1))
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
        if value == 0:
            node = unslice(node, axis, before, 1, before + shape[axis] + after)
            continue
        sides = [
            number(value, node.type.with_shape((*shape[:axis], width, *shape[axis + 1 :])))
            for width in (before, after)
        ]
        node = join(axis, sides[0], node, sides[1])
    return result(node, x)


__all__ = [
    "broadcast_arrays", "broadcast_to", "concat", "expand", "expand_dims", "flatten", "flip",
    "matrix_transpose", "moveaxis", "narrow", "pad", "permute_dims", "ravel", "repeat", "reshape",
    "roll", "split", "squeeze", "stack", "tile", "transpose", "unsqueeze",
    "unstack",
]  # fmt: skip
