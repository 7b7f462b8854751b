"""pow on f32 and f64 lanes, with the special cases of C's `pow` (ISO C, annex F).

f32 runs in f64. f64 carries the logarithm and its product as pairs of floats (T. J. Dekker,
"A floating-point technique for extending the available precision", 1971), so that a result near
the end of the range, whose exponent magnifies errors a thousandfold, keeps its accuracy.
"""

from dataclasses import dataclass

from tiga.backends.llvm import coefficients as tables
from tiga.backends.llvm.functions import (
    F64,
    INFINITY,
    NAN,
    Reduced,
    clamp,
    log_of_parts,
    normalize,
    reduce_exponent,
    scaled_exp,
)
from tiga.backends.llvm.lanes import Lanes, polynomial, where

_THIRD = 1 / 3
_THIRD_LOW = 1.850371707708594e-17


@dataclass(frozen=True)
class Pair:
    """high + low, unevaluated; |low| is at most a few units in the last place of high."""

    high: Lanes
    low: Lanes


def pow(a: Lanes, b: Lanes) -> Lanes:
    """a^b; NaN for a finite negative base with a fraction as exponent; 1 if b = 0 or a = 1."""
    size = a.abs()
    if a.width == 32:
        magnitude = _pow_in_double(size.extended(), b.extended()).truncated()
    else:
        magnitude = _pow_of_pair(size, b)
    return _signed(a, b, where(size.compare("eq", 1.0), 1.0, magnitude))


def _signed(a: Lanes, b: Lanes, magnitude: Lanes) -> Lanes:
    """The power from |a|^b: signs, domain and NaN."""
    integral = b.trunc().compare("eq", b)
    half = b * 0.5
    odd = integral & half.trunc().compare("ne", half)
    result = where(odd, magnitude.copysign(a), magnitude)
    result = where((a < 0.0) & (a > -INFINITY) & ~integral, NAN, result)
    result = where(a.compare("ne", a) | b.compare("ne", b), NAN, result)
    return where(a.compare("eq", 1.0) | b.compare("eq", 0.0), 1.0, result)


def _with_infinite_ends(size: Lanes, log: Lanes) -> Lanes:
    log = where(size.compare("eq", 0.0), -INFINITY, log)
    return where(size.compare("eq", INFINITY), INFINITY, log)


def _pow_in_double(size: Lanes, b: Lanes) -> Lanes:
    """size^b where size and b came from f32: f64 leaves 20 bits to spare."""
    parts = normalize(size, F64)
    log = _with_infinite_ends(size, log_of_parts(parts.power, parts.fraction, F64))
    product = clamp(log * b, F64.exp_low, F64.exp_high)
    return scaled_exp(reduce_exponent(product, F64), product < 0.0, F64)


def _pow_of_pair(size: Lanes, b: Lanes) -> Lanes:
    log = log_pair(size)
    high = _with_infinite_ends(size, log.high)
    product = b * high
    error = high.fma(b, -product) + b * log.low
    inside = product.abs() < -F64.exp_low
    reduced = reduce_exponent(clamp(product, F64.exp_low, F64.exp_high), F64)
    rest = reduced.rest + where(inside, error, 0.0)
    return scaled_exp(Reduced(reduced.field, rest), product < 0.0, F64)


def log_pair(x: Lanes) -> Pair:
    """log of a positive finite x: power · log 2 + 2 atanh(s) to about 2^-64."""
    subnormal = x < 2.0 ** (1 - F64.bias)
    parts = normalize(where(subnormal, x * 2.0**F64.mantissa, x), F64)
    power = where(subnormal, parts.power - float(F64.mantissa), parts.power)
    scaled = power * F64.ln2_high
    scaled_low = power.fma(F64.ln2_high, -scaled) + power * F64.ln2_low
    twice = _twice_atanh(_quotient(parts.fraction))
    total = _sum(scaled, twice.high)
    return _sum(total.high, total.low + (scaled_low + twice.low))


def _sum(large: Lanes, small: Lanes) -> Pair:
    """Exactly large + small, if |large| >= |small| or large = 0."""
    total = large + small
    return Pair(total, (large - total) + small)


def _product(a: Pair, b: Pair) -> Pair:
    high = a.high * b.high
    low = a.high.fma(b.high, -high)
    return Pair(high, a.low.fma(b.high, a.high.fma(b.low, low)))


def _quotient(f: Lanes) -> Pair:
    """s = f / (2 + f)."""
    divisor = _sum(f.like(2.0), f)
    high = f / divisor.high
    left = (-high).fma(divisor.low, (-high).fma(divisor.high, f))
    return Pair(high, left / divisor.high)


def _twice_atanh(s: Pair) -> Pair:
    """2 (s + s (z/3 + z² Q(z))), z = s²; all but Q in pairs."""
    z = _product(s, s)
    third = _sum(z.high.like(_THIRD), z.high * polynomial(z.high, tables.LOG_PAIR))
    factor = Pair(third.high, third.low + _THIRD_LOW)
    tail = _product(s, _product(z, factor))
    total = _sum(s.high, tail.high)
    return Pair(total.high * 2.0, (total.low + (s.low + tail.low)) * 2.0)
