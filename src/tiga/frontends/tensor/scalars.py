"""Python's numbers among tensors: the nodes that they are, and what no dtype holds."""

import math
from functools import lru_cache
from typing import Any

import numpy as np

from tiga.errors import InvalidType, InvalidValue
from tiga.frontends.tensor.core import Tensor
from tiga.frontends.tensor.lazy import LazyNode, filled, here
from tiga.ops.leaf import constant
from tiga.types import GLOBAL, DType, Type

SCALARS = (bool, int, float, complex)

WEAK = {float: "f", int: "i"}
"""Kinds of dtypes that a Python number joins as it is."""


@lru_cache(maxsize=4096)
def _constant(value: Any, type: Type, negative_zero: bool, kind: type) -> LazyNode:
    try:
        wide = float(value) if kind is int and type.dtype.kind == "f" else value
        plain = constant(wide, type)
    except (OverflowError, ValueError, TypeError):
        raise InvalidValue(f"{value!r} is no value of {type.dtype} ({here()}).") from None
    node = LazyNode(plain.op, (), type, None)
    node.cell = filled(plain.op.value, type)
    return node


def number(value: Any, type: Type) -> LazyNode:
    """The node of a Python number in every element of `type`."""
    negative = value == 0 and type.dtype.kind in "fc" and math.copysign(1, _real(value)) < 0
    if type.dtype.kind in "iu":
        _check_range(value, type.dtype)
    return _constant(value, type, negative, value.__class__)


def _real(value: Any) -> float:
    return value.real if isinstance(value, complex) else value


def _check_range(value: Any, dtype: DType) -> None:
    if not isinstance(value, (int, float)):
        raise InvalidType(f"{value!r} is no value of {dtype} ({here()}).")
    low, high = _limits(dtype)
    if not low <= value <= high:
        raise InvalidValue(
            f"{value!r} does not fit in {dtype} ({here()}): it holds {low} to {high}."
        )


@lru_cache(maxsize=32)
def _limits(dtype: DType) -> tuple[int, int]:
    limits = np.iinfo(dtype.numpy)
    return int(limits.min), int(limits.max)


def number_of(value: Any, dtype: DType, what: str) -> Any:
    """A number that every element of a tensor is to be, as a Python number.

    Raises:
        InvalidType: it is none.
        InvalidValue: the dtype does not hold it.
    """
    if isinstance(value, (Tensor, np.generic, np.ndarray)) and not value.shape:
        value = value.item()
    if not isinstance(value, SCALARS):
        raise InvalidType(f"{what} expected a number, got {value!r} ({here()}).")
    number(value, Type(dtype, (), GLOBAL))
    return value
