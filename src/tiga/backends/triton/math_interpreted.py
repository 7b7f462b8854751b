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
    float_to_int32,
    float_to_int64,
    int_div,
    int_maximum,
    int_minimum,
    int_rem,
    maximum,
    minimum,
    multiply,
)

__all__ = [
    "copysign", "cos", "erf", "exp", "expm1", "float_to_int32", "float_to_int64", "fmod",
    "int_div", "int_maximum", "int_minimum", "int_rem", "log", "log1p", "maximum", "minimum",
    "multiply", "pow", "rint", "sin", "tanh", "to_bfloat16", "trunc",
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
erf = _on_data(np.vectorize(math.erf, otypes=[np.float64]))
pow, fmod, copysign = map(_on_data, (np.power, np.fmod, np.copysign))
trunc, rint = map(_on_data, (np.trunc, np.rint))


def _nearest_bfloat16(a: np.ndarray) -> np.ndarray:
    return a.astype(ml_dtypes.bfloat16).astype(np.float32)


_round_bfloat16 = _on_data(_nearest_bfloat16)


def to_bfloat16(a: tl.tensor) -> tl.tensor:
    """float32 rounded to nearest even; the interpreter by itself rounds towards zero."""
    return _round_bfloat16(a).to(tl.bfloat16)
