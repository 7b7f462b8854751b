"""Complex numbers in registers: pairs of real lanes."""

from collections.abc import Callable
from functools import partial

from torch_mlir import ir

from tiga.backends.llvm.arithmetic import VectorArithmetic
from tiga.ops import complex_functions, complex_parts, complex_table
from tiga.ops.tensor_complex import real_of
from tiga.types import DType, bool_

A = VectorArithmetic()
Value = tuple[ir.Value, ...]

COMPLEX: dict[str, Callable[..., Value]] = {
    name: partial(rule, A)
    for name, rule in {**complex_parts.COMPLEX, **complex_table.FUNCTIONS}.items()
}
"""Ops on complex numbers, each a pair of real lanes."""


def cast(value: Value, source: DType, target: DType) -> Value:
    """A number as one of another type, where one of the two is complex: of a complex number the
    real part, or whether it is not 0."""
    part = real_of(target)
    if not source.is_complex:
        return A.cast(value[0], source.compute, part), A.constant_of(0.0, _like(value, part))
    if target.is_complex:
        real, imag = (A.cast(x, real_of(source), part) for x in value)
        return real, imag
    if target == bool_:
        return complex_functions.ne(A, value, tuple(A.constant(0.0, x) for x in value))
    whole = A.cast(value[0], real_of(source), target)
    return (A.cast(whole, target, target.compute),)


def _like(value: Value, dtype: DType) -> ir.Type:
    element = ir.Type.parse(dtype.mlir)
    shape = value[0].type
    return ir.VectorType.get(shape.shape, element) if isinstance(shape, ir.VectorType) else element
