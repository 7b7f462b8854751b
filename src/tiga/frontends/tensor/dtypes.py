"""Type promotion: the array API's rules, and torch's where the standard leaves a mix undefined."""

from functools import lru_cache
from typing import Any

import numpy as np

from tiga.errors import InvalidType, InvalidValue
from tiga.frontends.tensor.lazy import here
from tiga.ops.tensor_complex import complex_of
from tiga.types import (
    COMPLEX,
    DTYPES,
    DType,
    bool_,
    complex64,
    complex128,
    float32,
    float64,
    int16,
    int64,
)

DEFAULT_FLOAT = float32
DEFAULT_COMPLEX = complex64
DEFAULT_INT = int64
ALL = {**DTYPES, **{d.name: d for d in COMPLEX}}
RANK = {"b": 0, "u": 1, "i": 1, "f": 2, "c": 3}
"""Kinds of dtypes by what they hold: values of a higher one do not fit a lower one."""


def _integers(a: DType, b: DType) -> DType:
    if a.kind == b.kind:
        return a if a.itemsize >= b.itemsize else b
    signed = a if a.kind == "i" else b
    return int16 if signed.itemsize == 1 else signed


def _floats(a: DType, b: DType) -> DType:
    if a.itemsize == b.itemsize:
        return float32
    return a if a.itemsize > b.itemsize else b


def _with_complex(a: DType, b: DType) -> DType:
    wide = a.name == "complex128" or b.name == "complex128" or float64 in (a, b)
    return complex128 if wide else complex64


@lru_cache(maxsize=512)
def promote(a: DType, b: DType) -> DType:
    """The type of a result of operands of types `a` and `b`.

    Example:
        >>> from tiga.types import float32, int8, uint8
        >>> promote(int8, uint8), promote(int8, float32)
        (int16, float32)
    """
    if a == b:
        return a
    low, high = sorted((a, b), key=lambda d: RANK[d.kind])
    if RANK[low.kind] == RANK[high.kind] == 1:
        return _integers(low, high)
    if high.kind == "c":
        return _with_complex(low, high) if low.kind in "fc" else high
    return _floats(low, high) if low.kind == "f" else high


_NUMBERS = (bool, int, float, complex)


def kind_of(number: bool | int | float | complex) -> type:
    """Which of Python's types of numbers a number is of: numpy's float64 is a float."""
    kind = type(number)
    return kind if kind in _NUMBERS else next(k for k in _NUMBERS if isinstance(number, k))


def scalar_dtype(value: bool | int | float | complex) -> DType:
    """The type that a Python number has by itself."""
    if isinstance(value, bool):
        return bool_
    if isinstance(value, int):
        return DEFAULT_INT
    return DEFAULT_COMPLEX if isinstance(value, complex) else DEFAULT_FLOAT


@lru_cache(maxsize=512)
def promote_scalar(dtype: DType, kind: type) -> DType:
    """The type of a result of a tensor of `dtype` and a Python number of type `kind`."""
    if kind is bool or dtype.kind == "c":
        return dtype
    if kind is complex:
        return complex_of(dtype) if dtype.kind == "f" else DEFAULT_COMPLEX
    if kind is float:
        return dtype if dtype.kind == "f" else DEFAULT_FLOAT
    return DEFAULT_INT if dtype.kind == "b" else dtype


def result_dtype(*values: Any) -> DType:
    """The type of a result of tensors' types and Python numbers."""
    strong = [v for v in values if isinstance(v, DType)]
    weak = [v for v in values if not isinstance(v, DType)]
    if not strong:
        strong, weak = [scalar_dtype(weak[0])], weak[1:]
    found = strong[0]
    for dtype in strong[1:]:
        found = promote(found, dtype)
    for number in weak:
        found = promote_scalar(found, kind_of(number))
    return found


def array_of(number: Any) -> np.ndarray:
    """A Python number as an array of its default type.

    Raises:
        InvalidValue: no type holds it.
    """
    dtype = scalar_dtype(number)
    try:
        return np.asarray(number, dtype.numpy)
    except OverflowError:
        raise InvalidValue(f"{number} does not fit in {dtype} ({here()}).") from None


def as_float(dtype: DType) -> DType:
    """`dtype` where it is a float or complex type, else the default float type."""
    return dtype if dtype.kind in "fc" else DEFAULT_FLOAT


def check_dtype(dtype: Any) -> DType:
    """`dtype` as an element type; names, and numpy's dtypes and scalar types, are understood.

    Raises:
        InvalidType: it is none.
    """
    if isinstance(dtype, DType):
        return dtype
    if isinstance(dtype, type) and issubclass(dtype, np.generic):
        dtype = np.dtype(dtype)
    name = dtype if isinstance(dtype, str) else getattr(dtype, "name", None)
    if any(dtype is kind for kind in (bool, int, float, complex)):
        return scalar_dtype(dtype())
    if name not in ALL:
        raise InvalidType(
            f"dtype= expected a Tiga dtype such as tg.float32, got {dtype!r} ({here()}); "
            f"there are {', '.join(ALL)}."
        )
    return ALL[name]
