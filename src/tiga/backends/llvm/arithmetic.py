"""Scalar and vector arithmetic as MLIR ops: what `tiga.ops.arithmetic.Arithmetic` asks for."""

from dataclasses import dataclass

from torch_mlir import ir
from torch_mlir.dialects import arith, math

from tiga.backends.llvm import conversions, functions, functions_pow, functions_trig
from tiga.backends.llvm.lanes import Lanes, Number, constant_of, where
from tiga.types import DType


@dataclass(frozen=True)
class VectorArithmetic:
    """Arithmetic at the current insertion point, on scalars or 1-d vectors of one width.

    Elements are f32, f64, i1, or i8 to i64 (signed; bytes of uint8 need a cast first); f16 and
    bf16 only go through `cast`. Lanes never see one another: a lane's result has the same bits at
    every vector width. Integer `div` truncates, `rem` takes the dividend's sign; a zero divisor
    gives 0 in both instead of a trap, and the smallest integer over -1 wraps. Products and sums
    of i1 are not arithmetic here: cast first.

    Example:
        >>> from torch_mlir import ir
        >>> from tiga.backends.llvm.arithmetic import VectorArithmetic
        >>> a = VectorArithmetic()
        >>> with ir.Context(), ir.Location.unknown():
        ...     module = ir.Module.create()
        ...     with ir.InsertionPoint(module.body):
        ...         x = a.constant_of(0.5, ir.VectorType.get([8], ir.F32Type.get()))
        ...         print(a.exp(x).type)
        vector<8xf32>
    """

    def constant_of(self, number: Number, type_: ir.Type) -> ir.Value:
        """`number` in every lane of `type_`."""
        return constant_of(number, type_)

    def constant(self, number: Number, like: ir.Value) -> ir.Value:
        return constant_of(number, like.type)

    def add(self, a: ir.Value, b: ir.Value) -> ir.Value:
        return (Lanes(a) + Lanes(b)).value

    def sub(self, a: ir.Value, b: ir.Value) -> ir.Value:
        return (Lanes(a) - Lanes(b)).value

    def mul(self, a: ir.Value, b: ir.Value) -> ir.Value:
        return (Lanes(a) * Lanes(b)).value

    def div(self, a: ir.Value, b: ir.Value) -> ir.Value:
        dividend, divisor = Lanes(a), Lanes(b)
        if dividend.is_float:
            return (dividend / divisor).value
        quotient = Lanes(arith.divsi(a, _safe_divisor(divisor).value))
        quotient = where(divisor.compare("eq", -1), -dividend, quotient)
        return where(divisor.compare("eq", 0), 0, quotient).value

    def rem(self, a: ir.Value, b: ir.Value) -> ir.Value:
        dividend, divisor = Lanes(a), Lanes(b)
        if dividend.is_float:
            return arith.remf(a, b)
        # A safe divisor is 1 exactly where the remainder is 0 by definition (0 and -1).
        return arith.remsi(a, _safe_divisor(divisor).value)

    def fma(self, a: ir.Value, b: ir.Value, c: ir.Value) -> ir.Value:
        return math.fma(a, b, c)

    def neg(self, a: ir.Value) -> ir.Value:
        return (-Lanes(a)).value

    def abs(self, a: ir.Value) -> ir.Value:
        return Lanes(a).abs().value

    def maximum(self, a: ir.Value, b: ir.Value) -> ir.Value:
        lanes = Lanes(a)
        if lanes.is_float:
            return arith.maximumf(a, b)
        return arith.ori(a, b) if lanes.width == 1 else arith.maxsi(a, b)

    def minimum(self, a: ir.Value, b: ir.Value) -> ir.Value:
        lanes = Lanes(a)
        if lanes.is_float:
            return arith.minimumf(a, b)
        return arith.andi(a, b) if lanes.width == 1 else arith.minsi(a, b)

    def copysign(self, magnitude: ir.Value, sign: ir.Value) -> ir.Value:
        return math.copysign(magnitude, sign)

    def floor(self, a: ir.Value) -> ir.Value:
        return math.floor(a)

    def ceil(self, a: ir.Value) -> ir.Value:
        return math.ceil(a)

    def trunc(self, a: ir.Value) -> ir.Value:
        return math.trunc(a)

    def roundeven(self, a: ir.Value) -> ir.Value:
        return math.roundeven(a)

    def sqrt(self, a: ir.Value) -> ir.Value:
        return math.sqrt(a)

    def exp(self, a: ir.Value) -> ir.Value:
        return functions.exp(Lanes(a)).value

    def expm1(self, a: ir.Value) -> ir.Value:
        return functions.expm1(Lanes(a)).value

    def log(self, a: ir.Value) -> ir.Value:
        return functions.log(Lanes(a)).value

    def log1p(self, a: ir.Value) -> ir.Value:
        return functions.log1p(Lanes(a)).value

    def sin(self, a: ir.Value) -> ir.Value:
        return functions_trig.sin(Lanes(a)).value

    def cos(self, a: ir.Value) -> ir.Value:
        return functions_trig.cos(Lanes(a)).value

    def tanh(self, a: ir.Value) -> ir.Value:
        return functions.tanh(Lanes(a)).value

    def erf(self, a: ir.Value) -> ir.Value:
        return functions.erf(Lanes(a)).value

    def pow(self, a: ir.Value, b: ir.Value) -> ir.Value:
        return functions_pow.pow(Lanes(a), Lanes(b)).value

    def compare(self, predicate: str, a: ir.Value, b: ir.Value) -> ir.Value:
        return Lanes(a).compare(predicate, Lanes(b)).value

    def select(self, condition: ir.Value, a: ir.Value, b: ir.Value) -> ir.Value:
        return arith.select(condition, a, b)

    def logical_and(self, a: ir.Value, b: ir.Value) -> ir.Value:
        return arith.andi(a, b)

    def logical_or(self, a: ir.Value, b: ir.Value) -> ir.Value:
        return arith.ori(a, b)

    def logical_not(self, a: ir.Value) -> ir.Value:
        return (~Lanes(a)).value

    def bit_and(self, a: ir.Value, b: ir.Value) -> ir.Value:
        return arith.andi(a, b)

    def bit_or(self, a: ir.Value, b: ir.Value) -> ir.Value:
        return arith.ori(a, b)

    def bit_xor(self, a: ir.Value, b: ir.Value) -> ir.Value:
        return arith.xori(a, b)

    def shift_left(self, a: ir.Value, b: ir.Value) -> ir.Value:
        value, count = Lanes(a), Lanes(b)
        shifted = value << (count & (value.width - 1))
        return where(_shifts_out(count), 0, shifted).value

    def shift_right(self, a: ir.Value, b: ir.Value) -> ir.Value:
        value, count = Lanes(a), Lanes(b)
        return (value >> where(_shifts_out(count), value.width - 1, count)).value

    def cast(self, a: ir.Value, source: DType, target: DType) -> ir.Value:
        return conversions.cast(Lanes(a), source, target).value


def _shifts_out(count: Lanes) -> Lanes:
    """Whether a shift by so many bits leaves none."""
    return (count < 0) | (count >= count.width)


def _safe_divisor(divisor: Lanes) -> Lanes:
    """1 in place of 0 and -1, whose divisions can trap."""
    risky = divisor.compare("eq", 0) | divisor.compare("eq", -1)
    return where(risky, 1, divisor)
