"""Numbers of whole-tensor kernels as text: one expression, or two for a complex number."""

from collections.abc import Callable, Sequence
from typing import Any

from tiga.backends.triton.arithmetic import Term, TritonArithmetic, dtype_text, literal, typed
from tiga.ops import complex_parts, complex_table
from tiga.ops.arithmetic import lower_rounded, round_to
from tiga.ops.base import Op
from tiga.ops.monoid import COMBINED_BY
from tiga.ops.tensor_complex import REAL_OF
from tiga.passes.tensor_fusable import COMPLEX_OPS, Target
from tiga.types import DType, bool_, complex64, complex128, int16

Value = tuple[Term, ...]
Keep = Callable[[Term], Term]

FUNCTIONS = {
    name: name
    for name in (
        "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cosh", "erfc", "hypot",
        "log10", "log2", "logaddexp", "nextafter", "remainder", "sinh", "tan",
    )
} | {"floor_divide": "floor_div"}  # fmt: skip
"""Functions of kernels (`math_compiled`) that compute an op by themselves."""

INT_FUNCTIONS = {"floor_divide": "int_floor_div", "remainder": "int_remainder"}

GPU = Target(
    functions=frozenset(FUNCTIONS),
    int_functions=frozenset(INT_FUNCTIONS),
    complex_ops=COMPLEX_OPS | frozenset(complex_table.FUNCTIONS) | {"cast"},
)
"""What these kernels compute."""

_LONG = 40
"""Characters of an expression from which it gets a name of its own."""


def part_dtype(dtype: DType) -> DType:
    """The type of a value's parts in memory."""
    return REAL_OF.get(dtype, dtype)


def parts(dtype: DType) -> int:
    """Into how many numbers a value falls."""
    return 2 if dtype.is_complex else 1


class Naming:
    """Arithmetic whose longer results get names, so that no text is written twice."""

    def __init__(self, keep: Keep) -> None:
        self._plain, self._keep = TritonArithmetic(), keep

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._plain, name)

        def apply(*args: Any) -> Term:
            term: Term = method(*args)
            return self._keep(term) if len(term.text) > _LONG else term

        return apply


def number(text: str, dtype: DType) -> Value:
    """A constant as the program spells it."""
    if dtype.is_complex:
        real, imag = map(float.fromhex, text.split(","))
        return literal(real, part_dtype(dtype)), literal(imag, part_dtype(dtype))
    plain = float.fromhex(text) if dtype.is_float else int(text)
    return (literal(plain, dtype.compute),)


def identity(name: str, dtype: DType) -> Value:
    """What combining with changes nothing."""
    if dtype.is_complex:
        return (literal(0.0, part_dtype(dtype)),) * 2
    plain = COMBINED_BY[name].identity(dtype)
    return (literal(float(plain) if dtype.is_float else int(plain), dtype.compute),)


def loaded(text: str, dtype: DType) -> Term:
    """A loaded number as it computes."""
    compute = dtype.compute
    return Term(text if compute == dtype else f"{text}.to({dtype_text(compute)})", compute)


def apply(
    op: Op, dtype: DType, sources: Sequence[DType], args: Sequence[Value], keep: Keep
) -> Value:
    """A pointwise op on values of the given types, rounded to a 16-bit type where it has one."""
    arithmetic = Naming(keep)
    if dtype.is_complex or any(d.is_complex for d in sources):
        if op.converts:
            return _cast_complex(arithmetic, args[0], sources[0], dtype)
        if dtype == complex64 and op.name in complex_table.IN_DOUBLE:
            wide = [_cast_complex(arithmetic, arg, complex64, complex128) for arg in args]
            double = _COMPLEX[op.name](arithmetic, *wide)
            return _cast_complex(arithmetic, double, complex128, complex64)
        return _COMPLEX[op.name](arithmetic, *args)
    plain = [arg[0] for arg in args]
    if dtype.kind == "u" and op.divides:
        # Texts for signed integers compare with -1, and a quotient fits twice the bits.
        wide = [(arithmetic.cast(term, dtype, int16),) for term in plain]
        (value,) = apply(op, int16, [int16] * len(wide), wide, keep)
        return (arithmetic.cast(value, int16, dtype),)
    if op.name not in FUNCTIONS:
        return (lower_rounded(arithmetic, op, dtype, sources, plain),)
    value = _function(op, plain)
    return (value if op.exact else round_to(arithmetic, value, dtype),)


def _function(op: Op, args: Sequence[Term]) -> Term:
    first = typed(args[0])
    table = FUNCTIONS if first.dtype.is_float else INT_FUNCTIONS
    texts = ", ".join(typed(arg).text for arg in args)
    return Term(f"{table[op.name]}({texts})", first.dtype)


def combined(name: str, dtype: DType, a: Value, b: Value) -> Value:
    """Two values of a reduction."""
    arithmetic = TritonArithmetic()
    if dtype.is_complex:
        return tuple(arithmetic.add(x, y) for x, y in zip(a, b, strict=True))
    return (getattr(arithmetic, name)(a[0], b[0]),)


def multiplied(dtype: DType, a: Value, b: Value) -> Value:
    """The product of two values, not rounded."""
    arithmetic = TritonArithmetic()
    if dtype.is_complex:
        return complex_parts.mul(arithmetic, a, b)
    return (arithmetic.mul(a[0], b[0]),)


def reduced(name: str, value: Value, axis: int | None, keep: bool) -> Value:
    """All elements along an axis, or (None) all there are, as one."""
    where = "None" if axis is None else str(axis)
    kept = ", keep_dims=True" if keep else ""
    return tuple(Term(_reduction(name, part, where, kept), part.dtype) for part in value)


def _reduction(name: str, part: Term, axis: str, kept: str) -> str:
    text, dtype = typed(part).text, part.dtype
    if name == "add":
        total = f"tl.sum({text}, {axis}{kept})"
    else:
        function = name if dtype.is_float else f"int_{name}"
        total = f"tl.reduce({text}, {axis}, {function}{kept})"
    narrow = not dtype.is_float and dtype.itemsize < 4
    return f"{total}.to({dtype_text(dtype)})" if narrow else total


def selected(mask: str, a: Value, b: Value) -> Value:
    """`a` where the mask holds, else `b`."""
    condition, arithmetic = Term(mask, bool_), TritonArithmetic()
    return tuple(arithmetic.select(condition, x, y) for x, y in zip(a, b, strict=True))


# complex arithmetic on pairs of real numbers


def _cast_complex(a: Any, value: Value, source: DType, target: DType) -> Value:
    part = part_dtype(target)
    if not source.is_complex:
        return a.cast(value[0], source.compute, part), literal(0.0, part)
    if target.is_complex:
        own = part_dtype(source)
        return a.cast(value[0], own, part), a.cast(value[1], own, part)
    if target != bool_:
        return (a.cast(value[0], part_dtype(source), target.compute),)
    zero = literal(0.0, part_dtype(source))
    return (a.logical_or(a.compare("ne", value[0], zero), a.compare("ne", value[1], zero)),)


_COMPLEX = {**complex_parts.COMPLEX, **complex_table.FUNCTIONS}
