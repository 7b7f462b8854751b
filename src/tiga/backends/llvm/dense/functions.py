"""Functions of whole-tensor kernels that take more than the closed arithmetic: bits of floats,
pairs of them, and whole numbers apart."""

from collections.abc import Callable

from torch_mlir import ir

from tiga.backends.llvm.arithmetic import VectorArithmetic
from tiga.backends.llvm.functions import (
    INFINITY,
    LOG2_E,
    NAN,
    format_of,
    log_of_parts,
    normalize,
)
from tiga.backends.llvm.functions_pow import log_pair
from tiga.backends.llvm.lanes import Lanes, where
from tiga.ops import hyperbolic

A = VectorArithmetic()
_LOG10_E = 0.4342944819032518
_LOG10_E_LOW = 1.098319650216765e-17


def _with_log_edges(x: Lanes, result: Lanes) -> ir.Value:
    result = where(x < INFINITY, result, x)
    result = where(x.compare("eq", 0.0), -INFINITY, result)
    return where(x < 0.0, NAN, result).value


def log2(a: ir.Value) -> ir.Value:
    """The power of 2 and the logarithm of what is left: exact at powers of 2."""
    x = Lanes(a)
    format_ = format_of(x)
    subnormal = x < 2.0 ** (1 - format_.bias)
    parts = normalize(where(subnormal, x * 2.0**format_.mantissa, x), format_)
    power = where(subnormal, parts.power - float(format_.mantissa), parts.power)
    rest = log_of_parts(power.like(0.0), parts.fraction, format_)
    return _with_log_edges(x, rest.fma(LOG2_E, power))


def log10(a: ir.Value) -> ir.Value:
    """From a logarithm of twice the precision: exact at powers of 10."""
    x = Lanes(a)
    wide = x.extended() if x.width == 32 else x
    log = log_pair(where(wide > 0.0, wide, 1.0))
    high = log.high * _LOG10_E
    error = log.high.fma(_LOG10_E, -high) + log.low * _LOG10_E + log.high * _LOG10_E_LOW
    value = high + error
    return _with_log_edges(x, value.truncated() if x.width == 32 else value)


def nextafter(a: ir.Value, b: ir.Value) -> ir.Value:
    """One more or less in the bits of |a|; from 0, the smallest number with b's sign."""
    x, y = Lanes(a), Lanes(b)
    away = (x < y) ^ (x < 0.0)
    bits = x.bits()
    moved = where(away, bits + 1, bits - 1).as_float()
    smallest = bits.like(1).as_float().copysign(y)
    moved = where(x.compare("eq", 0.0), smallest, moved)
    moved = where(x.compare("eq", y), y, moved)
    return where(x.compare("ne", x) | y.compare("ne", y), NAN, moved).value


def _floor_divide(a: ir.Value, b: ir.Value) -> ir.Value:
    rule = hyperbolic.floor_divide if Lanes(a).is_float else hyperbolic.int_floor_divide
    return rule(A, a, b)


def _remainder(a: ir.Value, b: ir.Value) -> ir.Value:
    rule = hyperbolic.remainder if Lanes(a).is_float else hyperbolic.int_remainder
    return rule(A, a, b)


FUNCTIONS: dict[str, Callable[..., ir.Value]] = {
    "log2": log2,
    "log10": log10,
    "nextafter": nextafter,
    "floor_divide": _floor_divide,
    "remainder": _remainder,
}
"""Functions by the name of the op that they compute."""
