"""Normalisation and losses, accurate in half precision: they compute in float32 and round once."""

from typing import Any

import numpy as np

from tiga.errors import InvalidIndex, InvalidType, InvalidValue
from tiga.frontends.tensor.build import as_tensor, broadcast_shapes
from tiga.frontends.tensor.core import Tensor
from tiga.frontends.tensor.dtypes import as_float, promote
from tiga.frontends.tensor.functions import elementwise as e
from tiga.frontends.tensor.functions import reductions as r
from tiga.frontends.tensor.functions import selection as s
from tiga.frontends.tensor.functions.indexing import LOOKED_AT, take_along_axis
from tiga.frontends.tensor.functions.views import expand_dims, squeeze
from tiga.frontends.tensor.lazy import here
from tiga.frontends.tensor.record import recorded
from tiga.types import int64

_REDUCTIONS = ("mean", "sum", "none")


def _wide(x: Any) -> tuple[Tensor, Any]:
    """x in the type that computes its floats, and the type to round the result to."""
    tensor = as_tensor(x)
    dtype = as_float(tensor.dtype)
    return s.astype(tensor, dtype.compute, copy=False), dtype


def _wide_pair(input: Any, target: Any) -> tuple[Tensor, Tensor, Any]:
    """Both in the type that computes their differences, and the type to round the result to.

    One may broadcast to the other; (N,) beside (N, 1) would compare all pairs of elements.
    """
    first, second = as_tensor(input), as_tensor(target)
    if broadcast_shapes(first.shape, second.shape) not in (first.shape, second.shape):
        raise InvalidValue(
            f"a loss expected input and target of one shape, got {first.shape} and {second.shape} "
            f"({here()}), which would compare all pairs of elements; reshape one of them."
        )
    dtype = as_float(promote(first.dtype, second.dtype))
    wide = [s.astype(tensor, dtype.compute, copy=False) for tensor in (first, second)]
    return wide[0], wide[1], dtype


def last_axes(x: Tensor, shape: Any) -> tuple[int, ...]:
    """The axes whose extents are `shape`, the last ones; None is the last axis."""
    given = x.shape[-1:] if shape is None else shape
    extents = tuple(given) if isinstance(given, (tuple, list)) else (given,)
    if not extents or extents != x.shape[-len(extents) :]:
        raise InvalidValue(
            f"normalized_shape= expected the last extents of shape {x.shape}, got {shape!r} "
            f"({here()})."
        )
    return tuple(range(-len(extents), 0))


def _reduce(loss: Tensor, reduction: str, dtype: Any) -> Tensor:
    if reduction not in _REDUCTIONS:
        raise InvalidValue(
            f"reduction= expected one of {', '.join(_REDUCTIONS)}, got {reduction!r} ({here()})."
        )
    if reduction != "none":
        loss = r.mean(loss) if reduction == "mean" else r.sum(loss)
    return s.astype(loss, dtype, copy=False)


@recorded
def layer_norm(
    x: Any, normalized_shape: Any = None, weight: Any = None, bias: Any = None, eps: float = 1e-5
) -> Tensor:
    """x without its mean and at variance 1 over the last axes, times weight plus bias.

    Args:
        normalized_shape: the extents of those axes (the last one by default).
        weight, bias: of that shape, or None.

    Example:
        >>> import tiga as tg
        >>> tg.layer_norm(tg.tensor([[1.0, 3.0]]), eps=0.0).tolist()
        [[-1.0, 1.0]]
    """
    wide, dtype = _wide(x)
    axes = last_axes(wide, normalized_shape)
    centred = wide - r.mean(wide, axis=axes, keepdims=True)
    variance = r.mean(centred * centred, axis=axes, keepdims=True)
    value = centred * e.rsqrt(e.add(variance, eps))
    value = value if weight is None else e.multiply(value, weight)
    value = value if bias is None else e.add(value, bias)
    return s.astype(value, dtype, copy=False)


def mse_loss(input: Any, target: Any, *, reduction: str = "mean") -> Tensor:
    """The squared distance of input and target.

    Example:
        >>> import tiga as tg
        >>> tg.mse_loss(tg.tensor([1.0, 2.0]), tg.tensor([1.0, 4.0])).item()
        2.0
    """
    wide, wanted, dtype = _wide_pair(input, target)
    distance = wide - wanted
    return _reduce(distance * distance, reduction, dtype)


@recorded
def huber_loss(input: Any, target: Any, *, reduction: str = "mean", delta: float = 1.0) -> Tensor:
    """Half the squared distance up to `delta`, linear beyond.

    Example:
        >>> import tiga as tg
        >>> tg.huber_loss(tg.tensor([0.0, 3.0]), tg.zeros(2), reduction="none").tolist()
        [0.0, 2.5]
    """
    if not isinstance(delta, (int, float)):
        raise InvalidType(f"delta= expected a number, got {delta!r} ({here()}).")
    wide, wanted, dtype = _wide_pair(input, target)
    distance = wide - wanted
    size = s.abs(distance)
    near = distance * distance * 0.5
    return _reduce(s.where(size <= delta, near, (size - 0.5 * delta) * delta), reduction, dtype)


@recorded
def binary_cross_entropy_with_logits(input: Any, target: Any, *, reduction: str = "mean") -> Tensor:
    """-target * log(sigmoid(input)) - (1 - target) * log(1 - sigmoid(input)) without overflow.

    Example:
        >>> import tiga as tg
        >>> tg.binary_cross_entropy_with_logits(tg.tensor([1000.0]), tg.tensor([1.0])).item()
        0.0
    """
    wide, wanted, dtype = _wide_pair(input, target)
    return _reduce(e.softplus(wide) - wide * wanted, reduction, dtype)


def nll_loss(input: Any, target: Any, *, reduction: str = "mean") -> Tensor:
    """Minus the log-probability of the target class; classes are the last axis of `input`, and
    count from 0.

    Example:
        >>> import tiga as tg
        >>> tg.nll_loss(tg.tensor([[-1.0, -2.0]]), tg.tensor([1])).item()
        2.0
    """
    wide, dtype = _wide(input)
    index = as_tensor(target)
    if index.dtype.kind not in "iu" or index.shape != wide.shape[:-1]:
        raise InvalidType(
            f"nll_loss expected integer targets of shape {wide.shape[:-1]}, got {index.dtype} of "
            f"shape {index.shape} ({here()})."
        )
    index = _classes(index, wide.shape[-1])
    chosen = squeeze(take_along_axis(wide, expand_dims(index, -1), axis=-1), axis=-1)
    return _reduce(-chosen, reduction, dtype)


def _classes(index: Tensor, count: int) -> Tensor:
    """Classes as positions: those below 0, which would count from the end, do not exist."""
    known = index._array
    if isinstance(known, np.ndarray) and 0 < known.size <= LOOKED_AT:
        if known.min() < 0:
            raise InvalidIndex(
                f"nll_loss expected classes from 0 to {count - 1}, got {known.min()} ({here()}); "
                "leave out what has no class: reduction='none' and tg.where."
            )
        return index
    wide = s.astype(index, int64, copy=False)
    return s.where(wide < 0, wide - count, wide)


def cross_entropy(input: Any, target: Any, *, reduction: str = "mean") -> Tensor:
    """`nll_loss` of the log-softmax of logits; classes are the last axis of `input`.

    Example:
        >>> import tiga as tg
        >>> tg.cross_entropy(tg.tensor([[1000.0, 0.0]]), tg.tensor([0])).item()
        0.0
    """
    wide, dtype = _wide(input)
    loss = nll_loss(r.log_softmax(wide, axis=-1), target, reduction=reduction)
    return s.astype(loss, dtype, copy=False)


def norm(
    x: Any, /, *, ord: float = 2, axis: Any = None, keepdims: bool = False,
    dim: Any = None, keepdim: bool = False,
) -> Tensor:  # fmt: skip
    """The vector norm over axes; its derivative where it is 0 is 0.

    Example:
        >>> import tiga as tg
        >>> tg.norm(tg.tensor([3.0, 4.0])).item()
        5.0
    """
    if not isinstance(ord, (int, float)):
        raise InvalidType(f"ord= expected a number, got {ord!r} ({here()}).")
    wide, dtype = _wide(x)
    size, kept = s.abs(wide), {"axis": axis, "dim": dim, "keepdims": keepdims, "keepdim": keepdim}
    if ord == float("inf"):
        return s.astype(r.max(size, **kept), s.abs(as_tensor(x)).dtype, copy=False)
    if ord == float("-inf"):
        return s.astype(r.min(size, **kept), s.abs(as_tensor(x)).dtype, copy=False)
    if ord == 0:
        return s.astype(r.count_nonzero(wide, **kept), size.dtype)
    total = r.sum(size if ord == 1 else size * size if ord == 2 else size**ord, **kept)
    if ord == 1:
        return _norm_dtype(total, dtype)
    none = total == 0
    safe = s.where(none, 1.0, total)
    root = e.sqrt(safe) if ord == 2 else safe ** (1.0 / ord)
    return _norm_dtype(s.where(none, 0.0, root), dtype)


def _norm_dtype(value: Tensor, dtype: Any) -> Tensor:
    return value if dtype.is_complex else s.astype(value, dtype, copy=False)
