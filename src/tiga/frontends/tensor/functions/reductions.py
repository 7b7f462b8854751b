"""Reductions over any axes, scans, and what is composed of them. `dim` is another word for `axis`,
`keepdim` for `keepdims`."""

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from tiga.errors import InvalidType, InvalidValue
from tiga.frontends.tensor.arguments import normalize_axes, normalize_axis
from tiga.frontends.tensor.build import apply, as_tensor, convert, result, truth
from tiga.frontends.tensor.core import Tensor
from tiga.frontends.tensor.dtypes import DEFAULT_INT, as_float, check_dtype
from tiga.frontends.tensor.lazy import here
from tiga.frontends.tensor.record import recorded
from tiga.frontends.tensor.scalars import number
from tiga.ops import functions as f
from tiga.ops import pointwise as p
from tiga.ops import tensor_reduce as r
from tiga.ops.base import Op
from tiga.ops.feature import reshape
from tiga.ops.leaf import ones_like, stop_gradient, zeros_like
from tiga.ops.tensor_complex import conj, real
from tiga.trace.node import Node
from tiga.types import DType, Shape


def _kept(node: Node, x: Node, axes: Shape, keep: bool) -> Node:
    """A reduced value, with the reduced axes at extent 1 if they are kept."""
    return reshape(node, r.kept_shape(x.type.shape, axes)) if keep else node


def sum_dtype(dtype: DType, wanted: Any) -> DType:
    """The dtype of a sum: the one that is wanted, else that of floats, and int64 for all else."""
    if wanted is not None:
        return check_dtype(wanted)
    return dtype if dtype.kind in "fc" else DEFAULT_INT


def _prepare(x: Any, axis: Any, dim: Any) -> tuple[Tensor, Node, Shape]:
    tensor = as_tensor(x)
    return tensor, tensor._node, normalize_axes(axis, tensor.ndim, dim)


@lru_cache(maxsize=1024)
def _over(op: Callable[[Shape], Op], axes: Shape) -> Op:
    """A reduction over axes, made once: ops are hashed and compared wherever they go."""
    return op(axes)


def _sum_node(x: Node, axes: Shape) -> Node:
    return apply(_over(r.Sum, axes), x) if axes else x


def sum(
    x: Any, /, *, axis: Any = None, dtype: Any = None, keepdims: bool = False,
    dim: Any = None, keepdim: bool = False,
) -> Tensor:  # fmt: skip
    """The sum over axes (all by default), by blocks whose sums are added by pairs.

    Integers and truth values sum in int64 unless `dtype` says otherwise; 16-bit floats in float32.
    """
    tensor, node, axes = _prepare(x, axis, dim)
    wide = convert(node, sum_dtype(tensor.dtype, dtype))
    return result(_kept(_sum_node(wide, axes), node, axes, keepdims or keepdim), tensor)


def _count(shape: Shape, axes: Shape) -> int:
    return math.prod(shape[axis] for axis in axes)


def _mean_node(x: Node, axes: Shape) -> Node:
    """The mean in the accumulator's dtype, axes kept; 16-bit sums may pass the type's range."""
    wide = convert(x, x.type.dtype.compute)
    total = reshape(_sum_node(wide, axes), r.kept_shape(x.type.shape, axes))
    return p.div(total, number(_count(x.type.shape, axes), total.type))


def _reshaped(node: Node, x: Node, axes: Shape, keep: bool) -> Node:
    """A value with kept axes, without them unless they are kept."""
    if keep:
        return node
    return reshape(node, tuple(e for axis, e in enumerate(x.type.shape) if axis not in axes))


def mean(
    x: Any, /, *, axis: Any = None, keepdims: bool = False, dim: Any = None, keepdim: bool = False
) -> Tensor:
    """The mean over axes (all by default); integers are averaged as floats."""
    tensor, node, axes = _prepare(x, axis, dim)
    node = convert(node, as_float(tensor.dtype))
    value = convert(_mean_node(node, axes), node.type.dtype)
    return result(_reshaped(value, node, axes, keepdims or keepdim), tensor)


def _variance(node: Node, axes: Shape, correction: float) -> Node:
    """Mean squared distance from the mean, axes kept, in the accumulator's dtype.

    The distances are taken first, so that large values with a small spread lose nothing.
    """
    wide = convert(node, node.type.dtype.compute)
    distance = p.sub(wide, r.broadcast(_mean_node(node, axes), wide.type.shape))
    squares = p.mul(distance, conj(distance))
    squares = real(squares) if squares.type.dtype.is_complex else squares
    total = reshape(_sum_node(squares, axes), r.kept_shape(node.type.shape, axes))
    if not isinstance(correction, (int, float)):
        raise InvalidType(f"correction= expected a number, got {correction!r} ({here()}).")
    count = _count(node.type.shape, axes) - correction
    return p.div(total, number(count if count > 0 else 0, total.type))


@recorded
def var(
    x: Any, /, *, axis: Any = None, correction: float = 0.0, keepdims: bool = False,
    dim: Any = None, keepdim: bool = False,
) -> Tensor:  # fmt: skip
    """The variance over axes; `correction` is subtracted from the count (1: of a sample).

    Example:
        >>> import tiga as tg
        >>> tg.var(tg.tensor([1.0, 3.0]), correction=1).item()
        2.0
    """
    tensor, node, axes = _prepare(x, axis, dim)
    node = convert(node, as_float(tensor.dtype))
    value = _variance(node, axes, correction)
    if not node.type.dtype.is_complex:
        value = convert(value, node.type.dtype)
    return result(_reshaped(value, node, axes, keepdims or keepdim), tensor)


@recorded
def std(
    x: Any, /, *, axis: Any = None, correction: float = 0.0, keepdims: bool = False,
    dim: Any = None, keepdim: bool = False,
) -> Tensor:  # fmt: skip
    """The standard deviation over axes; its derivative where it is 0 is 0.

    Example:
        >>> import tiga as tg
        >>> tg.std(tg.tensor([1.0, 3.0])).item()
        1.0
    """
    tensor, node, axes = _prepare(x, axis, dim)
    node = convert(node, as_float(tensor.dtype))
    value = _variance(node, axes, correction)
    none = p.eq(value, zeros_like(value))
    root = p.where(none, zeros_like(value), f.sqrt(p.where(none, ones_like(value), value)))
    if not node.type.dtype.is_complex:
        root = convert(root, node.type.dtype)
    return result(_reshaped(root, node, axes, keepdims or keepdim), tensor)


def _extremum(op: Any, name: str, x: Any, axis: Any, dim: Any, keep: bool) -> Tensor:
    tensor, node, axes = _prepare(x, axis, dim)
    if tensor.dtype.is_complex:
        raise InvalidType(f"{name} of complex numbers, which have no order ({here()}).")
    if _count(tensor.shape, axes) == 0:
        raise InvalidValue(f"{name} over no elements: shape {tensor.shape} ({here()}).")
    reduced = apply(_over(op, axes), node) if axes else node
    return result(_kept(reduced, node, axes, keep), tensor)


def max(
    x: Any, /, *, axis: Any = None, keepdims: bool = False, dim: Any = None, keepdim: bool = False
) -> Tensor:
    """The maximum over axes, NaN if there is one; ties share the derivative evenly.

    The same as `tg.max` of a tensor; of torch tensors, `torch.amax`.

    Example:
        >>> import tiga as tg
        >>> tg.amax(tg.tensor([1.0, 3.0])).item()
        3.0
    """
    return _extremum(r.Max, "max", x, axis, dim, keepdims or keepdim)


def min(
    x: Any, /, *, axis: Any = None, keepdims: bool = False, dim: Any = None, keepdim: bool = False
) -> Tensor:
    """The minimum over axes, NaN if there is one; ties share the derivative evenly.

    The same as `tg.min` of a tensor; of torch tensors, `torch.amin`.

    Example:
        >>> import tiga as tg
        >>> tg.amin(tg.tensor([1.0, 3.0])).item()
        1.0
    """
    return _extremum(r.Min, "min", x, axis, dim, keepdims or keepdim)


amax, amin = max, min


def _along(op: Any, name: str, x: Any, axis: Any, dim: Any, keep: bool) -> Tensor:
    tensor = as_tensor(x)
    axis = axis if dim is None else dim
    node: Node = tensor._node
    shape = tensor.shape
    if axis is None:
        node, kept = reshape(node, (tensor.size,)), (1,) * tensor.ndim
        axis = 0
    else:
        axis = normalize_axis(axis, tensor.ndim)
        kept = r.kept_shape(shape, (axis,))
    if node.type.shape[axis] == 0:
        raise InvalidValue(f"{name} over no elements: shape {shape} ({here()}).")
    found: Node = apply(op(axis), node)
    return result(reshape(found, kept) if keep else found, tensor)


def argmax(
    x: Any, /, *, axis: Any = None, keepdims: bool = False, dim: Any = None, keepdim: bool = False
) -> Tensor:
    """The position of the maximum along an axis (of the flattened tensor by default): the first
    of ties, or of NaNs.

    Example:
        >>> import tiga as tg
        >>> tg.argmax(tg.tensor([3, 7, 7])).item()
        1
    """
    return _along(r.ArgMax, "argmax", x, axis, dim, keepdims or keepdim)


def argmin(
    x: Any, /, *, axis: Any = None, keepdims: bool = False, dim: Any = None, keepdim: bool = False
) -> Tensor:
    """The position of the minimum along an axis (of the flattened tensor by default): the first
    of ties, or of NaNs.

    Example:
        >>> import tiga as tg
        >>> tg.argmin(tg.tensor([3, 1, 1])).item()
        1
    """
    return _along(r.ArgMin, "argmin", x, axis, dim, keepdims or keepdim)


def _quantifier(op: Any, x: Any, axis: Any, dim: Any, keep: bool) -> Tensor:
    tensor, node, axes = _prepare(x, axis, dim)
    flags = truth(node)
    return result(_kept(apply(op(axes), flags) if axes else flags, node, axes, keep), tensor)


def all(
    x: Any, /, *, axis: Any = None, keepdims: bool = False, dim: Any = None, keepdim: bool = False
) -> Tensor:
    """Whether every element over axes is true (not 0).

    Example:
        >>> import tiga as tg
        >>> tg.all(tg.tensor([[True, False], [True, True]]), axis=1).tolist()
        [False, True]
    """
    return _quantifier(r.AllTrue, x, axis, dim, keepdims or keepdim)


def any(
    x: Any, /, *, axis: Any = None, keepdims: bool = False, dim: Any = None, keepdim: bool = False
) -> Tensor:
    """Whether some element over axes is true (not 0).

    Example:
        >>> import tiga as tg
        >>> tg.any(tg.tensor([[True, False], [False, False]]), axis=1).tolist()
        [True, False]
    """
    return _quantifier(r.AnyTrue, x, axis, dim, keepdims or keepdim)


def count_nonzero(
    x: Any, /, *, axis: Any = None, keepdims: bool = False, dim: Any = None, keepdim: bool = False
) -> Tensor:
    """How many elements over axes are not 0.

    Example:
        >>> import tiga as tg
        >>> tg.count_nonzero(tg.tensor([0, 5, 7])).item()
        2
    """
    tensor = as_tensor(x)
    flags = result(truth(tensor._node), tensor)
    return sum(flags, axis=axis, dim=dim, keepdims=keepdims, keepdim=keepdim)


def _product(x: Node, axes: Shape) -> Node:
    """The product over axes: neighbours among them are one, and each is reduced by itself."""
    for run in reversed(r.runs(x.type.shape, axes)):
        shape = x.type.shape
        before, after = shape[: run[0]], shape[run[-1] + 1 :]
        joined = reshape(x, (*before, _count(shape, run), *after))
        x = apply(r.Prod((run[0],)), joined)
    return x


def prod(
    x: Any, /, *, axis: Any = None, dtype: Any = None, keepdims: bool = False,
    dim: Any = None, keepdim: bool = False,
) -> Tensor:  # fmt: skip
    """The product over axes (all by default); its derivatives are exact with zeros among x."""
    tensor, node, axes = _prepare(x, axis, dim)
    target = sum_dtype(tensor.dtype, dtype)
    node = convert(node, target.compute)
    left = tuple(extent for axis_, extent in enumerate(tensor.shape) if axis_ not in axes)
    if _count(tensor.shape, axes) == 0:
        nothing = reshape(_sum_node(node, axes), left)  # 0, and reached by derivatives
        value: Node = p.add(nothing, number(1, nothing.type))
    else:
        value = reshape(_product(node, axes), left)
    value = _kept(convert(value, target), tensor._node, axes, keepdims or keepdim)
    return result(value, tensor)


def _peak(node: Node, axes: Shape) -> Node:
    """The maximum (of real parts), axes kept; 0 over no elements."""
    kept = r.kept_shape(node.type.shape, axes)
    size = real(node) if node.type.dtype.is_complex else node
    if _count(node.type.shape, axes) == 0:
        return number(0, size.type.with_shape(kept))
    return stop_gradient(reshape(apply(r.Max(axes), size), kept))


def _shifted(node: Node, peak: Node, axes: Shape) -> tuple[Node, Node]:
    """x - peak, and the sum of its exponentials, axes kept."""
    shift = convert(peak, node.type.dtype)
    difference = p.sub(node, r.broadcast(shift, node.type.shape))
    return difference, reshape(_sum_node(f.exp(difference), axes), shift.type.shape)


@recorded
def logsumexp(
    x: Any, /, *, axis: Any = None, keepdims: bool = False, dim: Any = None, keepdim: bool = False
) -> Tensor:
    """log(sum(exp(x))) over axes without overflow; -inf over no elements."""
    tensor, node, axes = _prepare(x, axis, dim)
    wide = convert(node, as_float(tensor.dtype).compute)
    peak = _peak(wide, axes)
    infinite = p.eq(f.abs_(peak), number(float("inf"), peak.type))
    shift = p.where(infinite, zeros_like(peak), peak)
    _, total = _shifted(wide, shift, axes)
    value = p.add(f.log(total), convert(shift, wide.type.dtype))
    value = convert(value, as_float(tensor.dtype))
    return result(_reshaped(value, node, axes, keepdims or keepdim), tensor)


@recorded
def softmax(x: Any, /, *, axis: Any = -1, dim: Any = None) -> Tensor:
    """exp(x) / sum(exp(x)) along an axis, without overflow; NaN where the maximum is infinite."""
    tensor, node, axes = _prepare(x, axis if dim is None else dim, None)
    wide = convert(node, as_float(tensor.dtype).compute)
    difference, total = _shifted(wide, _peak(wide, axes), axes)
    share = p.div(f.exp(difference), r.broadcast(total, wide.type.shape))
    return result(convert(share, as_float(tensor.dtype)), tensor)


@recorded
def log_softmax(x: Any, /, *, axis: Any = -1, dim: Any = None) -> Tensor:
    """log(softmax(x)) along an axis, accurate where the softmax is tiny.

    Example:
        >>> import tiga as tg
        >>> tg.log_softmax(tg.tensor([1000.0, 0.0])).tolist()
        [0.0, -1000.0]
    """
    tensor, node, axes = _prepare(x, axis if dim is None else dim, None)
    wide = convert(node, as_float(tensor.dtype).compute)
    difference, total = _shifted(wide, _peak(wide, axes), axes)
    value = p.sub(difference, r.broadcast(f.log(total), wide.type.shape))
    return result(convert(value, as_float(tensor.dtype)), tensor)
