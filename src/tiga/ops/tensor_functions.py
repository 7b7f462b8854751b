"""Further elementary functions of whole tensors, as numpy computes them."""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tiga.ops import complex_functions, hyperbolic, series
from tiga.ops.dense import Scalar
from tiga.ops.functions import floor, quotient, sigmoid, sqrt
from tiga.ops.leaf import constant, ones_like, zeros_like
from tiga.ops.pointwise import add, div, eq, lt, mul, neg, sub, where
from tiga.trace.node import Node


@dataclass(frozen=True)
class NumpyUnary(Scalar):
    """A numpy function of one operand."""

    of_floats = True
    arity = 1
    cost = 20
    ufunc: ClassVar[np.ufunc]

    def reference(self, x):
        return self.ufunc(x)

    def slope(self, out: Node, x: Node) -> Node:
        raise NotImplementedError

    def vjp(self, ct, out, x):
        return (mul(ct, self.slope(out, x)),)


def _one_minus_square(x: Node) -> Node:
    """1 - x²: near 1 it must not cancel, near 0 its derivative must not."""
    one, square = ones_like(x), mul(x, x)
    product = mul(sub(one, x), add(one, x))
    if x.type.dtype.is_complex:
        return product
    return where(lt(square, constant(0.25, x.type)), sub(one, square), product)


@dataclass(frozen=True)
class Tan(NumpyUnary, name="tan"):
    """The tangent."""

    ufunc = np.tan

    def lower(self, b, x):
        return hyperbolic.tan(b, x)

    def slope(self, out, x):
        return add(ones_like(out), mul(out, out))


@dataclass(frozen=True)
class Asin(NumpyUnary, name="asin"):
    """The inverse sine."""

    ufunc = np.arcsin
    domain = (-0.9, 0.9)

    def lower(self, b, x):
        return series.asin(b, x)

    def slope(self, out, x):
        return div(ones_like(x), sqrt(_one_minus_square(x)))


@dataclass(frozen=True)
class Acos(NumpyUnary, name="acos"):
    """The inverse cosine."""

    ufunc = np.arccos
    domain = (-0.9, 0.9)

    def lower(self, b, x):
        return series.acos(b, x)

    def slope(self, out, x):
        return neg(div(ones_like(x), sqrt(_one_minus_square(x))))


@dataclass(frozen=True)
class Atan(NumpyUnary, name="atan"):
    """The inverse tangent."""

    ufunc = np.arctan

    def lower(self, b, x):
        return series.atan(b, x)

    def slope(self, out, x):
        return div(ones_like(x), add(ones_like(x), mul(x, x)))


@dataclass(frozen=True)
class Sinh(NumpyUnary, name="sinh"):
    """The hyperbolic sine."""

    ufunc = np.sinh

    def lower(self, b, x):
        return hyperbolic.sinh(b, x)

    def slope(self, out, x):
        return cosh(x)


@dataclass(frozen=True)
class Cosh(NumpyUnary, name="cosh"):
    """The hyperbolic cosine."""

    ufunc = np.cosh

    def lower(self, b, x):
        return hyperbolic.cosh(b, x)

    def slope(self, out, x):
        return sinh(x)


@dataclass(frozen=True)
class Asinh(NumpyUnary, name="asinh"):
    """The inverse hyperbolic sine."""

    ufunc = np.arcsinh

    def lower(self, b, x):
        return hyperbolic.asinh(b, x)

    def slope(self, out, x):
        return div(ones_like(x), sqrt(add(mul(x, x), ones_like(x))))


@dataclass(frozen=True)
class Acosh(NumpyUnary, name="acosh"):
    """The inverse hyperbolic cosine."""

    ufunc = np.arccosh
    domain = (1.1, 4.0)

    def lower(self, b, x):
        return hyperbolic.acosh(b, x)

    def slope(self, out, x):
        one = ones_like(x)
        return div(one, mul(sqrt(sub(x, one)), sqrt(add(x, one))))


@dataclass(frozen=True)
class Atanh(NumpyUnary, name="atanh"):
    """The inverse hyperbolic tangent."""

    ufunc = np.arctanh
    domain = (-0.9, 0.9)

    def lower(self, b, x):
        return hyperbolic.atanh(b, x)

    def slope(self, out, x):
        return div(ones_like(x), _one_minus_square(x))


@dataclass(frozen=True)
class Log2(NumpyUnary, name="log2"):
    """The logarithm to base 2."""

    ufunc = np.log2
    domain = (0.1, 4.0)

    def slope(self, out, x):
        return div(constant(1 / math.log(2), x.type), x)


@dataclass(frozen=True)
class Log10(NumpyUnary, name="log10"):
    """The logarithm to base 10."""

    ufunc = np.log10
    domain = (0.1, 4.0)

    def slope(self, out, x):
        return div(constant(1 / math.log(10), x.type), x)


@dataclass(frozen=True)
class Atan2(Scalar, name="atan2"):
    """The angle of the point (b, a); derivative 0 at the origin."""

    of_floats = True
    arity = 2
    cost = 30

    def reference(self, a, b):
        return np.arctan2(a, b)

    def lower(self, b, y, x):
        return series.atan2(b, y, x)

    def vjp(self, ct, out, a, b):
        length = hypot(a, b)
        length = where(eq(length, zeros_like(length)), ones_like(length), length)
        scale = div(ct, length)
        return mul(scale, div(b, length)), neg(mul(scale, div(a, length)))


@dataclass(frozen=True)
class Hypot(Scalar, name="hypot"):
    """sqrt(a² + b²) without overflow; derivative 0 at the origin."""

    of_floats = True
    arity = 2
    cost = 10

    def reference(self, a, b):
        return np.hypot(a, b)

    def lower(self, b, x, y):
        return complex_functions.hypot(b, x, y)

    def vjp(self, ct, out, a, b):
        origin = eq(out, zeros_like(out))
        length = where(origin, ones_like(out), out)
        return mul(ct, div(a, length)), mul(ct, div(b, length))


@dataclass(frozen=True)
class Logaddexp(Scalar, name="logaddexp"):
    """log(exp(a) + exp(b)) without overflow."""

    of_floats = True
    arity = 2
    cost = 50

    def reference(self, a, b):
        return np.logaddexp(a, b)

    def lower(self, b, x, y):
        return hyperbolic.logaddexp(b, x, y)

    def vjp(self, ct, out, a, b):
        return mul(ct, sigmoid(sub(a, b))), mul(ct, sigmoid(sub(b, a)))


@dataclass(frozen=True)
class Nextafter(Scalar, name="nextafter"):
    """The next number after a in the direction of b; it moves with a."""

    of_floats = True
    arity = 2
    exact = True
    widens = False

    def reference(self, a, b):
        return np.nextafter(a, b)

    def vjp(self, ct, out, a, b):
        return ct, None


@dataclass(frozen=True)
class FloorDivide(Scalar, name="floor_divide"):
    """The largest integer not above a / b."""

    divides = True
    arity = 2
    cost = 10

    def reference(self, a, b):
        return np.floor_divide(a, b)

    def vjp(self, ct, out, a, b):
        return None, None


@dataclass(frozen=True)
class Remainder(Scalar, name="remainder"):
    """a - b * floor(a / b): the remainder with the sign of b."""

    divides = True
    arity = 2
    cost = 10

    def reference(self, a, b):
        return np.remainder(a, b)

    def vjp(self, ct, out, a, b):
        return ct, neg(mul(ct, quotient(a, b, out, floor)))


@dataclass(frozen=True)
class Bitwise(Scalar):
    """Bits of integers or truth values; no derivative."""

    exact = True
    ufunc: ClassVar[np.ufunc]

    def reference(self, *arrays):
        return self.ufunc(*arrays)

    def vjp(self, ct, out, *inputs):
        return (None,) * len(inputs)


@dataclass(frozen=True)
class BitwiseAnd(Bitwise, name="bitwise_and"):
    """a & b."""

    arity, ufunc = 2, np.bitwise_and

    def lower(self, b, x, y):
        return b.bit_and(x, y)


@dataclass(frozen=True)
class BitwiseOr(Bitwise, name="bitwise_or"):
    """a | b."""

    arity, ufunc = 2, np.bitwise_or

    def lower(self, b, x, y):
        return b.bit_or(x, y)


@dataclass(frozen=True)
class BitwiseXor(Bitwise, name="bitwise_xor"):
    """a ^ b."""

    arity, ufunc = 2, np.bitwise_xor

    def lower(self, b, x, y):
        return b.bit_xor(x, y)


@dataclass(frozen=True)
class BitwiseInvert(Bitwise, name="bitwise_invert"):
    """~a."""

    arity, ufunc = 1, np.invert

    def lower(self, b, x):
        return b.bit_xor(x, b.constant(-1, x))


@dataclass(frozen=True)
class ShiftLeft(Bitwise, name="bitwise_left_shift"):
    """a << b."""

    arity, ufunc = 2, np.left_shift

    def lower(self, b, x, y):
        return b.shift_left(x, y)


@dataclass(frozen=True)
class ShiftRight(Bitwise, name="bitwise_right_shift"):
    """a >> b, keeping the sign."""

    arity, ufunc = 2, np.right_shift

    def lower(self, b, x, y):
        return b.shift_right(x, y)


tan, asin, acos, atan = Tan(), Asin(), Acos(), Atan()
sinh, cosh, asinh, acosh, atanh = Sinh(), Cosh(), Asinh(), Acosh(), Atanh()
log2, log10, atan2, hypot, logaddexp = Log2(), Log10(), Atan2(), Hypot(), Logaddexp()
nextafter, floor_divide, remainder = Nextafter(), FloorDivide(), Remainder()
bitwise_and, bitwise_or, bitwise_xor = BitwiseAnd(), BitwiseOr(), BitwiseXor()
bitwise_invert, shift_left, shift_right = BitwiseInvert(), ShiftLeft(), ShiftRight()
