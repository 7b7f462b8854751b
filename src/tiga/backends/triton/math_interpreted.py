"""The functions that kernels call, under Triton's interpreter: numpy on the tensors' data.

The interpreter knows no libdevice; all else is the code of `math_compiled`.
"""

import math
from collections.abc import Callable

import ml_dtypes
import numpy as np
import triton.language as tl
from triton.runtime.interpreter import TensorHandle

from tiga.backends.triton.math_compiled import (
    argmax_of,
    argmax_wins,
    argmin_of,
    argmin_wins,
    float_to_int32,
    float_to_int64,
    int_div,
    int_floor_div,
    int_maximum,
    int_minimum,
    int_rem,
    int_remainder,
    maximum,
    minimum,
    multiply,
    thirds,
)

__all__ = [
    "acos", "acosh", "argmax_of", "argmax_wins", "argmin_of", "argmin_wins", "asin", "asinh",
    "atan", "atan2", "atanh", "copysign", "cos", "cosh", "counted", "erf", "erfc", "exp", "expm1",
    "float_to_int32", "float_to_int64", "floor_div", "fmod", "hypot", "int_div", "int_floor_div",
    "int_maximum", "int_minimum", "int_rem", "int_remainder", "log", "log1p", "log2", "log10",
    "logaddexp", "matmul", "matmul_add", "matmul_thirds", "maximum", "minimum", "multiply",
    "nextafter", "ordered", "pow", "remainder", "rint", "sin", "sinh", "tan", "tanh", "thirds",
    "to_bfloat16", "trunc",
]  # fmt: skip


def _on_data(function: Callable[..., np.ndarray]) -> Callable[..., tl.tensor]:
    def apply(*tensors: tl.tensor) -> tl.tensor:
        arrays = np.broadcast_arrays(*(t.handle.data for t in tensors))
        with np.errstate(all="ignore"):
            result = np.asarray(function(*arrays), arrays[0].dtype)
        widest = max(tensors, key=lambda t: t.handle.data.size)
        return tl.tensor(TensorHandle(result, tensors[0].dtype.scalar), widest.type)

    return apply


exp, expm1, log, log1p = map(_on_data, (np.exp, np.expm1, np.log, np.log1p))
sin, cos, tanh = map(_on_data, (np.sin, np.cos, np.tanh))
tan, asin, acos, atan = map(_on_data, (np.tan, np.arcsin, np.arccos, np.arctan))
sinh, cosh, asinh, acosh = map(_on_data, (np.sinh, np.cosh, np.arcsinh, np.arccosh))
atanh, atan2, hypot = map(_on_data, (np.arctanh, np.arctan2, np.hypot))
log2, log10, nextafter = map(_on_data, (np.log2, np.log10, np.nextafter))
logaddexp, floor_div = map(_on_data, (np.logaddexp, np.floor_divide))
remainder = _on_data(np.remainder)
erf = _on_data(np.vectorize(math.erf, otypes=[np.float64]))
erfc = _on_data(np.vectorize(math.erfc, otypes=[np.float64]))
pow, fmod, copysign = map(_on_data, (np.power, np.fmod, np.copysign))
trunc, rint = map(_on_data, (np.trunc, np.rint))


def _nearest_bfloat16(a: np.ndarray) -> np.ndarray:
    return a.astype(ml_dtypes.bfloat16).astype(np.float32)


def matmul(a: tl.tensor, b: tl.tensor) -> tl.tensor:
    """`a @ b` in float32; the interpreter takes bfloat16 for whole numbers here."""
    return tl.dot(a.to(tl.float32), b.to(tl.float32), input_precision="ieee")


def matmul_add(a: tl.tensor, b: tl.tensor, total: tl.tensor) -> tl.tensor:
    """`a @ b + total` in float32."""
    return tl.dot(a.to(tl.float32), b.to(tl.float32), total, input_precision="ieee")


_round_bfloat16 = _on_data(_nearest_bfloat16)


def to_bfloat16(a: tl.tensor) -> tl.tensor:
    """float32 rounded to nearest even; the interpreter by itself rounds towards zero."""
    return _round_bfloat16(a).to(tl.bfloat16)


def matmul_thirds(a: tl.tensor, b0: tl.tensor, b1: tl.tensor, b2: tl.tensor) -> tl.tensor:
    """A float32 matrix times one given by its thirds; every row in the same order of sums, which
    numpy's product does not promise."""
    b = b0.to(tl.float32) + b1.to(tl.float32) + b2.to(tl.float32)
    with np.errstate(all="ignore"):
        result = (a.handle.data[:, :, None] * b.handle.data[None]).sum(1)
    handle = TensorHandle(result, tl.float32)
    return tl.tensor(handle, tl.block_type(tl.float32, list(result.shape)))


def counted(digit: tl.tensor, i: tl.tensor, bits: int, warps: int) -> tl.tensor:
    """How many elements have digit 0, 1, 2, ..., then zeros; the number after the largest digit is
    not counted."""
    counts = np.bincount(digit.handle.data, minlength=digit.handle.data.size)
    counts[1 << bits :] = 0
    return tl.tensor(TensorHandle(counts.astype(np.int32), tl.int32), digit.type)


def ordered(value: tl.tensor, digit: tl.tensor, i: tl.tensor, bits: int, warps: int) -> tl.tensor:
    """Values in the order of their digits, equal digits in their order; `i` says where each is."""
    values, digits, places = (x.handle.data for x in (value, digit, i))
    back = np.argsort(places)
    order = back[np.argsort(digits[back], kind="stable")]
    return tl.tensor(TensorHandle(values[order][places], tl.int64), value.type)
