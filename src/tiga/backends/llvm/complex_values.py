"""Complex numbers in registers: arithmetic and functions on pairs of real lanes."""

from collections.abc import Callable
from functools import partial

from torch_mlir import ir
from torch_mlir.dialects import arith

from tiga.backends.llvm.arithmetic import VectorArithmetic
from tiga.ops import complex_parts

A = VectorArithmetic()
Value = tuple[ir.Value, ...]


def _number(value: float, like: ir.Value) -> ir.Value:
    return A.constant(value, like)


def _is_infinite(a: ir.Value) -> ir.Value:
    return A.compare("eq", A.abs(a), _number(float("inf"), a))


def hypot(a: ir.Value, b: ir.Value) -> ir.Value:
    """sqrt(a² + b²) from the ratio of the smaller to the larger; infinite if either is."""
    x, y = A.abs(a), A.abs(b)
    less = A.compare("lt", x, y)
    large, small = A.select(less, y, x), A.select(less, x, y)
    ratio = A.div(small, large)
    length = A.mul(large, A.sqrt(A.add(A.mul(ratio, ratio), _number(1.0, a))))
    both_zero = A.compare("eq", A.add(x, y), _number(0.0, a))
    infinite = A.logical_or(_is_infinite(a), _is_infinite(b))
    length = A.select(both_zero, _number(0.0, a), length)
    return A.select(infinite, _number(float("inf"), a), length)


def _exp(z: Value) -> Value:
    """e^a (cos b + i sin b), with e^a in two factors, each in range where the result is."""
    a, b = z
    half = A.exp(A.mul(a, _number(0.5, a)))
    parts = [A.mul(A.mul(half, f(b)), half) for f in (A.cos, A.sin)]
    real, imag = parts
    imag = A.select(A.compare("eq", b, _number(0.0, b)), b, imag)
    infinity, zero = _number(float("inf"), a), _number(0.0, a)
    unknown = A.logical_not(A.compare("lt", A.abs(b), infinity))
    falls = A.logical_and(unknown, A.compare("eq", a, A.neg(infinity)))
    rises = A.logical_and(unknown, A.compare("eq", a, infinity))
    real = A.select(rises, infinity, A.select(falls, zero, real))
    return real, A.select(falls, zero, imag)


def _sqrt(z: Value) -> Value:
    """From the larger part of the result; the other is b over twice that."""
    a, b = z
    half, zero = _number(0.5, a), _number(0.0, a)
    large = A.sqrt(A.add(A.mul(hypot(a, b), half), A.mul(A.abs(a), half)))
    origin = A.compare("eq", A.add(A.abs(a), A.abs(b)), zero)
    small = A.select(origin, A.abs(b), A.div(A.mul(A.abs(b), half), large))
    left = A.compare("lt", a, zero)
    real, imag = A.select(left, small, large), A.select(left, large, small)
    # Where b is infinite, so are both parts, whatever a is.
    far = _is_infinite(b)
    real = A.select(far, _number(float("inf"), a), real)
    return real, A.copysign(A.select(far, A.abs(b), imag), b)


COMPLEX: dict[str, Callable[..., Value]] = {
    **{name: partial(rule, A) for name, rule in complex_parts.COMPLEX.items()},
    "where": lambda c, a, b: tuple(arith.select(c[0], x, y) for x, y in zip(a, b, strict=True)),
    "exp": _exp,
    "sqrt": _sqrt,
}
"""Ops on complex numbers, each a pair of real lanes."""
