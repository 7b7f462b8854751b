"""What a kernel under construction knows: its parameters, its tile and its shared lines."""

from collections.abc import Hashable
from dataclasses import dataclass, field

import numpy as np

from tiga.backends.triton.arithmetic import Term, dtype_text, number_text
from tiga.backends.triton.block import Block, Names
from tiga.backends.triton.layout import Dims, Tile, row_major
from tiga.types import DType, Shape, Type, bool_

_POINTERS = {"float16": "fp16", "bfloat16": "bf16", "float32": "fp32", "float64": "fp64"}


def pointer_type(dtype: DType) -> str:
    """The type of a pointer to `dtype` in a kernel's signature."""
    if dtype == bool_:
        return "*i1"
    return "*" + _POINTERS.get(dtype.name, dtype.name.replace("uint", "u").replace("int", "i"))


@dataclass(frozen=True)
class Parameter:
    """A parameter: its name in the kernel, its type, and the key by which a run binds it."""

    name: str
    type: str
    key: Hashable


@dataclass(frozen=True)
class KernelSource:
    """One kernel: its text and its parameters in order. `tables` holds its int32 lane tables, one
    after another; `loops` says that a program takes one tile after another."""

    name: str
    text: str
    parameters: tuple[Parameter, ...]
    tables: tuple[int, ...]
    tile: Tile
    loops: bool = False

    def __hash__(self) -> int:
        # A text's hash is kept: kernels are looked up at every launch.
        return hash((self.name, self.text))


@dataclass(frozen=True)
class Value:
    """A value in registers: an expression and its extents [rows, edges, *features]."""

    term: Term
    dims: Dims

    @property
    def text(self) -> str:
        return self.term.text

    @property
    def dtype(self) -> DType:
        return self.term.dtype


@dataclass
class Writer:
    """The state of one kernel function under construction.

    `wide` says that offsets need 64 bits; `index` is the dtype of node and edge numbers.
    """

    tile: Tile
    wide: bool
    index: DType
    names: Names = field(default_factory=Names)
    prologue: Block = field(default_factory=Block)
    parameters: dict[Hashable, Parameter] = field(default_factory=dict)
    shared: dict[Hashable, str] = field(default_factory=dict)
    tables: list[int] = field(default_factory=list)
    thirds: dict[Hashable, tuple[str, ...]] = field(default_factory=dict)

    def parameter(self, key: Hashable, hint: str, type_: str) -> str:
        """The name of a parameter, declared at its first use."""
        if key not in self.parameters:
            self.parameters[key] = Parameter(self.names.fresh(hint), type_, key)
        return self.parameters[key].name

    def frame_parameter(self, name: str) -> str:
        """A 32-bit number that the frame of kernels knows by its own name."""
        self.parameters.setdefault(name, Parameter(name, "i32", name))
        return name

    def once(self, key: Hashable, hint: str, text: str) -> str:
        """A name for an expression that is the same in the whole kernel."""
        if key not in self.shared:
            name = self.shared[key] = self.names.fresh(hint)
            self.prologue.add(f"{name} = {text}")
        return self.shared[key]

    def named(self, block: Block, hint: str, value: Value) -> Value:
        """The value under a name of its own."""
        name = self.names.fresh(hint)
        block.add(f"{name} = {value.text}")
        return Value(Term(name, value.dtype), value.dims)

    # features

    def axis(self, axis: int, rank: int, extent: int) -> str:
        """Positions 0, 1, ... along a feature axis, shaped for values of that rank."""
        index = ", ".join(":" if i == axis + 2 else "None" for i in range(rank + 2))
        text = f"tl.arange(0, {extent})[{index}]"
        if self.tile.windows > 1 and extent == self.tile.window:
            text = f"tl.program_id(1) * {extent} + {text}"
        hint = "f" if rank == 1 else f"f{axis}"
        return self.once(("axis", axis, rank, extent), hint, text)

    def offset_of(self, type_: Type) -> str:
        """The offset of every element of a value within its entity; "" where it is 0."""
        shape, extents = self.tile.features(type_), self.tile.extents(type_)
        offset = self.dot(shape, extents, row_major(shape))
        if self.tile.slices == 1 or type_.size == 1:
            return offset
        size = type_.size // self.tile.slices
        start = self.once(("slice", size), "slice", f"tl.program_id(1) * {size}")
        return f"{start} + {offset}" if offset else start

    def dot(self, shape: Shape, extents: Dims, strides: tuple[int, ...]) -> str:
        """sum(stride * position) over feature axes; "" where there is nothing to add."""
        terms = []
        for axis, (extent, stride) in enumerate(zip(extents, strides, strict=True)):
            if extent > 1 and stride:
                name = self.axis(axis, len(shape), extent)
                terms.append(name if stride == 1 else f"{name} * {stride}")
        return " + ".join(terms)

    def within(self, type_: Type) -> list[str]:
        """Conditions under which a position of a padded value exists."""
        shape, extents = self.tile.features(type_), self.tile.extents(type_)
        conditions = []
        for axis, (n, extent) in enumerate(zip(shape, extents, strict=True)):
            windows = self.tile.windows if extent == self.tile.window else 1
            if n != extent * windows:
                name = self.axis(axis, len(shape), extent)
                key = ("within", axis, len(shape), extent, n)
                conditions.append(self.once(key, "inside", f"{name} < {n}"))
        return conditions

    # shapes

    def dims(self, rows: int, edges: int, type_: Type) -> Dims:
        return (rows, edges, *self.tile.extents(type_))

    def full(self, value: Value, dims: Dims) -> Value:
        """The value with exactly these extents."""
        number = value.term.number
        if number is not None:
            text = f"tl.full({list(dims)}, {number_text(number)}, {dtype_text(value.dtype)})"
        elif value.dims == dims:
            return value
        else:
            text = f"tl.broadcast_to({value.text}, {list(dims)})"
        return Value(Term(text, value.dtype), dims)

    def table(self, content: np.ndarray) -> int:
        """The position of an int32 table among the kernel's tables."""
        start = len(self.tables)
        self.tables.extend(int(i) for i in content.ravel())
        return start


def at_rank(text: str, rank: int) -> str:
    """An index tensor [rows, edges], shaped for values with `rank` feature axes."""
    return f"{text}[:, :{', None' * rank}]" if rank else text
