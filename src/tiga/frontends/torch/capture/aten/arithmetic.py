"""ATen arithmetic, comparisons, logic and selection."""

from typing import Any

from tiga.frontends.torch.capture.aten.table import (
    Call,
    Value,
    aligned,
    arithmetic,
    as_node,
    aten,
    operands,
    promoted,
    to_dtype,
    wide,
)
from tiga.frontends.torch.dtypes import default_float
from tiga.ops import pointwise as p
from tiga.ops import tensor_functions as t
from tiga.ops.functions import abs_, copysign, floor, pow_, rem, sqrt, trunc
from tiga.ops.leaf import constant, ones_like, stop_gradient, zeros_like
from tiga.trace.node import Node
from tiga.types import DType, bool_, int8, int32, uint8


def scaled(x: Node, factor: Value) -> Node:
    """`factor * x` in the dtype of `x`; `x` itself for 1."""
    if not isinstance(factor, Node):
        return x if factor == 1 else p.mul(x, constant(factor, x.type))
    return p.mul(x, factor)


def _sum(call: Call, a: Value, b: Value, alpha: Value, sign: Any) -> Node:
    out = promoted(call, a, b)
    if out == bool_:
        return p.logical_or(*operands(call, a, b, dtype=bool_))
    x, y = operands(call, a, b, dtype=out.compute)
    if isinstance(alpha, Node):
        (x, y, factor) = aligned(call, x, y, as_node(alpha, out.compute))
        return p.cast(sign(x, p.mul(y, factor)), out)
    return p.cast(sign(x, scaled(y, alpha)), out)


@aten("add.Tensor", "add.Scalar")
def _add(call: Call, a: Value, b: Value, alpha: Value = 1) -> Node:
    return _sum(call, a, b, alpha, p.add)


@aten("sub.Tensor", "sub.Scalar")
def _sub(call: Call, a: Value, b: Value, alpha: Value = 1) -> Node:
    return _sum(call, a, b, alpha, p.sub)


@aten("rsub.Tensor", "rsub.Scalar")
def _rsub(call: Call, a: Value, b: Value, alpha: Value = 1) -> Node:
    return _sum(call, b, a, alpha, p.sub)


@aten("mul.Tensor", "mul.Scalar")
def _mul(call: Call, a: Value, b: Value) -> Node:
    if promoted(call, a, b) == bool_:
        return p.logical_and(*operands(call, a, b, dtype=bool_))
    return arithmetic(call, p.mul, a, b)


def quotient_type(call: Call, a: Value, b: Value) -> DType:
    """The dtype of a quotient: torch's default float for integers."""
    out = promoted(call, a, b)
    return out if out.is_float else default_float()


@aten("div.Tensor", "div.Scalar", "true_divide.Tensor")
def _div(call: Call, a: Value, b: Value) -> Node:
    return arithmetic(call, p.div, a, b, dtype=quotient_type(call, a, b))


@aten("div.Tensor_mode", "div.Scalar_mode")
def _div_mode(call: Call, a: Value, b: Value, rounding_mode: str | None = None) -> Node:
    if rounding_mode is None:
        return _div(call, a, b)
    return arithmetic(call, floor_divide if rounding_mode == "floor" else _trunc_divide, a, b)


def _trunc_divide(a: Node, b: Node) -> Node:
    if not a.type.dtype.is_float:
        return p.div(a, b)
    return trunc(p.div(a, b))


def _adjusts(remainder: Node, b: Node) -> Node:
    """Where C's remainder and Python's differ: nonzero, with another sign than the divisor."""
    zero = zeros_like(b)
    below, divisor_below = p.lt(remainder, zero), p.lt(b, zero)
    differs = p.logical_or(
        p.logical_and(below, p.logical_not(divisor_below)),
        p.logical_and(p.logical_not(below), divisor_below),
    )
    return p.logical_and(p.ne(remainder, zero), differs)


def floor_divide(a: Node, b: Node) -> Node:
    """Python's `//`: exact also where a / b rounds up to an integer. A step function."""
    remainder = rem(a, b)
    one = ones_like(a)
    if not a.type.dtype.is_float:
        whole = p.div(a, b)
        return p.where(_adjusts(remainder, b), p.sub(whole, one), whole)
    quotient = p.div(p.sub(a, remainder), b)
    quotient = p.where(_adjusts(remainder, b), p.sub(quotient, one), quotient)
    lower = floor(quotient)
    near = p.gt(p.sub(quotient, lower), constant(0.5, a.type))
    result = p.where(near, p.add(lower, one), lower)
    return stop_gradient(p.where(p.eq(b, zeros_like(b)), p.div(a, b), result))


def remainder(a: Node, b: Node) -> Node:
    """Python's `%`."""
    result = rem(a, b)
    return p.where(_adjusts(result, b), p.add(result, b), result)


def power(x: Node, exponent: Value) -> Node:
    """x to a constant power, by multiplication where torch multiplies."""
    if isinstance(exponent, Node):
        return pow_(x, exponent)
    if exponent in (0, 1, 2, 3):
        return [ones_like(x), x, p.mul(x, x), p.mul(p.mul(x, x), x)][int(exponent)]
    if x.type.dtype.is_float and exponent == 0.5:
        return sqrt(x)
    if x.type.dtype.is_float and exponent in (-0.5, -1, -2):
        return p.div(ones_like(x), power(x, -exponent))
    return pow_(x, constant(exponent, x.type))


def _integer_power(call: Call, x: Node, exponent: Value) -> Node:
    whole = isinstance(exponent, int) and 0 <= exponent <= 64
    if not whole:
        raise call.unfusable("an integer raised to this power")
    result = ones_like(x)
    for _ in range(int(exponent)):  # type: ignore[arg-type]
        result = p.mul(result, x)
    return result


@aten("pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar")
def _pow(call: Call, a: Value, b: Value) -> Node:
    out = promoted(call, a, b)
    if not out.is_float:
        x = as_node(a, out)
        return _integer_power(call, x, b)
    if isinstance(b, Node):
        return arithmetic(call, pow_, a, b, dtype=out)
    return p.cast(power(as_node(a, out.compute), b), out)


def _computed(op: Any) -> Any:
    """The handler of an op on two numbers that is computed wide and rounded once."""
    return lambda call, a, b: arithmetic(call, op, a, b)


def _computed_as_float(op: Any) -> Any:
    return lambda call, a, b: arithmetic(call, op, a, b, dtype=quotient_type(call, a, b))


def _as_given(op: Any) -> Any:
    """The handler of an op that loses nothing in the dtype of its operands."""
    return lambda call, a, b: op(*operands(call, a, b, dtype=promoted(call, a, b)))


def _compared(op: Any) -> Any:
    def handler(call: Call, a: Value, b: Value) -> Node:
        dtype = promoted(call, a, b)
        # The scalar arithmetic compares numbers.
        return op(*operands(call, a, b, dtype=int8 if dtype == bool_ else dtype))

    return handler


def _logical(op: Any) -> Any:
    return lambda call, a, b: op(*operands(call, a, b, dtype=bool_))


def _differ(x: Node, y: Node) -> Node:
    return p.logical_and(p.logical_or(x, y), p.logical_not(p.logical_and(x, y)))


OF_TWO: tuple[tuple[Any, dict[Any, tuple[str, ...]]], ...] = (
    (_computed, {
        floor_divide: ("floor_divide", "floor_divide.Scalar"),
        remainder: ("remainder.Tensor", "remainder.Scalar", "remainder.Scalar_Tensor"),
        rem: ("fmod.Tensor", "fmod.Scalar"), t.hypot: ("hypot",), t.logaddexp: ("logaddexp",),
    }),
    (_computed_as_float, {
        copysign: ("copysign.Tensor", "copysign.Scalar"), t.atan2: ("atan2",),
    }),
    (_as_given, {
        p.maximum: ("maximum", "max.other"), p.minimum: ("minimum", "min.other"),
    }),
    (_compared, {
        getattr(p, name): (f"{name}.Tensor", f"{name}.Scalar")
        for name in ("eq", "ne", "lt", "le", "gt", "ge")
    }),
    (_logical, {
        p.logical_and: ("logical_and",), p.logical_or: ("logical_or",), _differ: ("logical_xor",),
    }),
)  # fmt: skip
"""Ops on two operands, by what becomes of these, with the overloads that mean them."""

for _handler, _ops in OF_TWO:
    for _op, _names in _ops.items():
        aten(*_names)(_handler(_op))


def safe_sqrt(x: Node) -> Node:
    """The square root of x >= 0, with derivative 0 at 0."""
    zero = zeros_like(x)
    positive = p.ne(x, zero)
    return p.where(positive, sqrt(p.where(positive, x, ones_like(x))), zero)


@aten("addcmul")
def _addcmul(call: Call, a: Value, b: Value, c: Value, value: Value = 1) -> Node:
    def fused(x: Node, y: Node, z: Node) -> Node:
        return p.add(x, p.mul(scaled(y, value), z))

    return arithmetic(call, fused, a, b, c)


@aten("addcdiv")
def _addcdiv(call: Call, a: Value, b: Value, c: Value, value: Value = 1) -> Node:
    def fused(x: Node, y: Node, z: Node) -> Node:
        return p.add(x, scaled(p.div(y, z), value))

    return arithmetic(call, fused, a, b, c)


@aten("lerp.Scalar", "lerp.Tensor")
def _lerp(call: Call, start: Value, end: Value, weight: Value) -> Node:
    def lerp(a: Node, b: Node, w: Node) -> Node:
        distance = p.sub(b, a)
        near = p.lt(abs_(w), constant(0.5, w.type))
        from_end = p.sub(b, p.mul(distance, p.sub(ones_like(w), w)))
        return p.where(near, p.add(a, p.mul(w, distance)), from_end)

    return arithmetic(call, lerp, start, end, weight, dtype=promoted(call, start, end))


@aten("logical_not")
def _logical_not(call: Call, a: Node) -> Node:
    return p.logical_not(to_dtype(a, bool_))


def _register_bitwise(name: str, op: Any, logical: Any) -> None:
    @aten(f"bitwise_{name}.Tensor", f"bitwise_{name}.Scalar")
    def bitwise(call: Call, a: Value, b: Value) -> Node:
        out = promoted(call, a, b)
        return logical(call, a, b) if out == bool_ else op(*operands(call, a, b, dtype=out))


_register_bitwise("and", t.bitwise_and, _logical(p.logical_and))
_register_bitwise("or", t.bitwise_or, _logical(p.logical_or))
_register_bitwise("xor", t.bitwise_xor, _logical(_differ))


def _register_shift(name: str, symbol: str, op: Any) -> None:
    @aten(f"{name}.Tensor", f"{name}.Tensor_Scalar", f"{name}.Scalar_Tensor")
    @aten(f"{symbol}.Tensor", f"{symbol}.Scalar")
    def shift(call: Call, a: Value, b: Value) -> Node:
        out = promoted(call, a, b)
        # Registers take bytes for signed ones.
        inner = int32 if out == uint8 else out
        return p.cast(op(*operands(call, a, b, dtype=inner)), out)


_register_shift("bitwise_left_shift", "__lshift__", t.shift_left)
_register_shift("bitwise_right_shift", "__rshift__", t.shift_right)


@aten("bitwise_not")
def _bitwise_not(call: Call, a: Node) -> Node:
    return p.logical_not(a) if a.type.dtype == bool_ else t.bitwise_invert(a)


@aten("where.self", "where.ScalarOther", "where.ScalarSelf", "where.Scalar")
def _where(call: Call, condition: Node, a: Value, b: Value) -> Node:
    out = promoted(call, a, b)
    keep, x, y = aligned(call, to_dtype(condition, bool_), as_node(a, out), as_node(b, out))
    return p.where(keep, x, y)


@aten("masked_fill.Scalar", "masked_fill.Tensor")
def _masked_fill(call: Call, x: Node, mask: Node, value: Value) -> Node:
    keep, a, b = aligned(call, mask, as_node(value, x.type.dtype), x)
    return p.where(keep, a, b)


@aten("isnan")
def _isnan(call: Call, x: Node) -> Node:
    return p.ne(x, x)


@aten("isinf")
def _isinf(call: Call, x: Node) -> Node:
    x = wide(x)
    return p.eq(abs_(x), constant(float("inf"), x.type))


@aten("isfinite")
def _isfinite(call: Call, x: Node) -> Node:
    x = wide(x)
    return p.lt(abs_(x), constant(float("inf"), x.type))
