"""Inverse trigonometric and hyperbolic functions of complex numbers on their parts.

The formulas are W. Kahan's ("Branch cuts for complex elementary functions", 1987): products of
square roots whose terms have one sign, so nothing cancels. Special values are those of annex G of
the C standard.
"""

import math
from collections.abc import Callable

from tiga.ops import hyperbolic, series
from tiga.ops.arithmetic import Arithmetic, Value
from tiga.ops.complex_functions import hypot, log_length, sqrt
from tiga.ops.complex_parts import Parts

FAR = 1e9
"""The length from which what the first term of the expansion leaves out is below rounding."""


def _number(a: Arithmetic, number: float, like: Value) -> Value:
    return a.constant(number, like)


def _is_zero(a: Arithmetic, x: Value) -> Value:
    return a.compare("eq", x, _number(a, 0.0, x))


def _is_nan(a: Arithmetic, x: Value) -> Value:
    return a.compare("ne", x, x)


def _is_far(a: Arithmetic, z: Parts) -> Value:
    return a.logical_or(
        *(a.compare("ge", a.abs(part), _number(a, FAR, part)) for part in z)
    )  # fmt: skip


def _roots(a: Arithmetic, z: Parts) -> tuple[Parts, Parts]:
    """sqrt(1 + z) and sqrt(1 - z)."""
    x, y = z
    one = _number(a, 1.0, x)
    return sqrt(a, (a.add(one, x), y)), sqrt(a, (a.sub(one, x), a.neg(y)))


def _far_length(a: Arithmetic, z: Parts) -> Value:
    """log |2 z|."""
    return a.add(log_length(a, *z), _number(a, math.log(2), z[0]))


def asin(a: Arithmetic, z: Parts) -> Parts:
    """x / Re(sqrt(1 - z) sqrt(1 + z)) as a tangent, and Im(conj(sqrt(1 - z)) sqrt(1 + z)) as a
    hyperbolic sine."""
    x, y = z
    (p, q), (r, s) = _roots(a, z)
    real = series.atan2(a, x, a.sub(a.mul(p, r), a.mul(q, s)))
    imag = hyperbolic.asinh(a, a.sub(a.mul(r, q), a.mul(s, p)))
    far = _is_far(a, z)
    angle = a.copysign(series.atan2(a, a.abs(x), a.abs(y)), x)
    angle = a.select(_is_nan(a, x), x, angle)
    real = a.select(far, angle, real)
    imag = a.select(far, a.copysign(_far_length(a, z), y), imag)
    return a.select(_is_zero(a, x), x, real), imag


def acos(a: Arithmetic, z: Parts) -> Parts:
    """Twice the angle of sqrt(1 + z) and sqrt(1 - z), and Im(conj(sqrt(1 + z)) sqrt(1 - z)) as a
    hyperbolic sine."""
    x, y = z
    (p, q), (r, s) = _roots(a, z)
    real = a.mul(series.atan2(a, r, p), _number(a, 2.0, x))
    imag = hyperbolic.asinh(a, a.sub(a.mul(p, s), a.mul(q, r)))
    far = _is_far(a, z)
    real = a.select(far, series.atan2(a, a.abs(y), x), real)
    imag = a.select(far, a.copysign(_far_length(a, z), a.neg(y)), imag)
    aside = a.logical_and(_is_zero(a, x), _is_nan(a, y))
    return a.select(aside, _number(a, math.pi / 2, x), real), imag


def atanh(a: Arithmetic, z: Parts) -> Parts:
    """log1p(4 x / ((1 - x)² + y²)) / 4, and half the angle of (1 - x)(1 + x) - y² and 2 y."""
    x, y = z
    one, size = _number(a, 1.0, x), a.abs(x)
    beside = a.sub(one, size)
    square = a.mul(y, y)
    ratio = a.div(a.mul(size, _number(a, 4.0, x)), a.add(a.mul(beside, beside), square))
    real = a.mul(a.log1p(ratio), _number(a, 0.25, x))
    below = a.sub(a.mul(beside, a.add(one, size)), square)
    imag = a.mul(series.atan2(a, a.mul(y, _number(a, 2.0, x)), below), _number(a, 0.5, x))
    far, length = _is_far(a, z), hypot(a, x, y)
    ends = a.compare("eq", length, _number(a, math.inf, x))
    inverse = a.select(ends, _number(a, 0.0, x), a.div(a.div(size, length), length))
    turn = a.select(_is_nan(a, y), y, _number(a, math.pi / 2, x))
    real = a.copysign(a.select(far, inverse, real), x)
    imag = a.select(far, a.copysign(turn, y), imag)
    return a.select(_is_zero(a, x), x, real), imag


def asinh(a: Arithmetic, z: Parts) -> Parts:
    """i asin(-i z)."""
    real, imag = asin(a, (z[1], a.neg(z[0])))
    return a.neg(imag), real


def acosh(a: Arithmetic, z: Parts) -> Parts:
    """i acos z or -i acos z: the one with a real part above 0."""
    real, imag = acos(a, z)
    return a.abs(imag), a.copysign(real, z[1])


def atan(a: Arithmetic, z: Parts) -> Parts:
    """-i atanh(i z)."""
    real, imag = atanh(a, (a.neg(z[1]), z[0]))
    return imag, a.neg(real)


INVERSES: dict[str, Callable[..., Parts]] = {
    "acos": acos, "acosh": acosh, "asin": asin, "asinh": asinh, "atan": atan, "atanh": atanh,
}  # fmt: skip
"""What an op does to parts, by its name; the backend's arithmetic comes first."""
