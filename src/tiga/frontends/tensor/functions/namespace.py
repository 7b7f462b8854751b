"""The array API's inspection: constants, dtypes, promotion, what the namespace offers."""

import math
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from tiga.errors import InvalidType
from tiga.frontends.tensor.core import Tensor
from tiga.frontends.tensor.devices import CPU, Device
from tiga.frontends.tensor.dtypes import (
    ALL,
    DEFAULT_COMPLEX,
    DEFAULT_FLOAT,
    DEFAULT_INT,
    check_dtype,
    promote,
    result_dtype,
)
from tiga.frontends.tensor.lazy import here
from tiga.ops.tensor_complex import real_of
from tiga.types import DType

e, pi, inf, nan, newaxis = math.e, math.pi, math.inf, math.nan, None

_KINDS = {
    "bool": "b", "signed integer": "i", "unsigned integer": "u", "integral": "iu",
    "real floating": "f", "complex floating": "c", "numeric": "iufc",
}  # fmt: skip


@dataclass(frozen=True)
class FloatInfo:
    """The limits of a float type, or of a complex type's parts."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: DType


@dataclass(frozen=True)
class IntegerInfo:
    """The limits of an integer type."""

    bits: int
    max: int
    min: int
    dtype: DType


def _dtype_of(value: Any) -> DType:
    return value.dtype if isinstance(value, Tensor) else check_dtype(value)


def finfo(type: Any, /) -> FloatInfo:
    """The limits of a float or complex dtype.

    Example:
        >>> import tiga as tg
        >>> tg.finfo(tg.float32).bits
        32
    """
    dtype = real_of(_dtype_of(type))
    if dtype.kind != "f":
        raise InvalidType(f"finfo expected a float dtype, got {dtype} ({here()}).")
    info = ml_dtypes.finfo(dtype.numpy)
    eps, largest, least, normal = map(float, (info.eps, info.max, info.min, info.smallest_normal))
    return FloatInfo(info.bits, eps, largest, least, normal, dtype)


def iinfo(type: Any, /) -> IntegerInfo:
    """The limits of an integer dtype.

    Example:
        >>> import tiga as tg
        >>> tg.iinfo(tg.int8).max
        127
    """
    dtype = _dtype_of(type)
    if dtype.kind not in "iu":
        raise InvalidType(f"iinfo expected an integer dtype, got {dtype} ({here()}).")
    info = np.iinfo(dtype.numpy)
    return IntegerInfo(info.bits, int(info.max), int(info.min), dtype)


def isdtype(dtype: Any, kind: Any) -> bool:
    """Whether a dtype is another dtype, or of a kind such as "real floating".

    Example:
        >>> import tiga as tg
        >>> tg.isdtype(tg.int8, "integral")
        True
    """
    if isinstance(kind, tuple):
        return any(isdtype(dtype, part) for part in kind)
    if isinstance(kind, str):
        if kind not in _KINDS:
            raise InvalidType(f"kind expected one of {', '.join(_KINDS)}, got {kind!r} ({here()}).")
        return check_dtype(dtype).kind in _KINDS[kind]
    return bool(check_dtype(dtype) == check_dtype(kind))


def result_type(*arrays_and_dtypes: Any) -> DType:
    """The type of a result of these tensors, dtypes and numbers.

    Example:
        >>> import tiga as tg
        >>> tg.result_type(tg.int8, tg.uint8)
        int16
    """
    values = [
        v if isinstance(v, (bool, int, float, complex)) else _dtype_of(v) for v in arrays_and_dtypes
    ]
    return result_dtype(*values)


def can_cast(from_: Any, to: Any, /) -> bool:
    """Whether promotion alone turns one dtype into the other.

    Example:
        >>> import tiga as tg
        >>> tg.can_cast(tg.int8, tg.int16)
        True
    """
    source, target = _dtype_of(from_), check_dtype(to)
    return promote(source, target) == target


class NamespaceInfo:
    """What the array API namespace offers."""

    def capabilities(self) -> dict[str, Any]:
        """Optional features of the standard."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}

    def default_device(self) -> Device:
        """Where new tensors are."""
        return CPU

    def devices(self) -> list[Device]:
        """Where tensors can be."""
        from tiga.runtime.driver import device_count

        return [CPU, *(Device("cuda", index) for index in range(device_count()))]

    def default_dtypes(self, *, device: Any = None) -> dict[str, DType]:
        """The dtypes of new tensors."""
        return {
            "real floating": DEFAULT_FLOAT, "complex floating": DEFAULT_COMPLEX,
            "integral": DEFAULT_INT, "indexing": DEFAULT_INT,
        }  # fmt: skip

    def dtypes(self, *, device: Any = None, kind: Any = None) -> dict[str, DType]:
        """The dtypes by name."""
        return {name: d for name, d in ALL.items() if kind is None or isdtype(d, kind)}


def __array_namespace_info__() -> NamespaceInfo:  # noqa: N807
    """What the array API namespace offers.

    Example:
        >>> import tiga as tg
        >>> tg.__array_namespace_info__().default_device()
        Device('cpu')
    """
    return NamespaceInfo()
