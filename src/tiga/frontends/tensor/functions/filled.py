"""New tensors of one number, or whose elements are not set."""

from functools import partial
from typing import Any

import numpy as np

from tiga.frontends.tensor.arrays import filled_on
from tiga.frontends.tensor.build import takes_tensor
from tiga.frontends.tensor.core import Tensor
from tiga.frontends.tensor.devices import CPU, check_device
from tiga.frontends.tensor.dtypes import DEFAULT_FLOAT, check_dtype, result_dtype
from tiga.frontends.tensor.functions.creation import (
    Extent,
    checked_shape,
    finish,
    new_leaf,
    room_for,
)
from tiga.frontends.tensor.lazy import MADE_UP
from tiga.frontends.tensor.scalars import number, number_of
from tiga.types import GLOBAL, DType, Type


def _filled(
    shape: Extent, value: Any, dtype: DType, make: Any, device: Any, requires_grad: bool
) -> Tensor:
    """A leaf of one number (None: not set), made where it is to be; on the CPU by `make`."""
    target = check_device(device)
    if target == CPU:
        return finish(make(room_for(shape, dtype), dtype=dtype.numpy), requires_grad, CPU)
    array = filled_on(Type(dtype, checked_shape(shape), GLOBAL), value, target)
    return new_leaf(array, requires_grad)


def empty(
    shape: Extent, *, dtype: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """A tensor whose elements are not set.

    Example:
        >>> import tiga as tg
        >>> tg.empty((2, 3)).shape
        (2, 3)
    """
    kind = DEFAULT_FLOAT if dtype is None else check_dtype(dtype)
    return _filled(shape, None, kind, np.empty, device, requires_grad)


def zeros(
    shape: Extent, *, dtype: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """A tensor of zeros.

    Example:
        >>> import tiga as tg
        >>> tg.zeros(2).tolist()
        [0.0, 0.0]
    """
    kind = DEFAULT_FLOAT if dtype is None else check_dtype(dtype)
    return _filled(shape, 0, kind, np.zeros, device, requires_grad)


def ones(
    shape: Extent, *, dtype: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """A tensor of ones.

    Example:
        >>> import tiga as tg
        >>> tg.ones(2, dtype=tg.int32).tolist()
        [1, 1]
    """
    kind = DEFAULT_FLOAT if dtype is None else check_dtype(dtype)
    return _filled(shape, 1, kind, np.ones, device, requires_grad)


def full(
    shape: Extent,
    fill_value: Any,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """A tensor of one number.

    Example:
        >>> import tiga as tg
        >>> tg.full((2,), 7).tolist()
        [7, 7]
    """
    kind = result_dtype(fill_value) if dtype is None else check_dtype(dtype)
    fill_value = number_of(fill_value, kind, "full")
    make = partial(np.full, fill_value=fill_value)
    return _filled(shape, fill_value, kind, make, device, requires_grad)


def _like(x: Tensor, value: Any, dtype: Any, device: Any, requires_grad: bool) -> Tensor:
    kind = x.dtype if dtype is None else check_dtype(dtype)
    if x._array is None and x.shape and x.shape[0] in MADE_UP:
        # Inside `edge` or `node`: the number for every edge or node, however many there are.
        return Tensor(number(value, Type(kind, x.shape, GLOBAL)), False)
    place = x.device if device is None else device
    return full(x.shape, value, dtype=kind, device=place, requires_grad=requires_grad)


@takes_tensor
def empty_like(
    x: Tensor, /, *, dtype: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """A tensor of `x`'s shape and dtype whose elements are not set.

    Example:
        >>> import tiga as tg
        >>> tg.empty_like(tg.tensor([[1, 2]])).shape
        (1, 2)
    """
    kind = x.dtype if dtype is None else dtype
    place = x.device if device is None else device
    return empty(x.shape, dtype=kind, device=place, requires_grad=requires_grad)


@takes_tensor
def zeros_like(
    x: Tensor, /, *, dtype: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """A tensor of zeros of `x`'s shape and dtype.

    Example:
        >>> import tiga as tg
        >>> tg.zeros_like(tg.tensor([1, 2])).tolist()
        [0, 0]
    """
    return _like(x, 0, dtype, device, requires_grad)


@takes_tensor
def ones_like(
    x: Tensor, /, *, dtype: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """A tensor of ones of `x`'s shape and dtype.

    Example:
        >>> import tiga as tg
        >>> tg.ones_like(tg.tensor([3, 2])).tolist()
        [1, 1]
    """
    return _like(x, 1, dtype, device, requires_grad)


@takes_tensor
def full_like(
    x: Tensor, /, fill_value: Any, *, dtype: Any = None, device: Any = None,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """A tensor of one number, of `x`'s shape and dtype.

    Example:
        >>> import tiga as tg
        >>> tg.full_like(tg.tensor([1, 2]), 7).tolist()
        [7, 7]
    """
    return _like(x, fill_value, dtype, device, requires_grad)
