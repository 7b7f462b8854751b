"""Arithmetic element by element, comparisons, selection and casts."""

import math
from dataclasses import dataclass

import numpy as np

from tiga.ops.base import Pointwise
from tiga.ops.leaf import constant, is_constant, zeros_like
from tiga.ops.truncation import truncated
from tiga.trace.node import Node
from tiga.trace.origin import Origin
from tiga.types import DType, Type, bool_


@dataclass(frozen=True)
class Binary(Pointwise):
    """Two operands of one type."""

    arity = 2


@dataclass(frozen=True)
class Add(Binary, name="add"):
    """a + b."""

    signs = (1, 1)
    trends = (1, 1)

    def fold(self, inputs):
        a, b = inputs
        nothing = -0.0 if a.type.dtype.is_float else 0  # -0.0 + 0.0 is 0.0
        if is_constant(b, nothing):
            return a
        return b if is_constant(a, nothing) else None

    def reference(self, a, b):
        return a + b

    def lower(self, b, x, y):
        return b.add(x, y)

    def vjp(self, ct, out, a, b):
        return ct, ct


@dataclass(frozen=True)
class Sub(Binary, name="sub"):
    """a - b."""

    signs = (1, -1)
    trends = (1, -1)

    def fold(self, inputs):
        return inputs[0] if is_constant(inputs[1], 0.0) else None

    def reference(self, a, b):
        return a - b

    def lower(self, b, x, y):
        return b.sub(x, y)

    def vjp(self, ct, out, a, b):
        return ct, neg(ct)


@dataclass(frozen=True)
class Mul(Binary, name="mul"):
    """a * b."""

    def fold(self, inputs):
        a, b = inputs
        if is_constant(b, 1.0):
            return a
        return b if is_constant(a, 1.0) else None

    def reference(self, a, b):
        return a * b

    def lower(self, b, x, y):
        return b.mul(x, y)

    def vjp(self, ct, out, a, b):
        return mul(ct, b), mul(ct, a)


def _is_power_of_two(value: float) -> bool:
    """Whether a number is a power of two whose inverse every type of float holds."""
    mantissa, exponent = math.frexp(value)
    return abs(mantissa) == 0.5 and abs(exponent - 1) <= 14


@dataclass(frozen=True)
class Div(Binary, name="div"):
    """a / b; integers truncate towards zero."""

    steep = True

    cost = 4
    of_floats = True
    divides = True

    def fold(self, inputs):
        x, y = inputs
        if is_constant(y, 1.0):
            return x
        value = y.op.value if y.op.origin is Origin.NUMBER and y.type.dtype.is_float else None
        if isinstance(value, float) and _is_power_of_two(value):
            return mul(x, constant(1 / value, y.type))  # the same bits
        return None

    def reference(self, a, b):
        return np.divide(a, b) if a.dtype.kind not in "iu" else np.trunc(a / b).astype(a.dtype)

    def lower(self, b, x, y):
        return b.div(x, y)

    def vjp(self, ct, out, a, b):
        return div(ct, b), neg(div(mul(ct, out), b))


@dataclass(frozen=True)
class Neg(Pointwise, name="neg"):
    """-a."""

    signs = (-1,)
    trends = (-1,)
    arity = 1
    exact = True

    def fold(self, inputs):
        return inputs[0].inputs[0] if isinstance(inputs[0].op, Neg) else None

    def reference(self, a):
        return np.negative(a)

    def lower(self, b, x):
        return b.neg(x)

    def vjp(self, ct, out, a):
        return (neg(ct),)


@dataclass(frozen=True)
class Maximum(Binary, name="maximum"):
    """The larger operand, NaN if either is; a tie shares the derivative evenly."""

    trends = (1, 1)
    exact = True

    def reference(self, a, b):
        return np.maximum(a, b)

    def lower(self, b, x, y):
        return b.maximum(x, y)

    def vjp(self, ct, out, a, b):
        return _share(ct, gt(a, b), a, b), _share(ct, gt(b, a), a, b)


@dataclass(frozen=True)
class Minimum(Binary, name="minimum"):
    """The smaller operand, NaN if either is; a tie shares the derivative evenly."""

    trends = (1, 1)
    exact = True

    def reference(self, a, b):
        return np.minimum(a, b)

    def lower(self, b, x, y):
        return b.minimum(x, y)

    def vjp(self, ct, out, a, b):
        return _share(ct, lt(a, b), a, b), _share(ct, lt(b, a), a, b)


def _share(ct: Node, wins: Node, a: Node, b: Node) -> Node:
    half = mul(ct, constant(0.5, ct.type))
    return where(wins, ct, where(eq(a, b), half, zeros_like(ct)))


@dataclass(frozen=True)
class Compare(Pointwise):
    """A comparison: two operands of one type to bool; no derivative."""

    arity = 2
    exact = True

    def infer(self, *types: Type) -> Type:
        return super().infer(*types).with_dtype(bool_)

    def lower(self, b, x, y):
        return b.compare(self.name, x, y)

    def vjp(self, ct, out, a, b):
        return None, None


@dataclass(frozen=True)
class Eq(Compare, name="eq"):
    """a == b."""

    def reference(self, a, b):
        return a == b


@dataclass(frozen=True)
class Ne(Compare, name="ne"):
    """a != b."""

    def reference(self, a, b):
        return a != b


@dataclass(frozen=True)
class Lt(Compare, name="lt"):
    """a < b."""

    def reference(self, a, b):
        return a < b


@dataclass(frozen=True)
class Le(Compare, name="le"):
    """a <= b."""

    def reference(self, a, b):
        return a <= b


@dataclass(frozen=True)
class Gt(Compare, name="gt"):
    """a > b."""

    def reference(self, a, b):
        return a > b


@dataclass(frozen=True)
class Ge(Compare, name="ge"):
    """a >= b."""

    def reference(self, a, b):
        return a >= b


@dataclass(frozen=True)
class Logical(Pointwise):
    """Boolean algebra on bool operands; no derivative."""

    exact = True

    def infer(self, *types: Type) -> Type:
        assert all(t.dtype == bool_ for t in types), f"{self.name} on {types}"
        return super().infer(*types)

    def vjp(self, ct, out, *inputs):
        return (None,) * len(inputs)


@dataclass(frozen=True)
class LogicalAnd(Logical, name="logical_and"):
    """a and b."""

    arity = 2

    def reference(self, a, b):
        return a & b

    def lower(self, b, x, y):
        return b.logical_and(x, y)


@dataclass(frozen=True)
class LogicalOr(Logical, name="logical_or"):
    """a or b."""

    arity = 2

    def reference(self, a, b):
        return a | b

    def lower(self, b, x, y):
        return b.logical_or(x, y)


@dataclass(frozen=True)
class LogicalNot(Logical, name="logical_not"):
    """not a."""

    arity = 1

    def reference(self, a):
        return ~a

    def lower(self, b, x):
        return b.logical_not(x)


@dataclass(frozen=True)
class Where(Pointwise, name="where"):
    """a where the condition holds, else b."""

    arity = 3
    exact = True

    def infer(self, *types: Type) -> Type:
        condition, a, b = types
        assert (a, condition) == (b, a.with_dtype(bool_)), f"where on {types}"
        return a

    def fold(self, inputs):
        condition, a, b = inputs
        if condition.op.origin is Origin.NUMBER:
            return a if condition.op.value else b
        return a if a is b else None

    def expand(self, condition, a, b):
        """A choice between a value and itself held fixed says where derivatives flow; what is
        expanded is differentiated no more."""
        return a if b.op.identity and b.inputs[0] is a else None

    def reference(self, condition, a, b):
        return np.where(condition, a, b)

    def lower(self, b, condition, x, y):
        return b.select(condition, x, y)

    def vjp(self, ct, out, condition, a, b):
        zero = zeros_like(ct)
        return None, where(condition, ct, zero), where(condition, zero, ct)


@dataclass(frozen=True)
class Cast(Pointwise, name="cast"):
    """Conversion to another dtype; between floats (and complex numbers) it carries derivatives.

    16-bit floats are rounded from their compute dtype, as torch does: from float64 in two steps.
    """

    holomorphic = False
    converts = True
    to: DType
    arity = 1
    exact = True

    def infer(self, source: Type) -> Type:
        return source.with_dtype(self.to)

    def fold(self, inputs):
        (x,) = inputs
        if x.type.dtype == self.to:
            return x
        if x.op.origin is Origin.NUMBER:
            with np.errstate(all="ignore"):
                value = self.reference(np.asarray(x.op.value, x.type.dtype.numpy))
            plain = value.astype(self.to.compute.numpy).item()
            return constant(plain, x.type.with_dtype(self.to))
        widened = isinstance(x.op, Cast) and x.inputs[0].type.dtype == self.to
        return x.inputs[0] if widened and _holds(x.type.dtype, self.to) else None

    def reference(self, x):
        # Complex to real keeps the real part; to bool, any non-zero number is true.
        parts = x.dtype.kind == "c" and self.to.kind not in "cb"
        x = x.real if parts else x
        if self.to.kind in "iu" and x.dtype.kind not in "iub":
            return truncated(x, self.to)
        return x.astype(self.to.compute.numpy).astype(self.to.numpy)

    def vjp(self, ct, out, x):
        return (cast(ct, x.type.dtype) if x.type.dtype.is_differentiable else None,)

    def jvp(self, tangents, out, x):
        return [] if tangents[0] is None else [self(tangents[0])]


def _holds(wide: DType, narrow: DType) -> bool:
    """Whether a round trip narrow -> wide -> narrow keeps every value."""
    return wide.is_float and narrow.is_float and wide.itemsize >= 2 * narrow.itemsize


add, sub, mul, div, neg = Add(), Sub(), Mul(), Div(), Neg()
maximum, minimum = Maximum(), Minimum()
eq, ne, lt, le, gt, ge = Eq(), Ne(), Lt(), Le(), Gt(), Ge()
logical_and, logical_or, logical_not = LogicalAnd(), LogicalOr(), LogicalNot()
where = Where()


def cast(x: Node, dtype: DType) -> Node:
    """`x` converted to `dtype`; `x` itself when it has it already."""
    return Cast(dtype)(x)
