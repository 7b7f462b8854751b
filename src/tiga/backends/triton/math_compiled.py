"""The functions that kernels call, for the GPU: libdevice, and short Triton functions."""

import triton
import triton.language as tl
from triton.language.extra.cuda import libdevice

from tiga.backends.triton.math_shared import counted as counted
from tiga.backends.triton.math_shared import ordered as ordered

exp, expm1, log, log1p = libdevice.exp, libdevice.expm1, libdevice.log, libdevice.log1p
sin, cos, tanh, erf = libdevice.sin, libdevice.cos, libdevice.tanh, libdevice.erf
pow, fmod, copysign = libdevice.pow, libdevice.fmod, libdevice.copysign
trunc, rint = libdevice.trunc, libdevice.rint
tan, asin, acos, atan = libdevice.tan, libdevice.asin, libdevice.acos, libdevice.atan
sinh, cosh, asinh, acosh = libdevice.sinh, libdevice.cosh, libdevice.asinh, libdevice.acosh
atanh, atan2, hypot, erfc = libdevice.atanh, libdevice.atan2, libdevice.hypot, libdevice.erfc
log2, log10, nextafter = libdevice.log2, libdevice.log10, libdevice.nextafter


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
def argmax_wins(a, i, b, j):
    """Whether `a` at position i comes before `b` at j as a maximum: NaN, then size, then place."""
    nan_a, nan_b = a != a, b != b
    larger = (nan_a & (nan_b == 0)) | ((nan_a == 0) & (nan_b == 0) & (a > b))
    same = (nan_a & nan_b) | (a == b)
    return larger | (same & (i < j))


@triton.jit
def argmax_of(a, i, b, j):
    """The first of two maxima with its position."""
    wins = argmax_wins(a, i, b, j)
    return tl.where(wins, a, b), tl.where(wins, i, j)


@triton.jit
def argmin_wins(a, i, b, j):
    """Whether `a` at position i comes before `b` at j as a minimum: NaN, then size, then place."""
    nan_a, nan_b = a != a, b != b
    smaller = (nan_a & (nan_b == 0)) | ((nan_a == 0) & (nan_b == 0) & (a < b))
    same = (nan_a & nan_b) | (a == b)
    return smaller | (same & (i < j))


@triton.jit
def argmin_of(a, i, b, j):
    """The first of two minima with its position."""
    wins = argmin_wins(a, i, b, j)
    return tl.where(wins, a, b), tl.where(wins, i, j)


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
def matmul(a, b):
    """`a @ b` of 16-bit matrices, added in float32."""
    return tl.dot(a, b)


@triton.jit
def matmul_add(a, b, total):
    """`a @ b + total` in float32, products not shortened."""
    return tl.dot(a, b, total, input_precision="ieee")


@triton.jit
def int_floor_div(a, b):
    """The quotient rounded down; 0 for a zero divisor."""
    rest = int_rem(a, b)
    down = (rest != 0) & ((rest < 0) != (b < 0))
    return (int_div(a, b) - down.to(a.dtype)).to(a.dtype)


@triton.jit
def int_remainder(a, b):
    """The remainder with the divisor's sign; 0 for a zero divisor."""
    rest = int_rem(a, b)
    return tl.where((rest != 0) & ((rest < 0) != (b < 0)), rest + b, rest).to(a.dtype)


@triton.jit
def floor_div(a, b):
    """The largest whole number not above a / b, as numpy computes it."""
    rest = fmod(a, b)
    whole = (a - rest) / b
    whole = tl.where((rest != 0.0) & ((rest < 0.0) != (b < 0.0)), whole - 1.0, whole)
    down = tl.floor(whole)
    down = tl.where(whole - down > 0.5, down + 1.0, down)
    exact = a / b
    signed = tl.where(whole == 0.0, copysign(whole * 0.0, exact), down)
    return tl.where(b == 0.0, exact, signed)


@triton.jit
def remainder(a, b):
    """The remainder with the divisor's sign."""
    rest = fmod(a, b)
    moved = tl.where((rest != 0.0) & ((rest < 0.0) != (b < 0.0)), rest + b, rest)
    return tl.where(rest == 0.0, copysign(rest, b), moved)


@triton.jit
def logaddexp(a, b):
    """log(exp(a) + exp(b)) without overflow."""
    high = maximum(a, b)
    sum_ = high + log1p(exp(-tl.abs(a - b)))
    return tl.where(a == b, a + 0.6931471805599453, sum_)


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


@triton.jit
def thirds(a):
    """float32 as the sum of three bfloat16 numbers: the first cut off, so that what is no number
    stays so, the second rounded, so that the third has either sign."""
    bits = a.to(tl.int32, bitcast=True)
    high = (bits & -0x10000).to(tl.float32, bitcast=True)
    rest = a - high
    bits = rest.to(tl.int32, bitcast=True) + 0x8000
    middle = (bits & -0x10000).to(tl.float32, bitcast=True)
    return high.to(tl.bfloat16), middle.to(tl.bfloat16), (rest - middle).to(tl.bfloat16)


@triton.jit
def matmul_thirds(a, b0, b1, b2):
    """A float32 matrix times one given by its thirds, on units for bfloat16, as exact as in
    float32: the products of thirds that float32 would not lose, small ones first. An infinity
    leaves no number in the small ones, and is right in the large one alone."""
    a0, a1, a2 = thirds(a)
    small = tl.dot(a1, b1)
    small = tl.dot(a2, b0, small)
    small = tl.dot(a0, b2, small)
    small = tl.dot(a1, b0, small)
    small = tl.dot(a0, b1, small)
    small = tl.where(small == small, small, 0.0)
    return tl.dot(a0, b0, small)
