"""Element types, spaces, relations and value types: the vocabulary of every level."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import ml_dtypes
import numpy as np


@dataclass(frozen=True)
class DType:
    """An element type: its name, its size in bytes and its kind (`f`, `c`, `i`, `u` or `b`).

    Example:
        >>> import tiga as tg
        >>> tg.tensor([1.0]).dtype is tg.float32, tg.float32.itemsize
        (True, 4)
    """

    name: str
    itemsize: int
    kind: str
    mlir: str

    def __hash__(self) -> int:
        return hash(self.name)  # the name tells element types apart; types are hashed all the time

    def __reduce__(self) -> tuple[Any, ...]:
        return dtype_named, (self.name,)  # copies are the type itself: types are compared by `is`

    @cached_property
    def numpy(self) -> np.dtype:
        """The numpy dtype with the same bits (bfloat16 comes from ml_dtypes)."""
        return np.dtype(ml_dtypes.bfloat16 if self.name == "bfloat16" else self.name)

    @property
    def is_float(self) -> bool:
        """Whether numbers of this type are real floats, 16-bit ones included."""
        return self.kind == "f"

    @property
    def is_complex(self) -> bool:
        """Whether numbers of this type are complex."""
        return self.kind == "c"

    @property
    def is_differentiable(self) -> bool:
        """Whether values of this type have derivatives."""
        return self.kind in "fc"

    @property
    def compute(self) -> "DType":
        """The type of arithmetic: 16-bit floats compute in float32, rounded after each op."""
        return float32 if self.is_float and self.itemsize == 2 else self

    def __repr__(self) -> str:
        return self.name


float16 = DType("float16", 2, "f", "f16")
bfloat16 = DType("bfloat16", 2, "f", "bf16")
float32 = DType("float32", 4, "f", "f32")
float64 = DType("float64", 8, "f", "f64")
int8 = DType("int8", 1, "i", "i8")
int16 = DType("int16", 2, "i", "i16")
int32 = DType("int32", 4, "i", "i32")
int64 = DType("int64", 8, "i", "i64")
uint8 = DType("uint8", 1, "u", "ui8")
bool_ = DType("bool", 1, "b", "i1")

DTYPES = {
    d.name: d
    for d in (float16, bfloat16, float32, float64, int8, int16, int32, int64, uint8, bool_)
}
FLOATS = (float16, bfloat16, float32, float64)

# Whole tensors may be complex; values of nodes and edges, whose types are `DTYPES`, are not.
complex64 = DType("complex64", 8, "c", "complex<f32>")
complex128 = DType("complex128", 16, "c", "complex<f64>")
COMPLEX = (complex64, complex128)
_ALL = (*DTYPES.values(), *COMPLEX)
_BY_NAME = {dtype.name: dtype for dtype in _ALL}
_BY_MLIR = {d.mlir: d for d in _ALL}
_BY_NUMPY = {d.numpy: d for d in _ALL}


def dtype_of_mlir(text: str) -> DType:
    """The element type that MLIR spells `text`."""
    return _BY_MLIR[text]


def dtype_named(name: str) -> DType:
    """The element type of a name; KeyError when there is none."""
    return _BY_NAME[name]


def dtype_of_numpy(dtype: np.dtype) -> DType:
    """The element type of a numpy dtype; KeyError when there is none."""
    return _BY_NUMPY[np.dtype(dtype)]


@dataclass(frozen=True)
class Space:
    """Where a value lives: `global` (no entity axis), a node set, or the edges of a relation."""

    name: str
    kind: str  # "global" | "node" | "edge"

    @property
    def of_edges(self) -> bool:
        return self.kind == "edge"

    def __repr__(self) -> str:
        return self.name


GLOBAL = Space("global", "global")


OPPOSITE = {"src": "dst", "dst": "src"}
"""The other side of a relation."""


@dataclass(frozen=True)
class Relation:
    """Edges from a source set to a destination set (which may be the same set)."""

    name: str
    src: Space
    dst: Space

    @cached_property
    def edge(self) -> Space:
        return Space(self.name, "edge")

    def end(self, side: str) -> Space:
        """The node set at `side`, which is `"src"` or `"dst"`."""
        return self.src if side == "src" else self.dst

    def other_end(self, side: str) -> Space:
        """The node set at the other side."""
        return self.end(OPPOSITE[side])

    def __repr__(self) -> str:
        return f"{self.name}:{self.src}->{self.dst}"


Shape = tuple[int, ...]


@dataclass(frozen=True)
class Type:
    """The type of a value: element type, feature shape (static) and space (run-time extent)."""

    dtype: DType
    shape: Shape
    space: Space

    @cached_property
    def _hash(self) -> int:
        return hash((self.dtype, self.shape, self.space))

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def size(self) -> int:
        """Number of elements per entity."""
        total = 1
        for extent in self.shape:
            total *= extent
        return total

    @property
    def row_bytes(self) -> int:
        """Bytes per entity."""
        return self.size * self.dtype.itemsize

    @property
    def on_edges(self) -> bool:
        """Whether each edge has a value of its own."""
        return self.space.of_edges

    def with_dtype(self, dtype: DType) -> "Type":
        """The type with other elements."""
        return Type(dtype, self.shape, self.space)

    def with_shape(self, shape: Shape) -> "Type":
        """The type with other features."""
        return Type(self.dtype, tuple(shape), self.space)

    def with_space(self, space: Space) -> "Type":
        """The type of the same value for other entities."""
        return Type(self.dtype, self.shape, space)

    def __repr__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.shape))}]@{self.space}"
