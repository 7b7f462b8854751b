"""ATen functions and activations, element by element.

Every branch that `where` leaves out is kept finite, because a derivative multiplies it by zero.
"""

import math
from typing import Any

import ml_dtypes
import numpy as np

from tiga.frontends.torch.capture.aten.arithmetic import power, scaled
from tiga.frontends.torch.capture.aten.table import (
    Call,
    Value,
    aligned,
    arithmetic,
    as_node,
    aten,
    feature_axis,
    floating,
    is_number,
    promoted,
    wide,
)
from tiga.ops import functions as f
from tiga.ops import pointwise as p
from tiga.ops import tensor_functions as t
from tiga.ops.feature import reshape, take
from tiga.ops.leaf import constant, ones_like, zeros_like
from tiga.trace.node import Node

EXACT_SOFTPLUS = 40.0
"""Above this, log1p(exp(x)) is x in every float type."""


def const(x: Node, value: float) -> Node:
    """The number in the type of `x`."""
    return constant(value, x.type)


def _same(function: Any) -> Any:
    """A handler for a function that keeps integers as they are."""

    def handler(call: Call, x: Node) -> Node:
        return function(x)

    return handler


def _function(function: Any) -> Any:
    """A handler for a function with float results, computed wide and rounded once."""

    def handler(call: Call, x: Node) -> Node:
        return p.cast(function(wide(x)), floating(x))

    return handler


def _stepped(function: Any) -> Any:
    """A handler for a rounding function, the identity on integers."""

    def handler(call: Call, x: Node) -> Node:
        return function(x) if x.type.dtype.is_float else x

    return handler


def reciprocal(x: Node) -> Node:
    return p.div(ones_like(x), x)


def rsqrt(x: Node) -> Node:
    return p.div(ones_like(x), f.sqrt(x))


def relu(x: Node) -> Node:
    """max(x, 0): NaN passes, and the derivative at 0 is 0."""
    zero = zeros_like(x)
    return p.where(p.le(x, zero), zero, x)


def sigmoid(x: Node) -> Node:
    return f.sigmoid(x)


def silu(x: Node) -> Node:
    return p.mul(x, f.sigmoid(x))


def softplus(x: Node, beta: float = 1.0, threshold: float = EXACT_SOFTPLUS) -> Node:
    """log1p(exp(beta x)) / beta, and x above the threshold."""
    steep = scaled(x, beta)
    large = p.gt(steep, const(x, threshold))
    value = f.log1p(f.exp(p.where(large, zeros_like(x), steep)))
    return p.where(large, x, value if beta == 1 else p.div(value, const(x, beta)))


def mish(x: Node) -> Node:
    return p.mul(x, f.tanh(softplus(x)))


def log_sigmoid(x: Node) -> Node:
    return p.neg(softplus(p.neg(x)))


def hardsigmoid(x: Node) -> Node:
    zero, one = zeros_like(x), ones_like(x)
    inner = p.div(p.add(x, const(x, 3)), const(x, 6))
    upper = p.where(p.ge(x, const(x, 3)), one, inner)
    return p.where(p.le(x, const(x, -3)), zero, upper)


def hardswish(x: Node) -> Node:
    inner = p.div(p.mul(x, p.add(x, const(x, 3))), const(x, 6))
    upper = p.where(p.ge(x, const(x, 3)), x, inner)
    return p.where(p.le(x, const(x, -3)), zeros_like(x), upper)


def _log_base(base: float) -> Any:
    def log(x: Node) -> Node:
        return p.mul(f.log(x), const(x, 1 / math.log(base)))

    return log


def exp2(x: Node) -> Node:
    return f.exp(p.mul(x, const(x, math.log(2))))


def square(x: Node) -> Node:
    return p.mul(x, x)


FUNCTIONS = {
    "exp": f.exp, "exp2": exp2, "expm1": f.expm1, "log": f.log, "log1p": f.log1p,
    "log2": _log_base(2), "log10": _log_base(10), "sqrt": f.sqrt, "rsqrt": rsqrt,
    "reciprocal": reciprocal, "sin": f.sin, "cos": f.cos, "tan": t.tan, "sinh": t.sinh,
    "cosh": t.cosh, "asin": t.asin, "acos": t.acos, "atan": t.atan, "tanh": f.tanh, "erf": f.erf,
    "erfc": f.erfc, "special_erf": f.erf, "special_erfc": f.erfc, "sigmoid": sigmoid, "silu": silu,
    "mish": mish, "hardsigmoid": hardsigmoid, "hardswish": hardswish,
}  # fmt: skip
SAME = {"abs": f.abs_, "neg": p.neg, "relu": relu, "sign": f.sign, "sgn": f.sign, "square": square}
STEPPED = {"floor": f.floor, "ceil": f.ceil, "trunc": f.trunc, "round": f.roundeven}

for _table, _wrap in ((FUNCTIONS, _function), (SAME, _same), (STEPPED, _stepped)):
    for _name, _op in _table.items():
        aten(_name)(_wrap(_op))


@aten("frac")
def _frac(call: Call, x: Node) -> Node:
    return p.sub(x, f.trunc(x))


@aten("log_sigmoid_forward")
def _log_sigmoid(call: Call, x: Node) -> tuple[Node, None]:
    return p.cast(log_sigmoid(wide(x)), x.type.dtype), None


@aten("gelu")
def _gelu(call: Call, x: Node, approximate: str = "none") -> Node:
    y = wide(x)
    half = p.mul(const(y, 0.5), y)
    if approximate == "tanh":
        cubic = p.mul(const(y, 0.044715), p.mul(p.mul(y, y), y))
        bent = f.tanh(p.mul(const(y, math.sqrt(2 / math.pi)), p.add(y, cubic)))
    else:
        bent = f.erf(p.mul(y, const(y, math.sqrt(0.5))))
    return p.cast(p.mul(half, p.add(ones_like(y), bent)), x.type.dtype)


@aten("softplus")
def _softplus(call: Call, x: Node, beta: float = 1, threshold: float = 20) -> Node:
    return p.cast(softplus(wide(x), beta, threshold), floating(x))


@aten("leaky_relu")
def _leaky_relu(call: Call, x: Node, negative_slope: Value = 0.01) -> Node:
    def leaky(y: Node, slope: Node) -> Node:
        return p.where(p.gt(y, zeros_like(y)), y, p.mul(y, slope))

    return arithmetic(call, leaky, x, negative_slope, dtype=floating(x))


@aten("elu")
def _elu(call: Call, x: Node, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Node:
    y = wide(x)
    low = p.le(y, zeros_like(y))
    bent = f.expm1(scaled(p.where(low, y, zeros_like(y)), input_scale))
    result = p.where(low, scaled(bent, alpha * scale), scaled(y, scale))
    return p.cast(result, floating(x))


@aten("celu")
def _celu(call: Call, x: Node, alpha: float = 1.0) -> Node:
    return _elu(call, x, alpha, 1.0, 1.0 / alpha)


@aten("selu")
def _selu(call: Call, x: Node) -> Node:
    return _elu(call, x, 1.6732632423543772, 1.0507009873554805)


@aten("hardtanh")
def _hardtanh(call: Call, x: Node, min_val: float = -1, max_val: float = 1) -> Node:
    return _flat_outside(x, min_val, max_val)


@aten("relu6")
def _relu6(call: Call, x: Node) -> Node:
    return _flat_outside(x, 0, 6)


def _flat_outside(x: Node, low: float, high: float) -> Node:
    """Clamping whose derivative at the bounds is 0."""
    lower, upper = const(x, low), const(x, high)
    return p.where(p.le(x, lower), lower, p.where(p.ge(x, upper), upper, x))


@aten("threshold")
def _threshold(call: Call, x: Node, threshold: float, value: float) -> Node:
    return p.where(p.le(x, const(x, threshold)), const(x, value), x)


@aten("hardshrink")
def _hardshrink(call: Call, x: Node, lambd: float = 0.5) -> Node:
    inside = p.logical_and(p.ge(x, const(x, -lambd)), p.le(x, const(x, lambd)))
    return p.where(inside, zeros_like(x), x)


@aten("softshrink")
def _softshrink(call: Call, x: Node, lambd: float = 0.5) -> Node:
    y = wide(x)
    bound = const(y, lambd)
    low = p.where(p.lt(y, p.neg(bound)), p.add(y, bound), p.mul(y, zeros_like(y)))
    return p.cast(p.where(p.gt(y, bound), p.sub(y, bound), low), x.type.dtype)


@aten("_prelu_kernel")
def _prelu(call: Call, x: Node, weight: Node) -> Node:
    return _leaky_relu(call, x, weight)


@aten("glu")
def _glu(call: Call, x: Node, dim: int = -1) -> Node:
    axis = feature_axis(call, x, dim)
    half = x.type.shape[axis] // 2
    y = wide(x)
    value = take(y, axis, tuple(range(half)))
    gate = take(y, axis, tuple(range(half, 2 * half)))
    return p.cast(p.mul(value, f.sigmoid(gate)), x.type.dtype)


def _clamp(call: Call, x: Node, low: Value | None, high: Value | None) -> Node:
    """Passes the derivative at the bounds, as torch does."""
    given = [v for v in (low, high) if v is not None]
    out = promoted(call, x, *given)
    result = as_node(x, out)
    if low is not None:
        result, bound = aligned(call, result, as_node(low, out))
        result = p.where(_below(call, result, bound, low), bound, result)
    if high is not None:
        result, bound = aligned(call, result, as_node(high, out))
        result = p.where(_below(call, bound, result, high, bound), bound, result)
    return result


def _below(call: Call, a: Node, b: Node, given: Value, bound: Node | None = None) -> Node:
    """a < b; true also where a tensor bound is NaN, which then shows in the result."""
    less = p.lt(a, b)
    bound = b if bound is None else bound
    if is_number(call, given) or not bound.type.dtype.is_float:
        return less
    return p.logical_or(less, p.ne(bound, bound))


@aten("clamp", "clamp.Tensor", "clip", "clip.Tensor")
def _clamp_both(call: Call, x: Node, min: Value | None = None, max: Value | None = None) -> Node:
    return _clamp(call, x, min, max)


@aten("clamp_min", "clamp_min.Tensor")
def _clamp_min(call: Call, x: Node, min: Value) -> Node:
    return _clamp(call, x, min, None)


@aten("clamp_max", "clamp_max.Tensor")
def _clamp_max(call: Call, x: Node, max: Value) -> Node:
    return _clamp(call, x, None, max)


@aten("nan_to_num")
def _nan_to_num(
    call: Call,
    x: Node,
    nan: float | None = None,
    posinf: float | None = None,
    neginf: float | None = None,
) -> Node:
    if not x.type.dtype.is_float:
        return x
    largest = _largest(x)
    infinity = const(x, math.inf)
    result = p.where(p.ne(x, x), const(x, nan or 0.0), x)
    high = const(x, largest if posinf is None else posinf)
    low = const(x, -largest if neginf is None else neginf)
    result = p.where(p.eq(x, infinity), high, result)
    return p.where(p.eq(x, p.neg(infinity)), low, result)


def _largest(x: Node) -> float:
    dtype = x.type.dtype.numpy
    return float(ml_dtypes.finfo(dtype).max if x.type.dtype.itemsize == 2 else np.finfo(dtype).max)


@aten("xlogy.Tensor", "xlogy.Scalar_Other", "xlogy.Scalar_Self")
def _xlogy(call: Call, a: Value, b: Value) -> Node:
    def xlogy(x: Node, y: Node) -> Node:
        none = p.eq(x, zeros_like(x))
        return p.mul(x, f.log(p.where(none, ones_like(y), y)))

    return arithmetic(call, xlogy, a, b)


@aten("native_batch_norm", "_native_batch_norm_legit", "_native_batch_norm_legit_no_training")
def _batch_norm(call: Call, x: Node, weight: Node | None, bias: Node | None, mean: Node,
                var: Node, *options: Any) -> tuple[Node, None, None]:  # fmt: skip
    """Fixed statistics only: batch statistics would mix edges."""
    training = len(options) == 3 and options[0]
    if training:
        raise call.refuse_axis("BatchNorm in train mode takes statistics over")
    eps = options[-1]
    y = wide(x)
    channels = (x.type.shape[0], *(1,) * (len(x.type.shape) - 1))

    def per_channel(v: Node) -> Node:
        return reshape(wide(v), channels)

    scale = power(p.add(wide(var), const(wide(var), eps)), -0.5)
    y, m, s = aligned(call, y, per_channel(mean), per_channel(scale))
    y = p.mul(p.sub(y, m), s)
    for value, op in ((weight, p.mul), (bias, p.add)):
        if value is not None:
            y = op(*aligned(call, y, per_channel(value)))
    return p.cast(y, x.type.dtype), None, None
