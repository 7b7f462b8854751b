"""ATen reductions and normalisations along feature axes."""

import math
from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Any

from tiga.frontends.torch.capture.aten.arithmetic import power, safe_sqrt
from tiga.frontends.torch.capture.aten.functions import const
from tiga.frontends.torch.capture.aten.table import (
    Call,
    aligned,
    aten,
    feature_axes,
    feature_axis,
    floating,
    promoted,
    to_dtype,
    wide,
)
from tiga.frontends.torch.dtypes import dtype_of
from tiga.ops import functions as f
from tiga.ops import pointwise as p
from tiga.ops.align import expand_to
from tiga.ops.feature import concat, feature_max, feature_min, feature_sum, reshape, take
from tiga.ops.leaf import constant, ones_like, stop_gradient, zeros_like
from tiga.trace.node import Node
from tiga.types import DType, Shape, bool_, int64

Dims = Sequence[int] | int | None
Fold = Callable[[Node, int], Node]
Combine = Callable[[Node, Node], Node]


def fold_axes(x: Node, axes: Sequence[int], fold: Fold, keep: bool = False) -> Node:
    """`fold` along each of the axes, which are descending."""
    kept = _kept(x, axes)
    for axis in axes:
        x = fold(x, axis)
    return reshape(x, kept) if keep else x


def _kept(x: Node, axes: Sequence[int]) -> Shape:
    """The shape of `x` with 1 along `axes`."""
    return tuple(1 if i in axes else extent for i, extent in enumerate(x.type.shape))


def _restore(x: Node, axes: Sequence[int], like: Node) -> Node:
    """A value reduced along `axes`, repeated along them again."""
    return expand_to(reshape(x, _kept(like, axes)), like.type.shape, like.type.space)


def _extent(x: Node, axes: Sequence[int]) -> int:
    return math.prod(x.type.shape[axis] for axis in axes)


def _target(x: Node, dtype: object) -> DType:
    if dtype is not None:
        return dtype_of(dtype)
    return x.type.dtype if x.type.dtype.is_float else int64


@aten("sum", "sum.dim_IntList")
def _sum(
    call: Call, x: Node, dim: Dims = None, keepdim: bool = False, *, dtype: Any = None
) -> Node:
    out = _target(x, dtype)
    axes = feature_axes(call, x, dim)
    total = fold_axes(to_dtype(x, out.compute), axes, feature_sum, keepdim)
    if _extent(x, axes) == 1:  # nothing is summed, but torch starts from 0 all the same
        total = p.add(total, zeros_like(total))
    return p.cast(total, out)


def mean_over(x: Node, axes: Sequence[int], keep: bool = False) -> Node:
    """The mean over feature axes."""
    total = fold_axes(x, axes, feature_sum, keep)
    return p.div(total, const(total, _extent(x, axes)))


@aten("mean", "mean.dim")
def _mean(
    call: Call, x: Node, dim: Dims = None, keepdim: bool = False, *, dtype: Any = None
) -> Node:
    out = _target(x, dtype)
    axes = feature_axes(call, x, dim)
    return p.cast(mean_over(to_dtype(x, out.compute), axes, keepdim), out)


@aten("amax", "max")
def _amax(call: Call, x: Node, dim: Dims = (), keepdim: bool = False) -> Node:
    return fold_axes(x, feature_axes(call, x, dim), feature_max, keepdim)


@aten("amin", "min")
def _amin(call: Call, x: Node, dim: Dims = (), keepdim: bool = False) -> Node:
    return fold_axes(x, feature_axes(call, x, dim), feature_min, keepdim)


@aten("max.dim")
def _max_dim(call: Call, x: Node, dim: int, keepdim: bool = False) -> tuple[Node, None]:
    """Ties share the derivative evenly, as in `amax`; the indices have no op."""
    return _amax(call, x, dim, keepdim), None


@aten("min.dim")
def _min_dim(call: Call, x: Node, dim: int, keepdim: bool = False) -> tuple[Node, None]:
    return _amin(call, x, dim, keepdim), None


MOST_FACTORS = 64
"""Elements along the axes of a reduction without an op of its own: each becomes a node."""


def _fold_pieces(combine: Combine, identity: int, x: Node, axis: int) -> Node:
    """The slices of `x` along an axis, which is dropped, combined from the first on; `identity` if
    there is none."""
    shape = x.type.shape[:axis] + x.type.shape[axis + 1 :]
    if not x.type.shape[axis]:
        return constant(identity, x.type.with_shape(shape))
    pieces = (reshape(take(x, axis, (i,)), shape) for i in range(x.type.shape[axis]))
    return reduce(combine, pieces)


@aten("prod", "prod.dim_int")
def _prod(
    call: Call, x: Node, dim: Dims = None, keepdim: bool = False, *, dtype: Any = None
) -> Node:
    out = _target(x, dtype)
    axes = feature_axes(call, x, dim)
    if _extent(x, axes) > MOST_FACTORS:
        raise call.unfusable(f"a product of more than {MOST_FACTORS} elements")
    product = partial(_fold_pieces, p.mul, 1)
    return p.cast(fold_axes(to_dtype(x, out.compute), axes, product, keepdim), out)


@aten("any", "any.dim")
def _any(call: Call, x: Node, dim: int | None = None, keepdim: bool = False) -> Node:
    return _logical_fold(call, x, dim, keepdim, partial(_fold_pieces, p.logical_or, 0))


@aten("all", "all.dim")
def _all(call: Call, x: Node, dim: int | None = None, keepdim: bool = False) -> Node:
    return _logical_fold(call, x, dim, keepdim, partial(_fold_pieces, p.logical_and, 1))


def _logical_fold(call: Call, x: Node, dim: int | None, keepdim: bool, fold: Fold) -> Node:
    axes = feature_axes(call, x, dim)
    if _extent(x, axes) > MOST_FACTORS:
        raise call.unfusable(f"a logical reduction of more than {MOST_FACTORS} elements")
    return fold_axes(to_dtype(x, bool_), axes, fold, keepdim)


def variance(call: Call, x: Node, dim: Dims, correction: float, keepdim: bool) -> Node:
    """The variance over feature axes; `correction` is subtracted from the count."""
    axes = feature_axes(call, x, dim)
    centred = p.sub(x, _restore(mean_over(x, axes), axes, x))
    squares = fold_axes(p.mul(centred, centred), axes, feature_sum, keepdim)
    return p.div(squares, const(squares, max(_extent(x, axes) - correction, 0)))


@aten("var.correction")
def _var(call: Call, x: Node, dim: Dims = None, *, correction: float | None = None,
         keepdim: bool = False) -> Node:  # fmt: skip
    value = variance(call, wide(x), dim, 1 if correction is None else correction, keepdim)
    return p.cast(value, x.type.dtype)


@aten("std.correction")
def _std(call: Call, x: Node, dim: Dims = None, *, correction: float | None = None,
         keepdim: bool = False) -> Node:  # fmt: skip
    value = variance(call, wide(x), dim, 1 if correction is None else correction, keepdim)
    return p.cast(safe_sqrt(value), x.type.dtype)


@aten("var_mean.correction")
def _var_mean(call: Call, x: Node, dim: Dims = None, *, correction: float | None = None,
              keepdim: bool = False) -> tuple[Node, Node]:  # fmt: skip
    return (
        _var(call, x, dim, correction=correction, keepdim=keepdim),
        _mean(call, x, dim, keepdim),
    )


def _norm(x: Node, order: float, axes: Sequence[int], keep: bool) -> Node:
    if order == 2:
        return safe_sqrt(fold_axes(p.mul(x, x), axes, feature_sum, keep))
    size = f.abs_(x)
    if order in (math.inf, -math.inf):
        return fold_axes(size, axes, feature_max if order > 0 else feature_min, keep)
    if order == 0:
        return fold_axes(p.cast(p.ne(x, zeros_like(x)), x.type.dtype), axes, feature_sum, keep)
    if order == 1:
        return fold_axes(size, axes, feature_sum, keep)
    zero = p.eq(size, zeros_like(size))
    powers = p.where(zero, zeros_like(x), power(p.where(zero, ones_like(x), size), order))
    total = fold_axes(powers, axes, feature_sum, keep)
    none = p.eq(total, zeros_like(total))
    root = power(p.where(none, ones_like(total), total), 1 / order)
    return p.where(none, zeros_like(total), root)


@aten("linalg_vector_norm")
def _vector_norm(call: Call, x: Node, ord: float = 2, dim: Dims = None, keepdim: bool = False, *,
                 dtype: Any = None) -> Node:  # fmt: skip
    """The derivative at zero is zero, as torch's subgradient."""
    out = floating(x) if dtype is None else dtype_of(dtype)
    value = _norm(to_dtype(x, out.compute), float(ord), feature_axes(call, x, dim), keepdim)
    return p.cast(value, out)


@aten("norm.ScalarOpt_dim", "norm.ScalarOpt_dim_dtype")
def _legacy_norm(call: Call, x: Node, order: float | None, dim: Dims, keepdim: bool = False,
                 *, dtype: Any = None) -> Node:  # fmt: skip
    return _vector_norm(call, x, 2 if order is None else order, dim, keepdim, dtype=dtype)


def _shifted(x: Node, axis: int) -> Node:
    """x less its maximum along an axis: the shift cancels, so no derivative flows through it."""
    return p.sub(x, _restore(stop_gradient(feature_max(x, axis)), [axis], x))


@aten("_softmax", "_safe_softmax")
def _softmax(call: Call, x: Node, dim: int, half_to_float: bool = False) -> Node:
    axis = feature_axis(call, x, dim)
    exponentials = f.exp(_shifted(wide(x), axis))
    total = _restore(feature_sum(exponentials, axis), [axis], exponentials)
    return p.cast(p.div(exponentials, total), x.type.dtype)


@aten("_log_softmax")
def _log_softmax(call: Call, x: Node, dim: int, half_to_float: bool = False) -> Node:
    axis = feature_axis(call, x, dim)
    shifted = _shifted(wide(x), axis)
    total = f.log(feature_sum(f.exp(shifted), axis))
    return p.cast(p.sub(shifted, _restore(total, [axis], shifted)), x.type.dtype)


@aten("logsumexp")
def _logsumexp(call: Call, x: Node, dim: Dims, keepdim: bool = False) -> Node:
    axes = feature_axes(call, x, dim)
    y = wide(x)
    peak = stop_gradient(fold_axes(y, axes, feature_max))
    infinite = p.eq(f.abs_(peak), const(peak, math.inf))
    shift = p.where(infinite, zeros_like(peak), peak)
    exponentials = f.exp(p.sub(y, _restore(shift, axes, y)))
    value = p.add(f.log(fold_axes(exponentials, axes, feature_sum)), shift)
    return p.cast(reshape(value, _kept(x, axes)) if keepdim else value, floating(x))


def _affine(y: Node, weight: Node | None, bias: Node | None) -> Node:
    for value, op in ((weight, p.mul), (bias, p.add)):
        if value is not None:
            y = op(y, expand_to(wide(value), y.type.shape, y.type.space))
    return y


def _normalised(y: Node, axes: Sequence[int], eps: float) -> tuple[Node, Node, Node]:
    mean = mean_over(y, axes)
    centred = p.sub(y, _restore(mean, axes, y))
    spread = mean_over(p.mul(centred, centred), axes)
    scale = power(p.add(spread, const(spread, eps)), -0.5)
    return p.mul(centred, _restore(scale, axes, y)), mean, scale


@aten("native_layer_norm")
def _layer_norm(call: Call, x: Node, shape: Sequence[int], weight: Node | None,
                bias: Node | None, eps: float) -> tuple[Node, Node, Node]:  # fmt: skip
    axes = feature_axes(call, x, [-1 - i for i in range(len(shape))])
    y, mean, scale = _normalised(wide(x), axes, eps)
    return p.cast(_affine(y, weight, bias), x.type.dtype), mean, scale


@aten("_fused_rms_norm")
def _rms_norm(call: Call, x: Node, shape: Sequence[int], weight: Node | None,
              eps: float | None = None) -> tuple[Node, None]:  # fmt: skip
    y = wide(x)
    axes = feature_axes(call, x, [-1 - i for i in range(len(shape))])
    square = mean_over(p.mul(y, y), axes)
    eps = 2.0**-23 if eps is None else eps
    scale = power(p.add(square, const(square, eps)), -0.5)
    return p.cast(_affine(p.mul(y, _restore(scale, axes, y)), weight, None), x.type.dtype), None


@aten("native_group_norm")
def _group_norm(call: Call, x: Node, weight: Node | None, bias: Node | None, n: int, c: int,
                hxw: int, group: int, eps: float) -> tuple[Node, None, None]:  # fmt: skip
    shape = x.type.shape
    grouped = reshape(wide(x), (group, math.prod(shape) // group))
    y = reshape(_normalised(grouped, [1], eps)[0], shape)
    channels = (shape[0], *(1,) * (len(shape) - 1))
    weight, bias = (None if v is None else reshape(v, channels) for v in (weight, bias))
    return p.cast(_affine(y, weight, bias), x.type.dtype), None, None


@aten("cumsum")
def _cumsum(call: Call, x: Node, dim: int, *, dtype: Any = None) -> Node:
    out = _target(x, dtype)
    axis = feature_axis(call, x, dim)
    y = to_dtype(x, out.compute)
    if y.type.shape[axis] > MOST_FACTORS:
        raise call.unfusable(f"a running sum of more than {MOST_FACTORS} elements")
    sums: list[Node] = []
    for i in range(y.type.shape[axis]):
        piece = take(y, axis, (i,))
        sums.append(p.add(sums[-1], piece) if sums else piece)
    return p.cast(concat(axis, *sums) if sums else y, out)


@aten("linalg_cross")
def _cross(call: Call, a: Node, b: Node, *, dim: int = -1) -> Node:
    out = promoted(call, a, b)
    x, y = aligned(call, to_dtype(a, out.compute), to_dtype(b, out.compute))
    axis = feature_axis(call, x, dim)
    one, two = (1, 2, 0), (2, 0, 1)
    left = p.mul(take(x, axis, one), take(y, axis, two))
    right = p.mul(take(x, axis, two), take(y, axis, one))
    return p.cast(p.sub(left, right), out)
