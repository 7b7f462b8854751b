"""Elementary functions, element by element."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tiga.ops import series
from tiga.ops.base import Pointwise
from tiga.ops.leaf import constant, ones_like, stop_gradient, zeros_like
from tiga.ops.pointwise import Binary, add, div, eq, ge, mul, neg, sub, where
from tiga.trace.node import Node


@dataclass(frozen=True)
class Unary(Pointwise):
    """A function of one operand; the backends know it by its own name."""

    arity = 1
    cost = 20
    of_floats = True

    def lower(self, b, x):
        return getattr(b, self.name)(x)


@dataclass(frozen=True)
class Abs(Unary, name="abs"):
    """|x|, with derivative 0 at 0."""

    of_floats = False
    exact = True
    cost = 1

    def reference(self, x):
        return np.abs(x)

    def vjp(self, ct, out, x):
        return (mul(ct, sign(x)),)


@dataclass(frozen=True)
class Sign(Unary, name="sign"):
    """-1, 0 or 1 with the sign of x; no derivative."""

    of_floats = False
    exact = True
    cost = 2

    def reference(self, x):
        return np.sign(x)

    def lower(self, b, x):
        zero = b.constant(0, x)
        one = b.constant(1, x)
        negative = b.select(b.compare("lt", x, zero), b.neg(one), x)
        signed = b.select(b.compare("gt", x, zero), one, negative)
        return b.select(b.compare("eq", x, zero), zero, signed)  # of a negative zero as well

    def vjp(self, ct, out, x):
        return (None,)


@dataclass(frozen=True)
class Rounding(Unary):
    """A step function: no derivative."""

    exact = True
    cost = 1

    def vjp(self, ct, out, x):
        return (None,)


@dataclass(frozen=True)
class Floor(Rounding, name="floor"):
    """The largest integer <= x."""

    def reference(self, x):
        return np.floor(x)


@dataclass(frozen=True)
class Ceil(Rounding, name="ceil"):
    """The smallest integer >= x."""

    def reference(self, x):
        return np.ceil(x)


@dataclass(frozen=True)
class Trunc(Rounding, name="trunc"):
    """x without its fraction."""

    def reference(self, x):
        return np.trunc(x)


@dataclass(frozen=True)
class Roundeven(Rounding, name="roundeven"):
    """The nearest integer, ties to even."""

    def reference(self, x):
        return np.rint(x)


@dataclass(frozen=True)
class Sqrt(Unary, name="sqrt"):
    """The square root."""

    steep = True

    cost = 6
    domain = (0.1, 4.0)

    def reference(self, x):
        return np.sqrt(x)

    def vjp(self, ct, out, x):
        return (div(ct, mul(constant(2, out.type), out)),)


@dataclass(frozen=True)
class Exp(Unary, name="exp"):
    """e to the power x."""

    steep = True

    def reference(self, x):
        return np.exp(x)

    def vjp(self, ct, out, x):
        return (mul(ct, out),)


@dataclass(frozen=True)
class Expm1(Unary, name="expm1"):
    """exp(x) - 1, accurate near 0."""

    steep = True

    def reference(self, x):
        return np.expm1(x)

    def vjp(self, ct, out, x):
        return (mul(ct, exp(x)),)  # not out + 1, of which nothing is left far below 0


@dataclass(frozen=True)
class Log(Unary, name="log"):
    """The natural logarithm."""

    steep = True
    domain = (0.1, 4.0)

    def reference(self, x):
        return np.log(x)

    def vjp(self, ct, out, x):
        return (div(ct, x),)


@dataclass(frozen=True)
class Log1p(Unary, name="log1p"):
    """log(1 + x), accurate near 0."""

    steep = True
    domain = (-0.9, 4.0)

    def reference(self, x):
        return np.log1p(x)

    def vjp(self, ct, out, x):
        return (div(ct, add(x, ones_like(x))),)


@dataclass(frozen=True)
class Sin(Unary, name="sin"):
    """The sine of an angle in radians."""

    def reference(self, x):
        return np.sin(x)

    def vjp(self, ct, out, x):
        return (mul(ct, cos(x)),)


@dataclass(frozen=True)
class Cos(Unary, name="cos"):
    """The cosine of an angle in radians."""

    def reference(self, x):
        return np.cos(x)

    def vjp(self, ct, out, x):
        return (neg(mul(ct, sin(x))),)


@dataclass(frozen=True)
class Tanh(Unary, name="tanh"):
    """The hyperbolic tangent."""

    def reference(self, x):
        return np.tanh(x)

    def vjp(self, ct, out, x):
        return (mul(ct, sub(ones_like(out), mul(out, out))),)


@dataclass(frozen=True)
class Sigmoid(Unary, name="sigmoid"):
    """1 / (1 + exp(-x))."""

    def reference(self, x):
        with np.errstate(over="ignore"):
            return 1 / (1 + np.exp(-x))

    def lower(self, b, x):
        one = b.constant(1, x)
        return b.div(one, b.add(one, b.exp(b.neg(x))))

    def vjp(self, ct, out, x):
        return (mul(ct, mul(out, sub(ones_like(out), out))),)


@dataclass(frozen=True)
class Erf(Unary, name="erf"):
    """The error function."""

    def reference(self, x):
        return np.vectorize(math.erf, otypes=[np.float64])(x).astype(x.dtype)

    def vjp(self, ct, out, x):
        scale = constant(2 / math.sqrt(math.pi), x.type)
        return (mul(ct, mul(scale, exp(neg(mul(x, x))))),)


@dataclass(frozen=True)
class Erfc(Unary, name="erfc"):
    """1 - erf(x), accurate where that vanishes."""

    def reference(self, x):
        return np.vectorize(math.erfc, otypes=[np.float64])(x).astype(x.dtype)

    def lower(self, b, x):
        return series.erfc(b, x)

    def vjp(self, ct, out, x):
        scale = constant(-2 / math.sqrt(math.pi), x.type)
        return (mul(ct, mul(scale, exp(neg(mul(x, x))))),)


def quotient(a: Node, b: Node, remainder: Node, cut: Callable[[Node], Node]) -> Node:
    """The integer (a - remainder) / b: where a / b rounds up to one, cutting it gives the next."""
    exact = roundeven(div(sub(a, remainder), b))
    return where(eq(exact, exact), exact, cut(div(a, b)))


@dataclass(frozen=True)
class Rem(Binary, name="rem"):
    """The remainder of a / b with the sign of a (C's fmod)."""

    steep = True
    divides = True
    of_floats = True
    cost = 8

    def reference(self, a, b):
        return np.fmod(a, b)

    def lower(self, b, x, y):
        return b.rem(x, y)

    def vjp(self, ct, out, a, b):
        return ct, neg(mul(ct, quotient(a, b, out, trunc)))


@dataclass(frozen=True)
class Pow(Binary, name="pow"):
    """a to the power b, as C's pow; of integers the fraction is cut off."""

    steep = True
    of_floats = True
    cost = 40
    domain = (0.1, 3.0)

    def reference(self, a, b):
        if a.dtype.kind != "i":
            return np.power(a, b)
        whole = np.power(a, np.where(b < 0, b & 1, b))
        return np.where((b >= 0) | (a == 1) | (a == -1), whole, 0).astype(a.dtype)

    def lower(self, b, x, y):
        return b.pow(x, y)

    def vjp(self, ct, out, a, b):
        zero, one = zeros_like(ct), ones_like(ct)
        constant_at, at_origin = eq(b, zero), eq(a, zero)
        # Both parts are finite where the other is taken: derivatives pass through either of them.
        inverse = div(one, where(at_origin, one, where(constant_at, a, one)))
        falling = mul(b, pow_(a, sub(where(constant_at, one, b), one)))
        slope = where(constant_at, mul(b, stop_gradient(inverse)), falling)
        log_a = log(where(at_origin, where(ge(b, zero), one, a), a))
        return mul(ct, slope), mul(ct, mul(out, log_a))


@dataclass(frozen=True)
class Copysign(Binary, name="copysign"):
    """|a| with the sign of b."""

    of_floats = True
    exact = True

    def reference(self, a, b):
        return np.copysign(a, b)

    def lower(self, b, x, y):
        return b.copysign(x, y)

    def vjp(self, ct, out, a, b):
        return mul(ct, mul(sign(a), copysign(ones_like(a), b))), None


abs_, sign, floor, ceil, trunc, roundeven = (
    Abs(), Sign(), Floor(), Ceil(), Trunc(), Roundeven(),
)  # fmt: skip
sqrt, exp, expm1, log, log1p = Sqrt(), Exp(), Expm1(), Log(), Log1p()
sin, cos, tanh, sigmoid, erf, erfc = Sin(), Cos(), Tanh(), Sigmoid(), Erf(), Erfc()
pow_, rem, copysign = Pow(), Rem(), Copysign()
