"""Complex numbers: parts, conjugation, polar form; cotangents are conjugate Wirtinger ones."""

from dataclasses import dataclass

import numpy as np

from tiga.ops.base import Pointwise
from tiga.ops.leaf import zeros_like
from tiga.ops.pointwise import cast
from tiga.trace.node import Node
from tiga.types import DType, Type, complex64, complex128, float32, float64

COMPLEX_OF = {float32: complex64, float64: complex128}
REAL_OF = {complex64: float32, complex128: float64}


def complex_of(dtype: DType) -> DType:
    """The complex type whose parts are `dtype` (float32 for shorter floats)."""
    return dtype if dtype.is_complex else COMPLEX_OF.get(dtype, complex64)


def real_of(dtype: DType) -> DType:
    """The type of the parts of a complex type; any other type itself."""
    return REAL_OF.get(dtype, dtype)


@dataclass(frozen=True)
class RealLinear(Pointwise):
    """A real-linear function that is not holomorphic."""

    holomorphic = False
    exact = True

    def jvp(self, tangents, out, *inputs):
        return [] if tangents[0] is None else [self(tangents[0])]


@dataclass(frozen=True)
class Conj(RealLinear, name="conj"):
    """The complex conjugate."""

    arity = 1

    def fold(self, inputs):
        return inputs[0].inputs[0] if isinstance(inputs[0].op, Conj) else None

    def reference(self, x):
        return np.conj(x)

    def vjp(self, ct, out, x):
        return (conj(ct),)


@dataclass(frozen=True)
class Real(RealLinear, name="real"):
    """The real part."""

    arity = 1

    def infer(self, *types: Type) -> Type:
        return types[0].with_dtype(REAL_OF[types[0].dtype])

    def reference(self, x):
        return x.real

    def vjp(self, ct, out, x):
        return (cast(ct, x.type.dtype),)


@dataclass(frozen=True)
class Imag(RealLinear, name="imag"):
    """The imaginary part."""

    arity = 1

    def infer(self, *types: Type) -> Type:
        return types[0].with_dtype(REAL_OF[types[0].dtype])

    def reference(self, x):
        return x.imag

    def vjp(self, ct, out, x):
        return (make_complex(zeros_like(ct), ct),)


@dataclass(frozen=True)
class MakeComplex(Pointwise, name="make_complex"):
    """A complex number of two real parts."""

    arity = 2
    holomorphic = False
    exact = True

    def infer(self, *types: Type) -> Type:
        return super().infer(*types).with_dtype(COMPLEX_OF[types[0].dtype])

    def reference(self, a, b):
        result = np.empty(np.broadcast_shapes(a.shape, b.shape), COMPLEX_OF_NUMPY[a.dtype])
        result.real, result.imag = a, b
        return result

    def vjp(self, ct, out, a, b):
        return real(ct), imag(ct)

    def jvp(self, tangents, out, a, b):
        parts = [zeros_like(a) if t is None else t for t in tangents]
        return [] if all(t is None for t in tangents) else [make_complex(*parts)]


COMPLEX_OF_NUMPY = {a.numpy: b.numpy for a, b in COMPLEX_OF.items()}
_conj, real, imag, make_complex = Conj(), Real(), Imag(), MakeComplex()


def conj(x: Node) -> Node:
    """The conjugate; a real value itself."""
    return _conj(x) if x.type.dtype.is_complex else x
