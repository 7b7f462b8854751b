"""The functions that kernels call, for the GPU: libdevice, and short Triton functions."""

import triton
import triton.language as tl
from triton.language.extra.cuda import libdevice

exp, expm1, log, log1p = libdevice.exp, libdevice.expm1, libdevice.log, libdevice.log1p
sin, cos, tanh, erf = libdevice.sin, libdevice.cos, libdevice.tanh, libdevice.erf
pow, fmod, copysign = libdevice.pow, libdevice.fmod, libdevice.copysign
trunc, rint = libdevice.trunc, libdevice.rint


@triton.jit
def maximum(a, b):
    """The larger, NaN if either is."""
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def minimum(a, b):
    """The smaller, NaN if either is."""
    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def int_maximum(a, b):
    """The larger of two integers, as a function to reduce with."""
    return tl.maximum(a, b)


@triton.jit
def int_minimum(a, b):
    """The smaller of two integers, as a function to reduce with."""
    return tl.minimum(a, b)


@triton.jit
def multiply(a, b):
    """The product, as a function to reduce with."""
    return a * b


@triton.jit
def int_div(a, b):
    """The quotient truncated towards zero; 0 for a zero divisor, wrapping for -1."""
    safe = tl.where((b == 0) | (b == -1), 1, b)
    quotient = tl.where(b == -1, -a, a // safe)
    return tl.where(b == 0, 0, quotient).to(a.dtype)


@triton.jit
def int_rem(a, b):
    """The remainder with the dividend's sign; 0 for a zero divisor."""
    safe = tl.where((b == 0) | (b == -1), 1, b)
    return (a % safe).to(a.dtype)


@triton.jit
def float_to_int32(a):
    """Truncated; NaN gives 0, values past the range its ends."""
    inside = (a >= -2147483648.0) & (a < 2147483648.0)
    whole = tl.where(inside, a, 0.0).to(tl.int32)
    whole = tl.where(a >= 2147483648.0, 2147483647, whole)
    return tl.where(a < -2147483648.0, -2147483648, whole).to(tl.int32)


@triton.jit
def float_to_int64(a):
    """Truncated; NaN gives 0, values past the range its ends."""
    inside = (a >= -9223372036854775808.0) & (a < 9223372036854775808.0)
    whole = tl.where(inside, a, 0.0).to(tl.int64)
    whole = tl.where(a >= 9223372036854775808.0, 9223372036854775807, whole)
    return tl.where(a < -9223372036854775808.0, -9223372036854775808, whole).to(tl.int64)


@triton.jit
def to_bfloat16(a):
    """float32 rounded to nearest even."""
    return a.to(tl.bfloat16)
