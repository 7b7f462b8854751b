"""Functions of complex numbers on their real and imaginary parts, on any backend.

Special values are those of the C standard (annex G), which the array API takes over. Sine, cosine
and tangent are the hyperbolic functions of i z.
"""

import math
from collections.abc import Callable

from tiga.ops import hyperbolic, series
from tiga.ops.arithmetic import Arithmetic, Value
from tiga.ops.complex_parts import Parts, mul

_DECAYED = 22.0
_LN2 = math.log(2)
_INFINITY = math.inf


def _number(a: Arithmetic, number: float, like: Value) -> Value:
    return a.constant(number, like)


def _is_zero(a: Arithmetic, x: Value) -> Value:
    return a.compare("eq", x, _number(a, 0.0, x))


def _is_infinite(a: Arithmetic, x: Value) -> Value:
    return a.compare("eq", a.abs(x), _number(a, _INFINITY, x))


def _is_finite(a: Arithmetic, x: Value) -> Value:
    return a.compare("lt", a.abs(x), _number(a, _INFINITY, x))


def _signed_zero(a: Arithmetic, x: Value, y: Value) -> Value:
    """0 with the sign of the product."""
    one, zero = _number(a, 1.0, x), _number(a, 0.0, x)
    return a.mul(a.copysign(one, x), a.copysign(zero, y))


def hypot(a: Arithmetic, x: Value, y: Value) -> Value:
    """sqrt(x² + y²) from the ratio of the smaller to the larger; infinite if either is."""
    p, q = a.abs(x), a.abs(y)
    less = a.compare("lt", p, q)
    large, small = a.select(less, q, p), a.select(less, p, q)
    ratio = a.div(small, large)
    length = a.mul(large, a.sqrt(a.add(a.mul(ratio, ratio), _number(a, 1.0, x))))
    length = a.select(_is_zero(a, a.add(p, q)), _number(a, 0.0, x), length)
    infinite = a.logical_or(_is_infinite(a, x), _is_infinite(a, y))
    return a.select(infinite, _number(a, _INFINITY, x), length)


def exp(a: Arithmetic, z: Parts) -> Parts:
    """e^x (cos y + i sin y), with e^x in two factors, each in range where the result is."""
    x, y = z
    half = a.exp(a.mul(x, _number(a, 0.5, x)))
    real, imag = (a.mul(a.mul(half, f(y)), half) for f in (a.cos, a.sin))
    imag = a.select(_is_zero(a, y), y, imag)
    infinity, zero = _number(a, _INFINITY, x), _number(a, 0.0, x)
    unknown = a.logical_not(_is_finite(a, y))
    falls = a.logical_and(unknown, a.compare("eq", x, a.neg(infinity)))
    rises = a.logical_and(unknown, a.compare("eq", x, infinity))
    real = a.select(rises, infinity, a.select(falls, zero, real))
    return real, a.select(falls, zero, imag)


def expm1(a: Arithmetic, z: Parts) -> Parts:
    """e^z - 1: the real part is (e^x - 1) cos y - 2 sin²(y / 2), where that is not infinite."""
    x, y = z
    real, imag = exp(a, z)
    sine = a.sin(a.mul(y, _number(a, 0.5, y)))
    turned = a.mul(a.mul(sine, sine), _number(a, 2.0, x))
    near = a.sub(a.mul(a.expm1(x), a.cos(y)), turned)
    small = a.compare("lt", a.abs(x), _number(a, 1.0, x))
    return a.select(small, near, a.sub(real, _number(a, 1.0, x))), imag


def sqrt(a: Arithmetic, z: Parts) -> Parts:
    """From the larger part of the result; the other is y over twice that."""
    x, y = z
    half = _number(a, 0.5, x)
    large = a.sqrt(a.add(a.mul(hypot(a, x, y), half), a.mul(a.abs(x), half)))
    origin = _is_zero(a, a.add(a.abs(x), a.abs(y)))
    small = a.select(origin, a.abs(y), a.div(a.mul(a.abs(y), half), large))
    left = a.compare("lt", x, _number(a, 0.0, x))
    real, imag = a.select(left, small, large), a.select(left, large, small)
    # Where y is infinite, so are both parts, whatever x is.
    far = _is_infinite(a, y)
    real = a.select(far, _number(a, _INFINITY, x), real)
    return real, a.copysign(a.select(far, a.abs(y), imag), y)


def log_length(a: Arithmetic, x: Value, y: Value) -> Value:
    """log sqrt(x² + y²). Near the unit circle from x² + y² - 1, whose terms cancel exactly with
    what their rounding lost."""
    p, q, one = a.abs(x), a.abs(y), _number(a, 1.0, x)
    less = a.compare("lt", p, q)
    large, small = a.select(less, q, p), a.select(less, p, q)
    squares = a.mul(large, large), a.mul(small, small)
    lost = a.add(a.fma(large, large, a.neg(squares[0])), a.fma(small, small, a.neg(squares[1])))
    excess = a.add(a.add(a.sub(squares[0], one), squares[1]), lost)
    near = a.mul(a.log1p(excess), _number(a, 0.5, x))
    beside = a.logical_and(
        a.compare("gt", large, _number(a, 0.71, x)), a.compare("lt", large, _number(a, 1.41, x))
    )
    # The length of the largest numbers is infinite, but not its logarithm.
    huge = _is_infinite(a, a.mul(large, _number(a, 4.0, x)))
    scale = a.select(huge, _number(a, 0.25, x), one)
    added = a.select(huge, _number(a, 2 * _LN2, x), _number(a, 0.0, x))
    far = a.add(a.log(hypot(a, a.mul(p, scale), a.mul(q, scale))), added)
    return a.select(beside, near, far)


def log(a: Arithmetic, z: Parts) -> Parts:
    """The logarithm of the length, and the angle."""
    return log_length(a, *z), series.atan2(a, z[1], z[0])


def log1p(a: Arithmetic, z: Parts) -> Parts:
    """log(1 + z), accurate near 0."""
    x, y = z
    above = a.add(x, _number(a, 1.0, x))
    excess = a.add(a.mul(x, a.add(x, _number(a, 2.0, x))), a.mul(y, y))
    near = a.mul(a.log1p(excess), _number(a, 0.5, x))
    quarter = _number(a, 0.25, x)
    small = a.compare("lt", a.maximum(a.abs(x), a.abs(y)), quarter)
    real = a.select(small, near, log_length(a, above, y))
    return real, series.atan2(a, y, above)


def _logarithm(base: float) -> Callable[[Arithmetic, Parts], Parts]:
    def rule(a: Arithmetic, z: Parts) -> Parts:
        real, imag = log(a, z)
        scale = _number(a, 1 / math.log(base), real)
        return a.mul(real, scale), a.mul(imag, scale)

    return rule


def _grown(a: Arithmetic, size: Value, factor: Value) -> Value:
    """e^size / 2 times a factor of at most 1, in range where the product is."""
    root = a.exp(a.mul(size, _number(a, 0.5, size)))
    return a.mul(a.mul(a.mul(root, _number(a, 0.5, size)), factor), root)


def _products(a: Arithmetic, z: Parts) -> tuple[Value, Value, Value, Value]:
    """sinh x cos y, cosh x sin y, cosh x cos y and sinh x sin y."""
    x, y = z
    size, cosine, sine = a.abs(x), a.cos(y), a.sin(y)
    far = a.compare("ge", size, _number(a, _DECAYED, x))
    sinh, cosh = hyperbolic.sinh(a, x), hyperbolic.cosh(a, x)
    one = a.copysign(_number(a, 1.0, x), x)
    with_cosine, with_sine = _grown(a, size, cosine), _grown(a, size, sine)
    return (
        a.select(far, a.mul(with_cosine, one), a.mul(sinh, cosine)),
        a.select(far, with_sine, a.mul(cosh, sine)),
        a.select(far, with_cosine, a.mul(cosh, cosine)),
        a.select(far, a.mul(with_sine, one), a.mul(sinh, sine)),
    )


def sinh(a: Arithmetic, z: Parts) -> Parts:
    """sinh x cos y + i cosh x sin y."""
    x, y = z
    real, imag, _, _ = _products(a, z)
    # An infinite x stays so, and 0 stays 0, at whatever angle.
    kept = a.logical_or(_is_infinite(a, x), _is_zero(a, x))
    real = a.select(a.logical_and(kept, a.logical_not(_is_finite(a, y))), x, real)
    return real, a.select(_is_zero(a, y), y, imag)


def cosh(a: Arithmetic, z: Parts) -> Parts:
    """cosh x cos y + i sinh x sin y."""
    x, y = z
    _, _, real, imag = _products(a, z)
    lost = a.logical_and(_is_infinite(a, x), a.logical_not(_is_finite(a, y)))
    real = a.select(lost, a.abs(x), real)
    # 0 times what is no number is 0 here.
    turns = a.logical_not(_is_finite(a, y))
    none = a.logical_or(_is_zero(a, y), a.logical_and(_is_zero(a, x), turns))
    return real, a.select(none, _signed_zero(a, x, y), imag)


def tanh(a: Arithmetic, z: Parts) -> Parts:
    """By tan y and sinh x (W. Kahan, "Branch cuts for complex elementary functions", 1987)."""
    x, y = z
    one, size = _number(a, 1.0, x), a.abs(x)
    far = a.compare("ge", size, _number(a, _DECAYED, x))
    near_x = a.select(far, one, x)
    tangent, s = hyperbolic.tan(a, y), hyperbolic.sinh(a, near_x)
    beta = a.fma(tangent, tangent, one)
    rho = a.sqrt(a.fma(s, s, one))
    below = a.fma(a.mul(beta, s), s, one)
    real, imag = a.div(a.mul(a.mul(beta, rho), s), below), a.div(tangent, below)
    decay = a.exp(a.neg(size))
    slope = a.mul(a.mul(a.sin(y), a.cos(y)), _number(a, 4.0, x))
    flat = a.mul(a.mul(slope, decay), decay)
    # At an infinite x the angle is lost without harm, elsewhere nothing is known.
    ends, turns = _is_infinite(a, x), a.logical_not(_is_finite(a, y))
    flat = a.select(a.logical_and(ends, turns), a.copysign(_number(a, 0.0, y), y), flat)
    level = a.select(a.logical_and(turns, a.logical_not(ends)), flat, a.copysign(one, x))
    real = a.select(far, level, a.select(_is_zero(a, x), x, real))
    imag = a.select(_is_zero(a, y), y, a.select(far, flat, imag))
    return real, imag


def _times_i(a: Arithmetic, z: Parts) -> Parts:
    return a.neg(z[1]), z[0]


def sin(a: Arithmetic, z: Parts) -> Parts:
    """-i sinh(i z)."""
    real, imag = sinh(a, _times_i(a, z))
    return imag, a.neg(real)


def cos(a: Arithmetic, z: Parts) -> Parts:
    """cosh(i z)."""
    return cosh(a, _times_i(a, z))


def tan(a: Arithmetic, z: Parts) -> Parts:
    """-i tanh(i z)."""
    real, imag = tanh(a, _times_i(a, z))
    return imag, a.neg(real)


def pow(a: Arithmetic, z: Parts, w: Parts) -> Parts:
    """e^(w log z); 1 for w = 0, and 0 for z = 0 if w has a positive real part."""
    zero, one = _number(a, 0.0, z[0]), _number(a, 1.0, z[0])
    unknown = _number(a, math.nan, z[0])
    real, imag = exp(a, mul(a, w, log(a, z)))
    origin = _is_zero(a, a.add(a.abs(z[0]), a.abs(z[1])))
    at_origin = a.select(a.compare("gt", w[0], zero), zero, unknown)
    real, imag = a.select(origin, at_origin, real), a.select(origin, at_origin, imag)
    none = _is_zero(a, a.add(a.abs(w[0]), a.abs(w[1])))
    return a.select(none, one, real), a.select(none, zero, imag)


def eq(a: Arithmetic, z: Parts, w: Parts) -> Parts:
    """Whether both parts are equal."""
    return (a.logical_and(a.compare("eq", z[0], w[0]), a.compare("eq", z[1], w[1])),)


def ne(a: Arithmetic, z: Parts, w: Parts) -> Parts:
    """Whether a part differs."""
    return (a.logical_or(a.compare("ne", z[0], w[0]), a.compare("ne", z[1], w[1])),)


def where(a: Arithmetic, condition: Parts, z: Parts, w: Parts) -> Parts:
    """Both parts of the one or the other."""
    real, imag = (a.select(condition[0], x, y) for x, y in zip(z, w, strict=True))
    return real, imag


FUNCTIONS: dict[str, Callable[..., Parts]] = {
    "cos": cos, "cosh": cosh, "eq": eq, "exp": exp, "expm1": expm1, "log": log,
    "log10": _logarithm(10.0), "log1p": log1p, "log2": _logarithm(2.0), "ne": ne, "pow": pow,
    "sin": sin, "sinh": sinh, "sqrt": sqrt, "tan": tan, "tanh": tanh, "where": where,
}  # fmt: skip
"""What an op does to parts, by its name; the backend's arithmetic comes first."""
