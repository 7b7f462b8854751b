"""Arithmetic as Triton expressions: what `tiga.ops.arithmetic.Arithmetic` asks for, as text."""

import math
from dataclasses import dataclass

from tiga.types import DType, bfloat16, bool_, float32, float64

OPERATORS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}


@dataclass(frozen=True)
class Term:
    """An expression: its text, and the dtype in which it computes.

    `number` is its value where it is a constant. `weak` marks a Python literal, which takes its
    dtype from the operand beside it.
    """

    text: str
    dtype: DType
    number: float | int | None = None
    weak: bool = False


def dtype_text(dtype: DType) -> str:
    """How Triton spells a dtype."""
    return "tl.int1" if dtype == bool_ else f"tl.{dtype}"


def number_text(number: float | int | bool) -> str:
    """A Python literal of the number."""
    if isinstance(number, float) and not math.isfinite(number):
        return f'float("{number}")'
    return repr(number)


def literal(number: float | int | bool, dtype: DType) -> Term:
    """A number of `dtype`; float32 stays a literal, all else is typed at once."""
    value = float(number) if dtype.is_float else int(number)
    if dtype.kind == "u":
        value %= 2 ** (8 * dtype.itemsize)
    if dtype == float32:
        return Term(number_text(value), dtype, value, weak=True)
    return Term(f"tl.full((), {number_text(value)}, {dtype_text(dtype)})", dtype, value)


def typed(term: Term) -> Term:
    """The term with a dtype of its own."""
    if not term.weak:
        return term
    text = f"tl.full((), {term.text}, {dtype_text(term.dtype)})"
    return Term(text, term.dtype, term.number)


def _operands(a: Term, b: Term) -> tuple[str, str]:
    """At least one operand has a dtype of its own."""
    a = typed(a) if b.weak else a
    return a.text, b.text


@dataclass(frozen=True)
class TritonArithmetic:
    """Arithmetic on Triton tensors, written as expressions.

    Functions come from `math` of this package under the same names, so that the same text runs
    compiled and interpreted. Integer `div` truncates; a zero divisor gives 0 in `div` and `rem`.

    Example:
        >>> from tiga.types import float32
        >>> a = TritonArithmetic()
        >>> x = Term("x", float32)
        >>> a.add(a.mul(x, x), a.constant(1, x)).text
        '((x * x) + 1.0)'
    """

    def constant(self, number: float | int | bool, like: Term) -> Term:
        return literal(number, like.dtype)

    def _infix(self, operator: str, a: Term, b: Term, dtype: DType | None = None) -> Term:
        left, right = _operands(a, b)
        return Term(f"({left} {operator} {right})", dtype or a.dtype)

    def _call(self, function: str, *args: Term) -> Term:
        texts = ", ".join(typed(arg).text for arg in args)
        return Term(f"{function}({texts})", args[0].dtype)

    def add(self, a: Term, b: Term) -> Term:
        return self._infix("+", a, b)

    def sub(self, a: Term, b: Term) -> Term:
        return self._infix("-", a, b)

    def mul(self, a: Term, b: Term) -> Term:
        return self._infix("*", a, b)

    def div(self, a: Term, b: Term) -> Term:
        if a.dtype == float32:
            return self._call("tl.div_rn", a, b)
        return self._infix("/", a, b) if a.dtype == float64 else self._call("int_div", a, b)

    def rem(self, a: Term, b: Term) -> Term:
        return self._call("fmod" if a.dtype.is_float else "int_rem", a, b)

    def fma(self, a: Term, b: Term, c: Term) -> Term:
        return self._call("tl.fma", a, b, c)

    def neg(self, a: Term) -> Term:
        # Triton negates by 0 - x, which loses the sign of zero.
        return self._infix("*", a, literal(-1, a.dtype)) if a.dtype.is_float else self._minus(a)

    def _minus(self, a: Term) -> Term:
        return Term(f"(-{typed(a).text})", a.dtype)

    def abs(self, a: Term) -> Term:
        return self._call("tl.abs", a)

    def maximum(self, a: Term, b: Term) -> Term:
        return self._extremum("maximum", "|", a, b)

    def minimum(self, a: Term, b: Term) -> Term:
        return self._extremum("minimum", "&", a, b)

    def _extremum(self, name: str, logical: str, a: Term, b: Term) -> Term:
        if a.dtype == bool_:
            return self._infix(logical, a, b)
        return self._call(name if a.dtype.is_float else f"tl.{name}", a, b)

    def copysign(self, magnitude: Term, sign: Term) -> Term:
        return self._call("copysign", magnitude, sign)

    def floor(self, a: Term) -> Term:
        return self._call("tl.floor", a)

    def ceil(self, a: Term) -> Term:
        return self._call("tl.ceil", a)

    def trunc(self, a: Term) -> Term:
        return self._call("trunc", a)

    def roundeven(self, a: Term) -> Term:
        return self._call("rint", a)

    def sqrt(self, a: Term) -> Term:
        return self._call("tl.sqrt_rn" if a.dtype == float32 else "tl.sqrt", a)

    def exp(self, a: Term) -> Term:
        return self._call("exp", a)

    def expm1(self, a: Term) -> Term:
        return self._call("expm1", a)

    def log(self, a: Term) -> Term:
        return self._call("log", a)

    def log1p(self, a: Term) -> Term:
        return self._call("log1p", a)

    def sin(self, a: Term) -> Term:
        return self._call("sin", a)

    def cos(self, a: Term) -> Term:
        return self._call("cos", a)

    def tanh(self, a: Term) -> Term:
        return self._call("tanh", a)

    def erf(self, a: Term) -> Term:
        return self._call("erf", a)

    def pow(self, a: Term, b: Term) -> Term:
        return self._call("pow", a, b)

    def compare(self, predicate: str, a: Term, b: Term) -> Term:
        return self._infix(OPERATORS[predicate], a, b, bool_)

    def select(self, condition: Term, a: Term, b: Term) -> Term:
        left, right = _operands(a, b)
        return Term(f"tl.where({typed(condition).text}, {left}, {right})", a.dtype)

    def logical_and(self, a: Term, b: Term) -> Term:
        return self._infix("&", a, b)

    def logical_or(self, a: Term, b: Term) -> Term:
        return self._infix("|", a, b)

    def logical_not(self, a: Term) -> Term:
        return Term(f"({typed(a).text} == 0)", bool_)

    def bit_and(self, a: Term, b: Term) -> Term:
        return self._infix("&", a, b)

    def bit_or(self, a: Term, b: Term) -> Term:
        return self._infix("|", a, b)

    def bit_xor(self, a: Term, b: Term) -> Term:
        return self._infix("^", a, b)

    def shift_left(self, a: Term, b: Term) -> Term:
        return self._shift("<<", a, b)

    def shift_right(self, a: Term, b: Term) -> Term:
        return self._shift(">>", a, b)

    def _shift(self, operator: str, a: Term, b: Term) -> Term:
        width = 8 * a.dtype.itemsize
        zero, bits = literal(0, b.dtype), literal(width, b.dtype)
        out = self.logical_or(self.compare("lt", b, zero), self.compare("ge", b, bits))
        if operator == ">>":
            return self._infix(">>", a, self.select(out, literal(width - 1, b.dtype), b))
        shifted = self._infix("<<", a, self.bit_and(b, literal(width - 1, b.dtype)))
        return self.select(out, literal(0, a.dtype), shifted)

    def cast(self, a: Term, source: DType, target: DType) -> Term:
        """`a` of `source` as `target`, as torch converts on the CPU: the laws of casts there."""
        if source == target:
            return a
        a = typed(a)
        if target == bool_:
            return Term(f"({a.text} != 0)", bool_)
        if source.is_float and not target.is_float:
            return self._truncated(a, target)
        if target.compute != target and source != float32:
            a = Term(f"{a.text}.to(tl.float32)", float32)  # 16-bit floats are reached through it
        if target == bfloat16:
            return Term(f"to_bfloat16({a.text})", target)
        return Term(f"{a.text}.to({dtype_text(target)})", target)

    def _truncated(self, a: Term, target: DType) -> Term:
        wide = "float_to_int64" if target.itemsize == 8 else "float_to_int32"
        narrow = f".to({dtype_text(target)})" if target.itemsize < 4 else ""
        return Term(f"{wide}({a.text}){narrow}", target)
