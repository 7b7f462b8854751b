"""exp, expm1, log, log1p, tanh and erf on f32 and f64 lanes.

There is no vector math library behind LLVM's JIT, so each function is a range reduction and a
polynomial. Reductions follow W. J. Cody and W. Waite, "Software Manual for the Elementary
Functions" (1980), with fma in place of their split constants; polynomials are minimax fits of our
own (tools/fit_functions.py). Every step is lane by lane, so no result depends on the vector width.
"""

import struct
from dataclasses import dataclass

from tiga.backends.llvm import coefficients as tables
from tiga.backends.llvm.lanes import Lanes, polynomial, where


@dataclass(frozen=True)
class Format:
    """What the functions need to know of a float format.

    `shift` is 1.5 · 2^mantissa: adding it rounds to an integer and leaves that integer in the low
    bits. `ln2_high + ln2_low` is log 2 to twice the precision.
    """

    width: int
    mantissa: int
    bias: int
    ln2_high: float
    ln2_low: float
    exp: tuple[float, ...]
    exp_low: float
    exp_high: float
    tanh_high: float
    erf_high: float
    erf: tuple[float, ...]
    log_erfc: tuple[float, ...]

    @property
    def shift(self) -> float:
        return 1.5 * 2.0**self.mantissa

    @property
    def one_bits(self) -> int:
        return self.bias << self.mantissa

    def bits_of(self, number: float) -> int:
        """The bits of `number` in this format."""
        float_code, integer_code = ("<f", "<i") if self.width == 32 else ("<d", "<q")
        return struct.unpack(integer_code, struct.pack(float_code, number))[0]


F32 = Format(
    width=32,
    mantissa=23,
    bias=127,
    ln2_high=0.693147182464599609375,
    ln2_low=-1.904654299957768e-09,
    exp=tables.EXP_F32,
    exp_low=-104.0,
    exp_high=89.0,
    tanh_high=9.1,
    erf_high=4.0,
    erf=tables.ERF_F32,
    log_erfc=tables.LOG_ERFC_F32,
)
F64 = Format(
    width=64,
    mantissa=52,
    bias=1023,
    ln2_high=0.6931471805599453,
    ln2_low=2.3190468138462996e-17,
    exp=tables.EXP_F64,
    exp_low=-746.0,
    exp_high=710.0,
    tanh_high=19.1,
    erf_high=6.0,
    erf=tables.ERF_F64,
    log_erfc=tables.LOG_ERFC_F64,
)
LOG2_E = 1.4426950408889634
INFINITY = float("inf")
NAN = float("nan")


def format_of(x: Lanes) -> Format:
    """The format of the floats in lanes."""
    return F32 if x.width == 32 else F64


def clamp(x: Lanes, low: float, high: float) -> Lanes:
    """`x` kept within [low, high]; NaN stays NaN."""
    x = where(x.like(low) > x, low, x)
    return where(x.like(high) < x, high, x)


@dataclass(frozen=True)
class Reduced:
    """x = power · log 2 + rest, |rest| <= log 2 / 2; `field` is `power` in the exponent's bits."""

    field: Lanes
    rest: Lanes

    def scale(self, format_: Format, offset: int = 0) -> Lanes:
        """2^(power + offset), which must be a normal number."""
        return (self.field + ((format_.bias + offset) << format_.mantissa)).as_float()


def reduce_exponent(x: Lanes, format_: Format) -> Reduced:
    """Split x for exp; both fma leave at most one rounding error, as `rest` cancels exactly."""
    shifted = x.fma(LOG2_E, format_.shift)
    power = shifted - format_.shift
    rest = power.fma(-format_.ln2_high, x)
    rest = power.fma(-format_.ln2_low, rest)
    return Reduced(shifted.bits() << format_.mantissa, rest)


def exp(x: Lanes) -> Lanes:
    """e^x: 0 below the subnormals, infinity past the range, subnormals rounded once more."""
    format_ = format_of(x)
    x = clamp(x, format_.exp_low, format_.exp_high)
    reduced = reduce_exponent(x, format_)
    return scaled_exp(reduced, x < 0.0, format_)


def scaled_exp(reduced: Reduced, negative: Lanes, format_: Format) -> Lanes:
    """2^power · e^rest, where 2^power alone may leave the range: half of the way in each factor."""
    rest = reduced.rest
    p = polynomial(rest, (1.0, 1.0, *format_.exp))
    half = (format_.bias + 1) // 2
    bias = where(
        negative,
        reduced.field.like((format_.bias + half) << format_.mantissa),
        (format_.bias - half) << format_.mantissa,
    )
    factor = where(negative, rest.like(2.0**-half), 2.0**half)
    return p * (reduced.field + bias).as_float() * factor


def exp_minus_one_of_rest(rest: Lanes, format_: Format) -> Lanes:
    """e^rest - 1 with relative accuracy."""
    return (rest * rest).fma(polynomial(rest, format_.exp), rest)


def expm1(x: Lanes) -> Lanes:
    """e^x - 1 = 2^k (e^r - 1) + (2^k - 1), at half scale so that 2^k stays in range."""
    format_ = format_of(x)
    # Below -(mantissa + 3) log 2 the result is -1.
    bounded = clamp(x, -(format_.mantissa + 3) * format_.ln2_high, format_.exp_high)
    reduced = reduce_exponent(bounded, format_)
    half = reduced.scale(format_, -1)
    q = exp_minus_one_of_rest(reduced.rest, format_)
    result = half.fma(q, half - 0.5) * 2.0
    # Keeps -0 and subnormals, which the half scale would lose.
    return where(x.abs() < 2.0 ** -(format_.mantissa + 2), x, result)


def tanh(x: Lanes) -> Lanes:
    """tanh |x| with the sign of x; 1 where it rounds to 1.

    f32: x + x³ P(x²) up to 0.55, then 1 - 2 / (e^2|x| + 1). f64: (e^2|x| - 1) / (e^2|x| + 1), both
    sides from one e^r - 1, within the wider bound and without a long polynomial near 0.
    """
    format_ = format_of(x)
    size = x.abs()
    bounded = where(size.like(format_.tanh_high) < size, format_.tanh_high, size)
    reduced = reduce_exponent(bounded + bounded, format_)
    scale = reduced.scale(format_)
    if format_.width == 64:
        q = exp_minus_one_of_rest(reduced.rest, format_)
        return (scale.fma(q, scale - 1.0) / scale.fma(q, scale + 1.0)).copysign(x)
    e = polynomial(reduced.rest, (1.0, 1.0, *format_.exp))
    far = x.like(1.0) - x.like(2.0) / e.fma(scale, 1.0)
    square = size * size
    near = (size * square).fma(polynomial(square, tables.TANH_F32), size)
    return where(size < 0.55, near, far).copysign(x)


def erf(x: Lanes) -> Lanes:
    """x + x P(x²) up to 1; beyond, 1 - exp(Q(|x|)) with Q fitted to log erfc."""
    format_ = format_of(x)
    size = x.abs()
    near = size.fma(polynomial(size * size, format_.erf), size)
    bounded = where(size.like(format_.erf_high) < size, format_.erf_high, size)
    bounded = where(bounded < 1.0, 1.0, bounded)
    reduced = reduce_exponent(polynomial(bounded, format_.log_erfc), format_)
    e = polynomial(reduced.rest, (1.0, 1.0, *format_.exp)) * reduced.scale(format_)
    return where(size < 1.0, near, e.like(1.0) - e).copysign(x)


@dataclass(frozen=True)
class Normalized:
    """x = 2^power · (1 + fraction) with 1 + fraction in [√½, √2); `step` is `power` as an int."""

    step: Lanes
    power: Lanes
    fraction: Lanes


def normalize(x: Lanes, format_: Format) -> Normalized:
    """Split a positive normal x; other lanes give finite rubbish that callers select away."""
    bits = x.bits()
    step = (bits - format_.bits_of(0.5**0.5)) >> format_.mantissa
    fraction = (bits - (step << format_.mantissa)).as_float() - 1.0
    power = (step + format_.bits_of(format_.shift)).as_float() - format_.shift
    return Normalized(step, power, fraction)


def log_of_parts(power: Lanes, f: Lanes, format_: Format) -> Lanes:
    """power · log 2 + log(1 + f).

    f32: f - f²/2 + f³ P(f). f64: with s = f / (2 + f), 2 atanh s = f - s (f - s² P(s²)), which
    halves the degree for one division.
    """
    if format_.width == 32:
        square = f * f
        tail = power.fma(format_.ln2_low, (f * square) * polynomial(f, tables.LOG_F32))
        tail = square.fma(-0.5, tail)
    else:
        s = f / (f + 2.0)
        square = s * s
        inner = square * polynomial(square, tables.LOG_F64) - f
        tail = s.fma(inner, power * format_.ln2_low)
    return power.fma(format_.ln2_high, f + tail)


def log(x: Lanes) -> Lanes:
    """Natural logarithm: -inf at ±0, NaN below, infinity at infinity."""
    format_ = format_of(x)
    smallest = 2.0 ** (1 - format_.bias)
    subnormal = x < smallest
    raised = where(subnormal, x * 2.0**format_.mantissa, x)
    parts = normalize(raised, format_)
    power = where(subnormal, parts.power - float(format_.mantissa), parts.power)
    return _log_edges(x, log_of_parts(power, parts.fraction, format_), 0.0)


def _log_edges(x: Lanes, result: Lanes, pole: float) -> Lanes:
    """NaN and +inf keep themselves, the pole gives -inf, what lies below it NaN."""
    result = where(x < INFINITY, result, x)
    result = where(x.compare("eq", pole), -INFINITY, result)
    return where(x < pole, NAN, result)


def log1p(x: Lanes) -> Lanes:
    """log(1 + x): what 1 + x rounds away goes into the fraction (Fast2Sum, T. J. Dekker 1971)."""
    format_ = format_of(x)
    total = x + 1.0
    lost = x - (total - 1.0)
    parts = normalize(total, format_)
    # Past 2^mantissa nothing that was lost matters; the bound keeps 2^-power a number.
    far = format_.mantissa + 2
    step = where(parts.step > far, far, parts.step)
    inverse = (step.like(format_.one_bits) - (step << format_.mantissa)).as_float()
    fraction = lost.fma(inverse, parts.fraction)
    result = _log_edges(x, log_of_parts(parts.power, fraction, format_), -1.0)
    return where(x.abs() < 2.0 ** -(format_.mantissa + 2), x, result)
