"""Values with operators: scalars, or vectors whose lanes all take the same step.

`Lanes` wraps an MLIR value so that formulas read as formulas; each operator adds one op at the
current insertion point. No operator carries fast-math flags.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Union

from torch_mlir import ir
from torch_mlir.dialects import arith, math

Builder = Callable[[ir.Value, ir.Value], ir.Value]
Number = int | float | bool
Operand = Union["Lanes", Number]

_FLOAT_PREDICATES = {
    "eq": arith.CmpFPredicate.OEQ,
    "ne": arith.CmpFPredicate.UNE,
    "lt": arith.CmpFPredicate.OLT,
    "le": arith.CmpFPredicate.OLE,
    "gt": arith.CmpFPredicate.OGT,
    "ge": arith.CmpFPredicate.OGE,
}
_SIGNED_PREDICATES = {
    "eq": arith.CmpIPredicate.eq,
    "ne": arith.CmpIPredicate.ne,
    "lt": arith.CmpIPredicate.slt,
    "le": arith.CmpIPredicate.sle,
    "gt": arith.CmpIPredicate.sgt,
    "ge": arith.CmpIPredicate.sge,
}
_UNSIGNED_PREDICATES = {
    "eq": arith.CmpIPredicate.eq,
    "ne": arith.CmpIPredicate.ne,
    "lt": arith.CmpIPredicate.ult,
    "le": arith.CmpIPredicate.ule,
    "gt": arith.CmpIPredicate.ugt,
    "ge": arith.CmpIPredicate.uge,
}


def element_of(type_: ir.Type) -> ir.Type:
    """The element type of a vector type, or a scalar type itself."""
    return type_.element_type if isinstance(type_, ir.VectorType) else type_


def with_element(type_: ir.Type, element: ir.Type) -> ir.Type:
    """`type_` with other elements: as many lanes, or a scalar."""
    if not isinstance(type_, ir.VectorType):
        return element
    return ir.VectorType.get(type_.shape, element)


def is_float(type_: ir.Type) -> bool:
    """Whether elements are floats."""
    return isinstance(element_of(type_), ir.FloatType)


def width_of(type_: ir.Type) -> int:
    """Bits of one element."""
    return element_of(type_).width


def integer(width: int) -> ir.Type:
    """The integer type of so many bits."""
    return ir.IntegerType.get_signless(width)


def _attribute(number: Number, element: ir.Type) -> ir.Attribute:
    if isinstance(element, ir.FloatType):
        return ir.FloatAttr.get(element, float(number))
    if isinstance(element, ir.IndexType):
        return ir.IntegerAttr.get(element, int(number))
    half = 1 << (element.width - 1)
    wrapped = (int(number) + half) % (2 * half) - half if element.width > 1 else int(bool(number))
    return ir.IntegerAttr.get(element, wrapped)


def constant_of(number: Number, type_: ir.Type) -> ir.Value:
    """`number` as a value of `type_`, in every lane; integers wrap to their width."""
    attribute = _attribute(number, element_of(type_))
    if isinstance(type_, ir.VectorType):
        attribute = ir.DenseElementsAttr.get_splat(type_, attribute)
    return arith.constant(type_, attribute)


@dataclass(frozen=True, eq=False)
class Lanes:
    """A value under operators; Python numbers on either side become constants of its type.

    `+ - * /` and comparisons are of floats or signed integers as the type says; `>>` keeps the
    sign; comparisons follow IEEE and give lanes of i1.
    """

    value: ir.Value

    @property
    def type(self) -> ir.Type:
        return self.value.type

    @property
    def is_float(self) -> bool:
        return is_float(self.type)

    @property
    def width(self) -> int:
        return width_of(self.type)

    def like(self, operand: Operand) -> "Lanes":
        """`operand` as lanes: a number becomes a constant of this type."""
        if isinstance(operand, Lanes):
            return operand
        return Lanes(constant_of(operand, self.type))

    def _both(self, float_op: Builder, integer_op: Builder, other: Operand) -> "Lanes":
        op = float_op if self.is_float else integer_op
        return Lanes(op(self.value, self.like(other).value))

    def __add__(self, other: Operand) -> "Lanes":
        return self._both(arith.addf, arith.addi, other)

    def __sub__(self, other: Operand) -> "Lanes":
        return self._both(arith.subf, arith.subi, other)

    def __mul__(self, other: Operand) -> "Lanes":
        return self._both(arith.mulf, arith.muli, other)

    def __truediv__(self, other: Operand) -> "Lanes":
        return Lanes(arith.divf(self.value, self.like(other).value))

    def __neg__(self) -> "Lanes":
        return Lanes(arith.negf(self.value)) if self.is_float else self.like(0) - self

    def __and__(self, other: Operand) -> "Lanes":
        return Lanes(arith.andi(self.value, self.like(other).value))

    def __or__(self, other: Operand) -> "Lanes":
        return Lanes(arith.ori(self.value, self.like(other).value))

    def __xor__(self, other: Operand) -> "Lanes":
        return Lanes(arith.xori(self.value, self.like(other).value))

    def __invert__(self) -> "Lanes":
        return self ^ -1 if self.width > 1 else self ^ True

    def __lshift__(self, count: Operand) -> "Lanes":
        return Lanes(arith.shli(self.value, self.like(count).value))

    def __rshift__(self, count: Operand) -> "Lanes":
        return Lanes(arith.shrsi(self.value, self.like(count).value))

    def shift_right_zero(self, count: Operand) -> "Lanes":
        """Logical shift right: zeros come in."""
        return Lanes(arith.shrui(self.value, self.like(count).value))

    def __lt__(self, other: Operand) -> "Lanes":
        return self.compare("lt", other)

    def __le__(self, other: Operand) -> "Lanes":
        return self.compare("le", other)

    def __gt__(self, other: Operand) -> "Lanes":
        return self.compare("gt", other)

    def __ge__(self, other: Operand) -> "Lanes":
        return self.compare("ge", other)

    def compare(self, predicate: str, other: Operand) -> "Lanes":
        """`eq ne lt le gt ge` as i1; booleans compare as 0 and 1."""
        right = self.like(other).value
        if self.is_float:
            return Lanes(arith.cmpf(_FLOAT_PREDICATES[predicate], self.value, right))
        # As a signed number, i1 true is -1.
        table = _UNSIGNED_PREDICATES if self.width == 1 else _SIGNED_PREDICATES
        return Lanes(arith.cmpi(table[predicate], self.value, right))

    def fma(self, factor: Operand, addend: Operand) -> "Lanes":
        """self * factor + addend, rounded once."""
        return Lanes(math.fma(self.value, self.like(factor).value, self.like(addend).value))

    def abs(self) -> "Lanes":
        return Lanes(math.absf(self.value) if self.is_float else math.absi(self.value))

    def copysign(self, sign: "Lanes") -> "Lanes":
        return Lanes(math.copysign(self.value, sign.value))

    def trunc(self) -> "Lanes":
        return Lanes(math.trunc(self.value))

    def bits(self) -> "Lanes":
        """The same bits as integers."""
        return Lanes(arith.bitcast(with_element(self.type, integer(self.width)), self.value))

    def as_float(self) -> "Lanes":
        """The same bits as f32 or f64."""
        element = ir.F32Type.get() if self.width == 32 else ir.F64Type.get()
        return Lanes(arith.bitcast(with_element(self.type, element), self.value))

    def extended(self) -> "Lanes":
        """f32 as f64, exactly."""
        return Lanes(arith.extf(with_element(self.type, ir.F64Type.get()), self.value))

    def truncated(self) -> "Lanes":
        """f64 rounded to f32."""
        return Lanes(arith.truncf(with_element(self.type, ir.F32Type.get()), self.value))


def resized_integer(a: Lanes, width: int, signed: bool = True) -> Lanes:
    """Integers of another width: low bits when narrower, the sign or zeros when wider."""
    if a.width == width:
        return a
    type_ = with_element(a.type, integer(width))
    if a.width > width:
        return Lanes(arith.trunci(type_, a.value))
    return Lanes((arith.extsi if signed else arith.extui)(type_, a.value))


def where(condition: Lanes, a: Operand, b: Operand) -> Lanes:
    """`a` in the lanes where `condition` holds, else `b`; at least one of them is Lanes."""
    known = a if isinstance(a, Lanes) else b
    assert isinstance(known, Lanes), "two numbers have no type"
    left, right = known.like(a), known.like(b)
    return Lanes(arith.select(condition.value, left.value, right.value))


def polynomial(x: Lanes, coefficients: tuple[float, ...]) -> Lanes:
    """Horner's scheme with fma; `coefficients` from the lowest degree up."""
    total = x.like(coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        total = total.fma(x, coefficient)
    return total
