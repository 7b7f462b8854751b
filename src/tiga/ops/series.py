"""Inverse trigonometric functions and the complementary error function, in the closed arithmetic.

Each is a polynomial on a small range to which its argument is brought; the coefficients were
computed for this purpose by interpolation at Chebyshev points, to about 1e-17.
"""

import math

from tiga.ops.arithmetic import Arithmetic, Value

_ATAN = (
    -0.3333333333333333, 0.19999999999999804, -0.14285714285659828, 0.11111111105155447,
    -0.09090908753500877, 0.07692296375032143, -0.06666424885738255, 0.05878928997834775,
    -0.05230454270650244, 0.04551593220626549, -0.034570561981427744, 0.016285756855221028,
)  # fmt: skip
"""(atan(t) / t - 1) / z for z = t * t up to tan(pi / 8) squared."""

_ASIN = (
    0.16666666666666666, 0.07500000000000118, 0.044642857142551895, 0.03038194447553234,
    0.02237215744350722, 0.017352816540325496, 0.01396378001220357, 0.011566459612121669,
    0.009621842970100282, 0.009319560794767446, 0.0030448799094556773, 0.019554513336123378,
    -0.01924167174674304, 0.02961201126495512,
)  # fmt: skip
"""(asin(t) / t - 1) / z for z = t * t up to 1 / 4."""

_ERFC_CENTRE = 3.75
_ERFC = (
    1.2375126308378275, -0.14024059858554702, 0.0035854154854638247, 0.08227673849015117,
    -0.10880393014171733, 0.0923043211602038, -0.05869339859026437, 0.02836227742121039,
    -0.009746579551837182, 0.0017556258376223363, 0.0002937136321641326, -0.0002901540249315726,
    5.1649195662284944e-05, 2.2384149657643687e-05, -1.1444245503251311e-05,
    -9.736261167186187e-07, 1.7513795513942116e-06, -5.664752187816744e-08,
    -2.575780478175793e-07, 2.2199731381988987e-08, 3.6956415481378777e-08,
    -2.8312713032485305e-09, -3.837122960557045e-09,
)  # fmt: skip
"""exp(x x) erfc(x) (1 + 2 x) in t = (x - c) / (x + c), for x from 0.3 to 28."""

_ERFC_VANISHES = 30.0
_ATAN_FLAT = 1e30
_PI_REST = 1.2246467991473532e-16
"""pi is the float64 `math.pi` and this."""


def _polynomial(b: Arithmetic, x: Value, coefficients: tuple[float, ...]) -> Value:
    total = b.constant(coefficients[-1], x)
    for coefficient in reversed(coefficients[:-1]):
        total = b.fma(total, x, b.constant(coefficient, x))
    return total


def _odd_rest(b: Arithmetic, t: Value, coefficients: tuple[float, ...]) -> Value:
    """t z p(z) with z = t * t."""
    z = b.mul(t, t)
    return b.mul(b.mul(t, z), _polynomial(b, z, coefficients))


def _odd(b: Arithmetic, t: Value, coefficients: tuple[float, ...]) -> Value:
    """t + t z p(z) with z = t * t."""
    return b.add(t, _odd_rest(b, t, coefficients))


def atan(b: Arithmetic, x: Value) -> Value:
    """The angle is brought below pi / 8 by taking pi / 4 or pi / 2 off."""
    zero, one = b.constant(0, x), b.constant(1, x)
    size = b.minimum(b.abs(x), b.constant(_ATAN_FLAT, x))
    far = b.compare("gt", size, b.constant(math.tan(3 * math.pi / 8), x))
    near = b.compare("lt", size, b.constant(math.tan(math.pi / 8), x))

    def case(if_far: Value, if_near: Value, else_: Value) -> Value:
        return b.select(far, if_far, b.select(near, if_near, else_))

    more = b.add(size, one)
    above = case(b.neg(one), size, b.sub(size, one))
    below = case(size, one, more)
    t = b.div(above, below)
    lost = case(zero, zero, b.sub(size, b.sub(more, one)))
    left = b.sub(b.fma(b.neg(t), below, above), b.mul(t, lost))
    base = case(b.constant(math.pi / 2, x), zero, b.constant(math.pi / 4, x))
    rest = case(b.constant(_PI_REST / 2, x), zero, b.constant(_PI_REST / 4, x))
    small = b.add(_odd_rest(b, t, _ATAN), b.add(b.div(left, below), rest))
    return b.copysign(b.add(base, b.add(t, small)), x)


def atan2(b: Arithmetic, y: Value, x: Value) -> Value:
    """The angle within the first octant, then turned to the octant of the point."""
    zero, high, wide = b.constant(0, x), b.abs(y), b.abs(x)
    steep = b.compare("gt", high, wide)
    short, long = b.select(steep, wide, high), b.select(steep, high, wide)
    equal, none = b.compare("eq", short, long), b.compare("eq", b.add(short, long), zero)
    ratio = b.div(short, b.select(none, b.constant(1, x), long))
    ratio = b.select(none, zero, b.select(equal, b.constant(1, x), ratio))
    angle = atan(b, ratio)
    half = b.constant(math.pi / 2, x)
    angle = b.select(steep, b.sub(half, b.sub(angle, b.constant(_PI_REST / 2, x))), angle)
    behind = b.compare("lt", b.copysign(b.constant(1, x), x), zero)
    turned = b.sub(b.constant(math.pi, x), b.sub(angle, b.constant(_PI_REST, x)))
    return b.copysign(b.select(behind, turned, angle), y)


def _half_angle(b: Arithmetic, size: Value) -> Value:
    """asin(sqrt((1 - size) / 2)): half of acos(size)."""
    half = b.mul(b.sub(b.constant(1, size), size), b.constant(0.5, size))
    root = b.sqrt(half)
    divisor = b.select(b.compare("eq", root, b.constant(0, size)), b.constant(1, size), root)
    lost = b.div(b.mul(b.fma(b.neg(root), root, half), b.constant(0.5, size)), divisor)
    return b.add(root, b.add(_odd_rest(b, root, _ASIN), lost))


def asin(b: Arithmetic, x: Value) -> Value:
    """Above 1/2 by the half angle; NaN outside of [-1, 1]."""
    size = b.abs(x)
    small = b.compare("le", size, b.constant(0.5, x))
    half = _half_angle(b, size)
    doubled = b.add(half, b.sub(half, b.constant(_PI_REST / 2, x)))
    large = b.sub(b.constant(math.pi / 2, x), doubled)
    inner = _odd(b, b.select(small, size, b.constant(0, x)), _ASIN)
    return b.copysign(b.select(small, inner, large), x)


def acos(b: Arithmetic, x: Value) -> Value:
    """Beyond 1/2 on either side by the half angle; NaN outside of [-1, 1]."""
    size = b.abs(x)
    small = b.compare("le", size, b.constant(0.5, x))
    inner = _odd(b, b.select(small, x, b.constant(0, x)), _ASIN)
    middle = b.sub(b.constant(math.pi / 2, x), b.sub(inner, b.constant(_PI_REST / 2, x)))
    half = _half_angle(b, size)
    double = b.add(half, half)
    rest = b.constant(_PI_REST, x)
    turned = b.sub(b.constant(math.pi, x), b.sub(double, rest))
    large = b.select(b.compare("lt", x, b.constant(0, x)), turned, double)
    return b.select(small, middle, large)


def erfc(b: Arithmetic, x: Value) -> Value:
    """1 - erf(x) near 0, else exp(-x x) times a polynomial, and from 2 down for negative x."""
    one = b.constant(1, x)
    size = b.minimum(b.abs(x), b.constant(_ERFC_VANISHES, x))
    centre = b.constant(_ERFC_CENTRE, x)
    t = b.div(b.sub(size, centre), b.add(size, centre))
    square = b.mul(size, size)
    lost = b.fma(size, size, b.neg(square))
    decay = b.mul(b.exp(b.neg(square)), b.sub(one, lost))
    scaled = b.div(_polynomial(b, t, _ERFC), b.fma(b.constant(2, x), size, one))
    tail = b.mul(decay, scaled)
    turned = b.sub(b.constant(2, x), tail)
    far = b.select(b.compare("lt", x, b.constant(0, x)), turned, tail)
    near = b.compare("lt", b.abs(x), b.constant(0.35, x))
    return b.select(near, b.sub(one, b.erf(x)), far)
