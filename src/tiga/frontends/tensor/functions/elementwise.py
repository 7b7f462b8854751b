"""Functions element by element: arithmetic, comparison, logic, elementary functions."""

from collections.abc import Callable
from typing import Any

from tiga.frontends.tensor.arguments import OWN, serves_torch, torch_function
from tiga.frontends.tensor.build import as_tensor, binary, check_kind, convert, result, same, unary
from tiga.frontends.tensor.core import Tensor
from tiga.frontends.tensor.dtypes import as_float
from tiga.frontends.tensor.scalars import number
from tiga.ops import functions as f
from tiga.ops import pointwise as p
from tiga.ops import tensor_complex as c
from tiga.ops import tensor_functions as t
from tiga.ops.base import Op
from tiga.ops.leaf import ones_like as ones
from tiga.ops.leaf import zeros_like as zeros
from tiga.trace.node import Node

NUMERIC, REAL, INTEGER, BITS = "iufc", "iuf", "iu", "iub"
Function = Callable[..., Tensor]


def documented(function: Function, name: str, text: str) -> Function:
    """A function under a name, with a docstring; `text` is "What it is. [operands] -> [values]"."""
    function.__name__ = function.__qualname__ = name
    law, _, example = text.partition(" [")
    given, values = example.split(" -> ")
    first, _, others = given.partition("]")
    function.__doc__ = _DOC.format(law=law, name=name, first=first, others=others, values=values)
    return function


_DOC = """{law}

Element by element. Native tensors, numbers and both mixed give a native tensor; where an operand
is a torch tensor, torch's function is called.

Example:
    >>> import tiga as tg
    >>> tg.{name}(tg.tensor([{first}]){others}).tolist()
    {values}
"""


def _unary(
    name: str, op: Op, text: str, kinds: str | None = None, floats: bool = False
) -> Function:
    def call(x: Any, /) -> Any:
        if x.__class__ is not Tensor and (other := torch_function((x,), name)):
            return other(x)
        return unary(op, x, kinds, floats=floats)

    return documented(call, name, text)


def _binary(name: str, op: Op, text: str, kinds: str | None = None) -> Function:
    def call(x1: Any, x2: Any, /) -> Any:
        known = x1.__class__ in OWN and x2.__class__ in OWN
        if not known and (other := torch_function((x1, x2), name)):
            return other(x1, x2)
        return binary(op, x1, x2, kinds)

    return documented(call, name, text)


def composed(
    name: str, text: str, rule: Callable[[Node], Node], floats: bool = True,
    kinds: str | None = None,
) -> Function:  # fmt: skip
    """A function of one operand built from several ops."""

    def call(x: Any, /) -> Any:
        tensor = as_tensor(x)
        dtype = as_float(tensor.dtype) if floats else tensor.dtype
        check_kind(name, dtype, kinds)
        return result(rule(convert(tensor._node, dtype)), tensor)

    return serves_torch(documented(call, name, text))


add = _binary("add", p.add, "x1 + x2. [1, 2], 3 -> [4, 5]", NUMERIC)
subtract = _binary("subtract", p.sub, "x1 - x2. [1, 2], 3 -> [-2, -1]", NUMERIC)
multiply = _binary("multiply", p.mul, "x1 * x2. [1, 2], 3 -> [3, 6]", NUMERIC)
equal = _binary("equal", p.eq, "x1 == x2. [1, 2], 2 -> [False, True]")
not_equal = _binary("not_equal", p.ne, "x1 != x2. [1, 2], 2 -> [True, False]")
less = _binary("less", p.lt, "x1 < x2. [1, 2, 3], 2 -> [True, False, False]", REAL + "b")
less_equal = _binary(
    "less_equal", p.le, "x1 <= x2. [1, 2, 3], 2 -> [True, True, False]", REAL + "b"
)
greater = _binary("greater", p.gt, "x1 > x2. [1, 2, 3], 2 -> [False, False, True]", REAL + "b")
greater_equal = _binary(
    "greater_equal", p.ge, "x1 >= x2. [1, 2, 3], 2 -> [False, True, True]", REAL + "b"
)
maximum = _binary(
    "maximum", p.maximum, "The larger operand, NaN if either is. [1, 4], 3 -> [3, 4]", REAL
)
minimum = _binary(
    "minimum", p.minimum, "The smaller operand, NaN if either is. [1, 4], 3 -> [1, 3]", REAL
)
floor_divide = _binary(
    "floor_divide", t.floor_divide, "floor(x1 / x2). [7, -7], 2 -> [3, -4]", REAL
)
remainder = _binary(
    "remainder", t.remainder, "x1 - x2 * floor(x1 / x2), signed as x2. [7, -7], 3 -> [1, 2]", REAL
)
fmod = _binary(
    "fmod", f.rem, "The remainder of x1 / x2, signed as x1. [7.0, -7.0], 3.0 -> [1.0, -1.0]", "f"
)
atan2 = _binary(
    "atan2",
    t.atan2,
    "The angle of the point (x2, x1). [1.0, -1.0], 1.0 -> [0.7853..., -0.7853...]",
    "f",
)
hypot = _binary(
    "hypot", t.hypot, "sqrt(x1² + x2²) without overflow. [3.0, 8.0], 4.0 -> [5.0, 8.9442...]", "f"
)
logaddexp = _binary(
    "logaddexp",
    t.logaddexp,
    "log(exp(x1) + exp(x2)) without overflow. [0.0, 1000.0], 0.0 -> [0.6931..., 1000.0]",
    "f",
)
copysign = _binary(
    "copysign", f.copysign, "|x1| with the sign of x2. [1.0, 2.0], -1.0 -> [-1.0, -2.0]", "f"
)
nextafter = _binary(
    "nextafter", t.nextafter, "The number after x1 towards x2. [0.0], 1.0 -> [1.4012...e-45]", "f"
)
bitwise_and = _binary("bitwise_and", t.bitwise_and, "x1 & x2. [5, 6], 3 -> [1, 2]", BITS)
bitwise_or = _binary("bitwise_or", t.bitwise_or, "x1 | x2. [5, 6], 3 -> [7, 7]", BITS)
bitwise_xor = _binary("bitwise_xor", t.bitwise_xor, "x1 ^ x2. [5, 6], 3 -> [6, 5]", BITS)
bitwise_left_shift = _binary(
    "bitwise_left_shift", t.shift_left, "x1 << x2. [1, 3], 2 -> [4, 12]", INTEGER
)
bitwise_right_shift = _binary(
    "bitwise_right_shift", t.shift_right, "x1 >> x2. [4, 13], 2 -> [1, 3]", INTEGER
)
bitwise_invert = _unary("bitwise_invert", t.bitwise_invert, "~x. [0, 5] -> [-1, -6]", BITS)

exp = _unary("exp", f.exp, "e to the power x. [0, 1] -> [1.0, 2.7182...]", floats=True)
expm1 = _unary(
    "expm1", f.expm1, "exp(x) - 1, accurate near 0. [0, 1] -> [0.0, 1.7182...]", floats=True
)
log = _unary("log", f.log, "The natural logarithm. [1, 10] -> [0.0, 2.3025...]", floats=True)
log1p = _unary(
    "log1p", f.log1p, "log(1 + x), accurate near 0. [0, 1] -> [0.0, 0.6931...]", floats=True
)
log2 = _unary("log2", t.log2, "The logarithm to base 2. [1, 8] -> [0.0, 3.0]", floats=True)
log10 = _unary("log10", t.log10, "The logarithm to base 10. [1, 10] -> [0.0, 1.0]", floats=True)
sqrt = _unary("sqrt", f.sqrt, "The square root. [4, 2] -> [2.0, 1.4142...]", floats=True)
sin = _unary("sin", f.sin, "The sine. [0, 1] -> [0.0, 0.8414...]", floats=True)
cos = _unary("cos", f.cos, "The cosine. [0, 1] -> [1.0, 0.5403...]", floats=True)
tan = _unary("tan", t.tan, "The tangent. [0, 1] -> [0.0, 1.5574...]", floats=True)
asin = _unary("asin", t.asin, "The inverse sine. [0, 1] -> [0.0, 1.5707...]", floats=True)
acos = _unary("acos", t.acos, "The inverse cosine. [1, 0] -> [0.0, 1.5707...]", floats=True)
atan = _unary("atan", t.atan, "The inverse tangent. [0, 1] -> [0.0, 0.7853...]", floats=True)
sinh = _unary("sinh", t.sinh, "The hyperbolic sine. [0, 1] -> [0.0, 1.1752...]", floats=True)
cosh = _unary("cosh", t.cosh, "The hyperbolic cosine. [0, 1] -> [1.0, 1.5430...]", floats=True)
tanh = _unary("tanh", f.tanh, "The hyperbolic tangent. [0, 1] -> [0.0, 0.7615...]", floats=True)
asinh = _unary(
    "asinh", t.asinh, "The inverse hyperbolic sine. [0, 1] -> [0.0, 0.8813...]", floats=True
)
acosh = _unary(
    "acosh", t.acosh, "The inverse hyperbolic cosine. [1, 2] -> [0.0, 1.3169...]", floats=True
)
atanh = _unary(
    "atanh", t.atanh, "The inverse hyperbolic tangent. [0.0, 0.5] -> [0.0, 0.5493...]", floats=True
)
erf = _unary("erf", f.erf, "The error function. [0, 1] -> [0.0, 0.8427...]", "f", floats=True)
sigmoid = _unary(
    "sigmoid", f.sigmoid, "1 / (1 + exp(-x)). [0, 1] -> [0.5, 0.7310...]", "f", floats=True
)
negative = _unary("negative", p.neg, "-x. [1, -2] -> [-1, 2]", NUMERIC)


def _rounding(name: str, op: Op, text: str, kinds: str = "f") -> Function:
    def call(x: Any, /) -> Any:
        tensor = as_tensor(x)
        return same(tensor) if tensor.dtype.kind in "iu" else unary(op, tensor, kinds)

    return serves_torch(documented(call, name, text))


floor = _rounding("floor", f.floor, "The largest integer not above x. [1.5, -1.5] -> [1.0, -2.0]")
ceil = _rounding("ceil", f.ceil, "The smallest integer not below x. [1.5, -1.5] -> [2.0, -1.0]")
trunc = _rounding("trunc", f.trunc, "x without its fraction. [1.5, -1.5] -> [1.0, -1.0]")
round = _rounding(
    "round",
    f.roundeven,
    "The nearest integer, ties to even. [0.5, 1.5, 2.6] -> [0.0, 2.0, 3.0]",
    "fc",
)


def _zero_where(condition: Node, value: Node) -> Node:
    return p.where(condition, zeros(value), value)


def _square(x: Node) -> Node:
    return p.mul(x, x)


def _gelu(x: Node) -> Node:
    # 1 + erf(x) vanishes below 0: in 16 bits, rounded at every step, little of it would be left.
    wide = convert(x, x.type.dtype.compute)
    half = p.mul(wide, number(0.5, wide.type))
    scaled = p.mul(wide, number(0.7071067811865476, wide.type))
    return convert(p.mul(half, p.add(ones(wide), f.erf(scaled))), x.type.dtype)


def _softplus(x: Node) -> Node:
    # log(1 + exp(x)) = max(x, 0) + log(1 + exp(-|x|)), which never overflows.
    return t.logaddexp(x, zeros(x))


square = composed("square", "x * x. [3, -4] -> [9, 16]", _square, floats=False)
reciprocal = composed("reciprocal", "1 / x. [2, 4] -> [0.5, 0.25]", lambda x: p.div(ones(x), x))
rsqrt = composed(
    "rsqrt", "1 / sqrt(x). [4.0, 16.0] -> [0.5, 0.25]", lambda x: p.div(ones(x), f.sqrt(x))
)
relu = composed(
    "relu", "max(x, 0), with derivative 0 at 0; NaN stays. [-1, 2] -> [0, 2]",
    lambda x: _zero_where(p.le(x, zeros(x)), x), floats=False, kinds=REAL,
)  # fmt: skip
silu = composed(
    "silu", "x * sigmoid(x). [0, 1] -> [0.0, 0.7310...]", lambda x: p.mul(x, f.sigmoid(x))
)
gelu = composed(
    "gelu",
    "x times the normal distribution function of x. [0, 1] -> [0.0, 0.8413...]",
    _gelu,
    kinds="f",
)
softplus = composed(
    "softplus",
    "log(1 + exp(x)) without overflow. [0, 1000] -> [0.6931..., 1000.0]",
    _softplus,
    kinds="f",
)


def _is_nan(x: Node) -> Node:
    return p.ne(x, x)


def magnitude(x: Node) -> Node:
    """|x|, real for complex numbers."""
    if x.type.dtype.is_complex:
        return t.hypot(c.real(x), c.imag(x))
    return f.abs_(x)


def _compare_magnitude(op: Op, x: Node) -> Node:
    size = magnitude(x)
    return op(size, number(float("inf"), size.type))


def _is_inf(x: Node) -> Node:
    if not x.type.dtype.is_complex:
        return _compare_magnitude(p.eq, x)
    return p.logical_or(_is_inf(c.real(x)), _is_inf(c.imag(x)))


def _is_finite(x: Node) -> Node:
    if not x.type.dtype.is_complex:
        return _compare_magnitude(p.lt, x)
    return p.logical_and(_is_finite(c.real(x)), _is_finite(c.imag(x)))


isnan = composed(
    "isnan", "Whether x is not a number. [1.0, float('nan')] -> [False, True]", _is_nan
)
isinf = composed("isinf", "Whether x is infinite. [1.0, float('inf')] -> [False, True]", _is_inf)
isfinite = composed(
    "isfinite", "Whether x is a finite number. [1.0, float('inf')] -> [True, False]", _is_finite
)


def _signbit(x: Node) -> Node:
    signed = f.copysign(ones(x), x)
    return p.lt(signed, zeros(x))


signbit = composed(
    "signbit",
    "Whether x has a minus sign, that of -0 included. [1.0, -0.0] -> [False, True]",
    _signbit,
    kinds="f",
)
