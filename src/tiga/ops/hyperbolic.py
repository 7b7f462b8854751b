"""Hyperbolic functions, their inverses, and division with rounding, in the closed arithmetic."""

import math

from tiga.ops.arithmetic import Arithmetic, Value

_SMALL = 1.0
_DECAYED = 22.0
"""From here on e^-x is nothing beside e^x in either format."""

_LARGE = 2.0**28
"""From here on x² + 1 rounds to x²."""

_LN2 = math.log(2)


def _halved(b: Arithmetic, size: Value) -> tuple[Value, Value]:
    """Whether e^-size is nothing beside e^size, and size, or half of it there: the square of e to
    that power is in range where half of it is."""
    far = b.compare("ge", size, b.constant(_DECAYED, size))
    return far, b.select(far, b.mul(size, b.constant(0.5, size)), size)


def sinh(b: Arithmetic, x: Value) -> Value:
    """From e^|x| - 1, which keeps what is small."""
    one, two, half = (b.constant(c, x) for c in (1.0, 2.0, 0.5))
    size = b.abs(x)
    far, power = _halved(b, size)
    grown = b.expm1(power)
    share = b.div(grown, b.add(grown, one))
    small = b.sub(b.mul(two, grown), b.mul(grown, share))
    near = b.select(b.compare("lt", size, b.constant(_SMALL, x)), small, b.add(grown, share))
    root = b.add(grown, one)
    return b.copysign(b.select(far, b.mul(b.mul(root, half), root), b.mul(half, near)), x)


def cosh(b: Arithmetic, x: Value) -> Value:
    """Half of e^|x| and of its inverse."""
    half = b.constant(0.5, x)
    far, power = _halved(b, b.abs(x))
    grown = b.exp(power)
    near = b.add(b.mul(half, grown), b.div(half, grown))
    return b.select(far, b.mul(b.mul(grown, half), grown), near)


def tan(b: Arithmetic, x: Value) -> Value:
    """The sine over the cosine, which is never 0 at a floating-point number."""
    return b.div(b.sin(x), b.cos(x))


def asinh(b: Arithmetic, x: Value) -> Value:
    """log(|x| + sqrt(x² + 1)) with the sign of x; beyond 2^28 the logarithm of 2 |x|."""
    one, size = b.constant(1.0, x), b.abs(x)
    bounded = b.minimum(size, b.constant(_LARGE, x))
    square = b.mul(bounded, bounded)
    above = b.div(square, b.add(one, b.sqrt(b.add(square, one))))
    near = b.log1p(b.add(bounded, above))
    far = b.add(b.log(size), b.constant(_LN2, x))
    large = b.compare("ge", size, b.constant(_LARGE, x))
    return b.copysign(b.select(large, far, near), x)


def acosh(b: Arithmetic, x: Value) -> Value:
    """log(x + sqrt(x² - 1)) by what x is above 1; NaN below 1."""
    bounded = b.minimum(x, b.constant(_LARGE, x))
    above = b.sub(bounded, b.constant(1.0, x))
    root = b.sqrt(b.add(b.add(above, above), b.mul(above, above)))
    near = b.log1p(b.add(above, root))
    far = b.add(b.log(x), b.constant(_LN2, x))
    near = b.select(b.compare("ge", x, b.constant(_LARGE, x)), far, near)
    return b.select(b.compare("lt", x, b.constant(1.0, x)), b.constant(math.nan, x), near)


def atanh(b: Arithmetic, x: Value) -> Value:
    """log((1 + |x|) / (1 - |x|)) / 2 with the sign of x; infinite at ±1, NaN beyond."""
    one, size = b.constant(1.0, x), b.abs(x)
    ratio = b.div(b.add(size, size), b.sub(one, size))
    half = b.mul(b.log1p(ratio), b.constant(0.5, x))
    value = b.select(b.compare("gt", size, one), b.constant(math.nan, x), half)
    return b.copysign(value, x)


def logaddexp(b: Arithmetic, x: Value, y: Value) -> Value:
    """The larger plus log(1 + e^-distance); infinite operands have no distance."""
    high = b.maximum(x, y)
    more = b.log1p(b.exp(b.neg(b.abs(b.sub(x, y)))))
    same = b.compare("eq", x, y)
    return b.select(same, b.add(x, b.constant(_LN2, x)), b.add(high, more))


def _crosses(b: Arithmetic, rest: Value, y: Value) -> Value:
    """Whether a remainder is not 0 and has another sign than the divisor."""
    zero = b.constant(0, y)
    below, under = b.compare("lt", rest, zero), b.compare("lt", y, zero)
    apart = b.logical_or(
        b.logical_and(below, b.logical_not(under)), b.logical_and(under, b.logical_not(below))
    )
    return b.logical_and(b.compare("ne", rest, zero), apart)


def int_floor_divide(b: Arithmetic, x: Value, y: Value) -> Value:
    """The quotient of whole numbers rounded down; 0 for a zero divisor."""
    quotient = b.div(x, y)
    lower = b.sub(quotient, b.constant(1, x))
    return b.select(_crosses(b, b.rem(x, y), y), lower, quotient)


def int_remainder(b: Arithmetic, x: Value, y: Value) -> Value:
    """The remainder of whole numbers with the sign of the divisor; 0 for a zero divisor."""
    rest = b.rem(x, y)
    return b.select(_crosses(b, rest, y), b.add(rest, y), rest)


def floor_divide(b: Arithmetic, x: Value, y: Value) -> Value:
    """The quotient rounded down, as numpy rounds it: exact through the remainder."""
    rest, zero, one = b.rem(x, y), b.constant(0, x), b.constant(1, x)
    whole = b.div(b.sub(x, rest), y)
    whole = b.select(_crosses(b, rest, y), b.sub(whole, one), whole)
    down = b.floor(whole)
    short = b.compare("gt", b.sub(whole, down), b.constant(0.5, x))
    down = b.select(short, b.add(down, one), down)
    exact = b.div(x, y)
    down = b.select(b.compare("eq", whole, zero), b.copysign(zero, exact), down)
    return b.select(b.compare("eq", y, zero), exact, down)


def remainder(b: Arithmetic, x: Value, y: Value) -> Value:
    """The remainder with the sign of the divisor, that of 0 too."""
    rest = b.rem(x, y)
    moved = b.select(_crosses(b, rest, y), b.add(rest, y), rest)
    return b.select(b.compare("eq", rest, b.constant(0, x)), b.copysign(rest, y), moved)
