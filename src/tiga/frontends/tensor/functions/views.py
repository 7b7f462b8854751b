"""Views of one tensor under other shapes and axes."""

import math
from typing import Any

import numpy as np

from tiga.errors import InvalidValue
from tiga.frontends.tensor.arguments import integer, normalize_axes, normalize_axis
from tiga.frontends.tensor.build import apply, as_tensor, broadcast_shapes, takes_tensor, view
from tiga.frontends.tensor.core import Tensor
from tiga.frontends.tensor.lazy import here
from tiga.ops import feature as o
from tiga.runtime.layout import is_shown_as
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

    Storage is shared where the elements can be shown so where they lie, as those of contiguous
    storage can; else they are copied when the value is looked at.

    Example:
        >>> import tiga as tg
        >>> tg.reshape(tg.arange(6), (2, -1)).shape
        (2, 3)
    """
    target = _resolve(_extents(shape), x.size)
    node = apply(o.Reshape(target), x._node)
    shares = copy is not True and (x.is_contiguous or is_shown_as(x.shape, x.strides, target))
    if copy is False and not shares:
        raise InvalidValue(
            f"reshape with copy=False to {target} of a tensor of shape {x.shape} and strides "
            f"{x.strides}, whose elements would have to move ({here()})."
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
    """Two axes exchanged, sharing storage.

    Example:
        >>> import tiga as tg
        >>> tg.transpose(tg.zeros((2, 3, 4)), 0, 2).shape
        (4, 3, 2)
    """
    order = list(range(x.ndim))
    a, b = normalize_axis(dim0, x.ndim), normalize_axis(dim1, x.ndim)
    order[a], order[b] = order[b], order[a]
    return permute_dims(x, order)


@takes_tensor
def matrix_transpose(x: Tensor, /) -> Tensor:
    """The last two axes exchanged, sharing storage.

    Example:
        >>> import tiga as tg
        >>> tg.matrix_transpose(tg.tensor([[1, 2], [3, 4]])).tolist()
        [[1, 3], [2, 4]]
    """
    if x.ndim < 2:
        raise InvalidValue(f"matrix_transpose expected two axes or more, got {x.ndim} ({here()}).")
    return transpose(x, -1, -2)


@takes_tensor
def moveaxis(x: Tensor, source: Any, destination: Any, /) -> Tensor:
    """Axes moved to other places, the rest in order.

    Example:
        >>> import tiga as tg
        >>> tg.moveaxis(tg.zeros((2, 3, 4)), 0, -1).shape
        (3, 4, 2)
    """
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
    """Without axes of extent 1 (all of them by default), sharing storage.

    Example:
        >>> import tiga as tg
        >>> tg.squeeze(tg.zeros((1, 3)), axis=0).shape
        (3,)
    """
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
    """With a new axis of extent 1, sharing storage.

    Example:
        >>> import tiga as tg
        >>> tg.expand_dims(tg.zeros(3), axis=0).shape
        (1, 3)
    """
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
    """The tensors broadcast to one shape.

    Example:
        >>> import tiga as tg
        >>> [x.shape for x in tg.broadcast_arrays(tg.zeros((2, 1)), tg.zeros(3))]
        [(2, 3), (2, 3)]
    """
    tensors = [as_tensor(array) for array in arrays]
    shape = broadcast_shapes(*(tensor.shape for tensor in tensors))
    return [broadcast_to(tensor, shape) for tensor in tensors]


@takes_tensor
def flatten(x: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """Neighbouring axes as one.

    Example:
        >>> import tiga as tg
        >>> tg.flatten(tg.zeros((2, 3, 4)), 1).shape
        (2, 12)
    """
    if not x.ndim:
        return reshape(x, (1,))
    first, last = normalize_axis(start_dim, x.ndim), normalize_axis(end_dim, x.ndim)
    return reshape(x, (*x.shape[:first], -1, *x.shape[last + 1 :])) if x.size else reshape(
        x, (*x.shape[:first], math.prod(x.shape[first : last + 1]), *x.shape[last + 1 :])
    )  # fmt: skip


@takes_tensor
def ravel(x: Tensor) -> Tensor:
    """All elements along one axis.

    Example:
        >>> import tiga as tg
        >>> tg.ravel(tg.tensor([[1, 2], [3, 4]])).tolist()
        [1, 2, 3, 4]
    """
    return reshape(x, (x.size,))
