"""Functions composed of others: comparison within a tolerance, activations, picking."""

import math
from typing import Any

import ml_dtypes
import numpy as np

from tiga.errors import InvalidType, InvalidValue
from tiga.frontends.tensor.arguments import integer, serves_torch
from tiga.frontends.tensor.build import as_tensor, same, takes_tensor
from tiga.frontends.tensor.core import Tensor
from tiga.frontends.tensor.functions import elementwise as e
from tiga.frontends.tensor.functions import reductions as r
from tiga.frontends.tensor.functions import selection as s
from tiga.frontends.tensor.functions import views
from tiga.frontends.tensor.functions.creation import from_numpy
from tiga.frontends.tensor.functions.filled import zeros
from tiga.frontends.tensor.functions.grids import arange
from tiga.frontends.tensor.functions.indexing import take
from tiga.frontends.tensor.functions.losses import last_axes
from tiga.frontends.tensor.lazy import here
from tiga.frontends.tensor.storage import helper
from tiga.types import bool_, int64


@serves_torch
def positive(x: Any, /) -> Tensor:
    """+x.

    Example:
        >>> import tiga as tg
        >>> tg.positive(tg.tensor([1, -2])).tolist()
        [1, -2]
    """
    tensor = as_tensor(x)
    if tensor.dtype == bool_:
        raise InvalidType(f"positive expected numbers, got bool ({here()}).")
    return same(tensor)


@serves_torch
def exp2(x: Any, /) -> Tensor:
    """2 to the power x.

    Example:
        >>> import tiga as tg
        >>> tg.exp2(tg.tensor([0.0, 3.0])).tolist()
        [1.0, 8.0]
    """
    tensor = as_tensor(x)
    return s.pow(2.0, tensor) if tensor.dtype.kind in "fc" else s.pow(2.0, tensor * 1.0)


@serves_torch
def isclose(
    x1: Any, x2: Any, /, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Tensor:
    """Whether |x1 - x2| <= atol + rtol * |x2|; infinities are close to themselves only, NaN to NaN
    with `equal_nan`.

    Example:
        >>> import tiga as tg
        >>> tg.isclose(tg.tensor([1.0, 1.0]), tg.tensor([1.000001, 1.1])).tolist()
        [True, False]
    """
    a, b = as_tensor(x1), as_tensor(x2)
    near = s.abs(a * 1.0 - b) <= e.add(e.multiply(s.abs(b * 1.0), rtol), atol)
    both = s.logical_and(e.isfinite(a * 1.0), e.isfinite(b * 1.0))
    close = s.where(both, near, e.equal(a, b))
    if not equal_nan:
        return close
    return s.logical_or(close, s.logical_and(e.isnan(a * 1.0), e.isnan(b * 1.0)))


@serves_torch
def allclose(
    x1: Any, x2: Any, /, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> bool:
    """Whether all elements are close; see `isclose`.

    Example:
        >>> import tiga as tg
        >>> tg.allclose(tg.tensor([1.0]), tg.tensor([1.000001]))
        True
    """
    return bool(r.all(isclose(x1, x2, rtol, atol, equal_nan)))


def array_equal(x1: Any, x2: Any, /) -> bool:
    """Whether shapes and all elements are equal; NaN is equal to nothing.

    Example:
        >>> import tiga as tg
        >>> tg.array_equal(tg.zeros(2), tg.zeros((2, 1)))
        False
    """
    a, b = as_tensor(x1), as_tensor(x2)
    return a.shape == b.shape and bool(r.all(e.equal(a, b)))


@serves_torch
def isin(x: Any, values: Any, /, *, invert: bool = False) -> Tensor:
    """Per element whether it is equal to one of `values`, or with `invert` to none.

    Example:
        >>> import tiga as tg
        >>> tg.isin(tg.tensor([1, 2, 3]), tg.tensor([3, 1])).tolist()
        [True, False, True]
    """
    a, b = as_tensor(x), as_tensor(values)
    found = r.any(e.equal(views.expand_dims(a, axis=-1), views.ravel(b)), axis=-1)
    return s.logical_not(found) if invert else found


@serves_torch
def nan_to_num(
    x: Any, /, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None
) -> Tensor:
    """x with numbers instead of NaN and infinities: by default 0 and the largest of the dtype.

    Example:
        >>> import tiga as tg
        >>> tg.nan_to_num(tg.tensor([1.0, float("nan")])).tolist()
        [1.0, 0.0]
    """
    tensor = as_tensor(x)
    if tensor.dtype.kind != "f":
        return tensor
    limits = (ml_dtypes.finfo if tensor.dtype.name == "bfloat16" else np.finfo)(tensor.dtype.numpy)
    high = float(limits.max) if posinf is None else posinf
    low = float(limits.min) if neginf is None else neginf
    found = s.where(e.equal(tensor, math.inf), high, tensor)
    found = s.where(e.equal(tensor, -math.inf), low, found)
    return s.where(e.isnan(tensor), nan, found)


@serves_torch
def diagonal(x: Any, /, *, offset: int = 0) -> Tensor:
    """The diagonals of matrices in the last two axes; positive offsets are above the main one.

    Example:
        >>> import tiga as tg
        >>> tg.diagonal(tg.tensor([[1, 2], [3, 4]])).tolist()
        [1, 4]
    """
    tensor = as_tensor(x)
    if tensor.ndim < 2:
        raise InvalidValue(f"diagonal expected two axes or more, got {tensor.shape} ({here()}).")
    rows, columns = tensor.shape[-2:]
    offset = integer(offset, "offset=")
    places = np.diagonal(np.arange(rows * columns).reshape(rows, columns), offset)
    flat = views.reshape(tensor, (*tensor.shape[:-2], rows * columns))
    return take(flat, from_numpy(np.array(places)), axis=-1)


@serves_torch
def dot(x1: Any, x2: Any, /) -> Tensor:
    """The sum of products of two vectors; nothing is conjugated.

    Example:
        >>> import tiga as tg
        >>> tg.dot(tg.tensor([1, 2]), tg.tensor([3, 4])).item()
        11
    """
    a, b = as_tensor(x1), as_tensor(x2)
    if a.ndim != 1 or a.shape != b.shape:
        raise InvalidValue(
            f"dot expected two vectors of one length, got {a.shape} and {b.shape} ({here()})."
        )
    return r.sum(a * b)


def one_hot(index: Any, count: int, /, *, dtype: Any = int64) -> Tensor:
    """Per index a row of `count` zeros with 1 at the index; other indices give zeros.

    Example:
        >>> import tiga as tg
        >>> tg.one_hot(tg.tensor([2, 0]), 3).tolist()
        [[0, 0, 1], [1, 0, 0]]
    """
    tensor = as_tensor(index)
    if tensor.dtype.kind not in "iu":
        raise InvalidType(f"one_hot expected integers, got {tensor.dtype} ({here()}).")
    return s.astype(e.equal(views.expand_dims(tensor, axis=-1), arange(count)), dtype)


@serves_torch
def leaky_relu(x: Any, negative_slope: float = 0.01) -> Tensor:
    """x where it is positive, else x times the slope.

    Example:
        >>> import tiga as tg
        >>> tg.leaky_relu(tg.tensor([-2.0, 2.0]), 0.5).tolist()
        [-1.0, 2.0]
    """
    tensor = as_tensor(x)
    return s.where(tensor > 0, tensor, e.multiply(tensor, negative_slope))


@serves_torch
def elu(x: Any, alpha: float = 1.0) -> Tensor:
    """x where it is positive, else alpha * (exp(x) - 1).

    Example:
        >>> import tiga as tg
        >>> tg.elu(tg.tensor([0.0, 2.0])).tolist()
        [0.0, 2.0]
    """
    tensor = as_tensor(x)
    below = e.expm1(s.where(tensor > 0, 0.0, tensor))  # no overflow where it is not used
    return s.where(tensor > 0, tensor, e.multiply(below, alpha))


@serves_torch
def logsigmoid(x: Any, /) -> Tensor:
    """log(sigmoid(x)) without overflow.

    Example:
        >>> import tiga as tg
        >>> tg.logsigmoid(tg.tensor([-1000.0])).tolist()
        [-1000.0]
    """
    return -e.softplus(-as_tensor(x))


@serves_torch
def lerp(start: Any, end: Any, weight: Any, /) -> Tensor:
    """start + weight * (end - start).

    Example:
        >>> import tiga as tg
        >>> tg.lerp(tg.tensor([0.0]), tg.tensor([8.0]), 0.25).tolist()
        [2.0]
    """
    a = as_tensor(start)
    return a + e.multiply(as_tensor(end) - a, weight)


def rms_norm(x: Any, normalized_shape: Any, weight: Any = None, eps: float | None = None) -> Tensor:
    """x over the root of the mean of its squares over the last axes, times `weight`; `eps` is
    added to the mean (by default the dtype's smallest step from 1).

    Example:
        >>> import tiga as tg
        >>> tg.rms_norm(tg.tensor([[3.0, 3.0]]), 2, eps=0.0).tolist()
        [[1.0, 1.0]]
    """
    tensor = as_tensor(x)
    if tensor.dtype.kind != "f":
        raise InvalidType(f"rms_norm expected floats, got {tensor.dtype} ({here()}).")
    axes = last_axes(tensor, normalized_shape)
    wide = s.astype(tensor, tensor.dtype.compute, copy=False)
    step = float(np.finfo(wide.dtype.numpy).eps) if eps is None else eps
    scaled = wide * e.rsqrt(r.mean(wide * wide, axis=axes, keepdims=True) + step)
    scaled = scaled if weight is None else scaled * weight
    return s.astype(scaled, tensor.dtype, copy=False)


def _triangle(x: Tensor, k: int, lower: bool) -> Tensor:
    if x.ndim < 2:
        raise InvalidValue(f"tril and triu expected two axes or more, got {x.ndim} ({here()}).")
    k = integer(k, "k=")
    mask = np.tri(x.shape[-2], x.shape[-1], k=k if lower else k - 1, dtype=bool)
    return s.where(helper(mask if lower else ~mask), x, zeros((), dtype=x.dtype))


@takes_tensor
def tril(x: Tensor, /, *, k: int = 0) -> Tensor:
    """The matrix with zeros above diagonal number `k`.

    Example:
        >>> import tiga as tg
        >>> tg.tril(tg.ones((2, 2))).tolist()
        [[1.0, 0.0], [1.0, 1.0]]
    """
    return _triangle(x, k, True)


@takes_tensor
def triu(x: Tensor, /, *, k: int = 0) -> Tensor:
    """The matrix with zeros below diagonal number `k`.

    Example:
        >>> import tiga as tg
        >>> tg.triu(tg.ones((2, 2)), k=1).tolist()
        [[0.0, 1.0], [0.0, 0.0]]
    """
    return _triangle(x, k, False)
