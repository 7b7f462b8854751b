"""What a whole-tensor kernel reads and writes: parameters, offsets, masks, loads and stores."""

from collections.abc import Hashable
from dataclasses import dataclass, field

from tiga.backends.triton.arithmetic import Term, typed
from tiga.backends.triton.block import Block, Names
from tiga.backends.triton.dense import values as dv
from tiga.backends.triton.dense.form import DenseForm
from tiga.backends.triton.dense.values import Value
from tiga.backends.triton.evaluate import stored
from tiga.backends.triton.writer import Parameter, pointer_type
from tiga.passes.tensor_spec import (
    COLUMN,
    ROW,
    SCALAR,
    Argument,
    Instruction,
    Load,
    Reduce,
    Spec,
)
from tiga.types import DType, float32, float64

Shape = tuple[int, int]

FRAME = ("row", "column", "element", "start", "step", "program", "rows", "columns", "steps", "pair")
"""Names of the frame, which no value gets."""

_ARGUMENTS = {float64: "fp64", float32: "fp32"}


@dataclass
class Memory:
    """Addresses of one kernel. Flat domains have tiles `[window]`, others `[rows, window]`."""

    spec: Spec
    form: DenseForm
    names: Names
    prologue: Block = field(default_factory=Block)
    parameters: dict[Hashable, Parameter] = field(default_factory=dict)
    starts: dict[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.names.taken |= dict.fromkeys(FRAME, 1)
        self.index = "i64" if self.form.wide else "i32"

    def parameter(self, key: Hashable, hint: str, type_: str) -> str:
        """The name of a parameter, declared at its first use."""
        if key not in self.parameters:
            taken = {p.name for p in self.parameters.values()}
            name = hint if hint in FRAME and hint not in taken else self.names.fresh(hint)
            self.parameters[key] = Parameter(name, type_, key)
        return self.parameters[key].name

    def extent(self, name: str) -> str:
        """An extent of the domain; in units where it is a multiple of one."""
        text = self.parameter(("size", name), name, self.index)
        return f"({text} * {self.form.unit})" if name == "columns" and self.form.unit > 1 else text

    def columns(self) -> str:
        return self.extent("columns")

    def steps(self) -> str:
        return self.parameter(("size", "steps"), "steps", "i32")

    def argument(self, one: Argument) -> Term:
        """A number among the kernel's arguments."""
        compute = one.dtype.compute
        type_ = _ARGUMENTS.get(compute, "i64" if compute.itemsize == 8 else "i32")
        name = self.parameter(("argument", one.place), "number", type_)
        if not compute.is_float and compute.itemsize < 4:
            return Term(f"{name}.to(tl.{compute})", compute)
        return Term(name, compute)

    # places

    def dims(self, shape: Shape) -> list[int]:
        """A tile's extents as Triton sees them."""
        return [shape[1]] if self.spec.flat else list(shape)

    def _program(self) -> str:
        return "tl.program_id(0)" + (".to(tl.int64)" if self.form.wide else "")

    def locate(self, block: Block, step: str | None) -> None:
        """Say which rows, or elements, the tile has."""
        tile = self._program() if step is None else f"{self._program()} * {self.steps()} + step"
        form = self.form
        if self.spec.flat:
            start = f"({tile})" if step else tile
            block.add(f"element = {start} * {form.window} + tl.arange(0, {form.window})")
            if not form.even_columns:
                block.add(f"inside = element < {self.columns()}")
            return
        if not form.loops:
            windowed = "" if self._is_whole() else f"tl.program_id(1) * {form.window} + "
            where = self.prologue
            where.add(f"column = {windowed}tl.arange(0, {form.window})[None, :]")
            if not form.even_columns:
                where.add(f"in_columns = column < {self.columns()}")
        tile = f"({tile})" if step else tile
        rows = f"tl.arange(0, {form.rows})[:, None]"
        block.add(
            f"row = {tile} * {form.rows} + {rows}" if form.rows > 1 else f"row = {tile} + {rows}"
        )
        if not form.even_rows:
            block.add(f"in_rows = row < {self.extent('rows')}")
        for one in self.spec.instructions:
            if isinstance(one, Load) and one.kind != SCALAR and one.dims:
                self._locate_load(block, one)

    def _is_whole(self) -> bool:
        return any(isinstance(i, Reduce) and i.kind == ROW for i in self.spec.instructions)

    def take_window(self, block: Block) -> None:
        """Say which columns a turn of the loop over windows has."""
        block.add(f"column = start + tl.arange(0, {self.form.window})[None, :]")
        if not self.form.even_columns:
            block.add(f"in_columns = column < {self.columns()}")

    def mask(self, shape: Shape) -> str | None:
        """Where a value of this shape lies within the domain; None: everywhere."""
        if self.spec.flat:
            return None if self.form.even_columns or shape[1] == 1 else "inside"
        conditions = []
        if not self.form.even_rows and (shape[0] > 1 or self.form.rows == 1):
            conditions.append("in_rows")
        if shape[1] > 1 and not self.form.even_columns:
            conditions.append("in_columns")
        return " & ".join(conditions) or None

    def shape_of(self, one: Load) -> Shape:
        """The extents of what a load gives."""
        if one.kind == SCALAR:
            return 1, 1
        if self.spec.flat:
            return 1, self.form.window
        rows = self.form.rows if one.dims or one.kind == ROW else 1
        return rows, self.form.window if one.moves else 1

    def _locate_load(self, block: Block, one: Load) -> None:
        """Say where a load starts in each row of the tile."""
        number = one.array
        unit = self.form.unit if one.moves else 1
        terms, rest = [], "row"
        for dim in range(one.dims):
            step = self.parameter(("step", number, dim), f"step{number}", self.index)
            step = f"({step} * {unit})" if unit > 1 else step
            place = rest
            if dim + 1 < one.dims:
                extent = self.parameter(("extent", number, dim), f"extent{number}", self.index)
                place, rest = f"({rest} % {extent})", f"({rest} // {extent})"
            terms.append(f"{place} * {step}")
        self.starts[number] = self.names.fresh(f"start{number}")
        block.add(f"{self.starts[number]} = {' + '.join(terms)}")

    # loads and stores

    def load(self, block: Block, one: Load, shape: Shape) -> list[str]:
        """The expressions of a loaded value's parts."""
        base = self.parameter(("load", one.array), f"p{one.array}", _pointer(one.dtype))
        if one.kind == SCALAR:
            places = [base, f"{base} + 1"][: dv.parts(one.dtype)]
            return [f"tl.load({place})" for place in places]
        if self.spec.flat:
            offset = "element"
        else:
            start = [self.starts[one.array]] if one.dims else []
            offset = " + ".join([*start, *(["column"] if one.moves else [])]) or "0"
        mask = self.mask(shape)
        if one.dtype.is_complex:
            return self._load_pair(block, base, offset, mask, f"x{one.array}")
        guard = f", mask={mask}, other=0" if mask else ""
        return [f"tl.load({base} + {offset}{guard})"]

    def _pairs(self, base: str, offset: str, mask: str | None) -> tuple[str, str]:
        """Pointers to both parts of complex numbers, side by side, and their guard."""
        end = "[:, None]" if self.spec.flat else "[:, :, None]"
        lead = "[None, :]" if self.spec.flat else "[None, None, :]"
        guard = f", mask={_joined(mask)}{end}" if mask else ""
        return f"{base} + ({_joined(offset)} * 2){end} + tl.arange(0, 2){lead}", guard

    def _load_pair(
        self, block: Block, base: str, offset: str, mask: str | None, name: str
    ) -> list[str]:
        pointers, guard = self._pairs(base, offset, mask)
        other = ", other=0" if guard else ""
        real, imag = (self.names.fresh(f"{name}_{part}") for part in ("re", "im"))
        block.add(f"{real}, {imag} = tl.split(tl.load({pointers}{guard}{other}))")
        return [real, imag]

    def store(self, block: Block, place: int, one: Instruction, value: Value) -> None:
        """Store a full value, or one of rows, into an output."""
        base = self.parameter(("store", place), f"out{place}", _pointer(one.dtype))
        if self.spec.flat:
            offset, shape = "element", (1, self.form.window)
        elif one.kind == ROW:
            offset, shape = "row", (self.form.rows, 1)
        else:
            offset, shape = f"row * {self.columns()} + column", (self.form.rows, self.form.window)
        self._write(block, base, offset, self.mask(shape), shape, one.dtype, value)

    def _partial_place(self) -> tuple[str, str | None]:
        """Where a program's result of a reduction over rows is, and the guard of its columns."""
        offset = f"{self._program()} * {self.columns()} + column"
        return offset, None if self.form.even_columns else "in_columns"

    def load_partial(self, block: Block, place: int, one: Reduce) -> Value:
        """What a program has stored of a reduction over rows."""
        dtype = one.dtype.compute
        base = self.parameter(("store", place), f"out{place}", _pointer(dtype))
        offset, mask = self._partial_place()
        part = dv.part_dtype(dtype)
        if dtype.is_complex:
            texts = self._load_pair(block, base, offset, mask, f"x{one.combine}")
            return tuple(Term(text, part) for text in texts)
        guard = f", mask={mask}, other=0" if mask else ""
        return (Term(f"tl.load({base} + {offset}{guard})", part),)

    def store_partial(self, block: Block, place: int, one: Instruction, value: Value) -> None:
        """Store what a program has of a reduction over rows, or over everything."""
        dtype = one.dtype if self.form.single else one.dtype.compute
        base = self.parameter(("store", place), f"out{place}", _pointer(dtype))
        if not one.dtype.is_complex:
            value = (stored(typed(value[0]), dtype),)
        if one.kind == COLUMN:
            offset, mask = self._partial_place()
            self._write(block, base, offset, mask, (1, self.form.window), dtype, value)
            return
        windows = "" if self.spec.flat else " * tl.num_programs(1) + tl.program_id(1)"
        offset = f"tl.program_id(0){windows}"
        for part, term in enumerate(value):
            where = f"({offset}) * 2 + {part}" if dtype.is_complex else offset
            block.add(f"tl.store({base} + {where}, {term.text})")

    def _write(
        self, block: Block, base: str, offset: str, mask: str | None, shape: Shape, dtype: DType,
        value: Value,
    ) -> None:  # fmt: skip
        if dtype.is_complex:
            pointers, guard = self._pairs(base, offset, mask)
            dims = self.dims(shape)
            whole = [f"tl.broadcast_to({term.text}, {dims})" for term in value]
            block.add(f"tl.store({pointers}, tl.join({', '.join(whole)}){guard})")
            return
        guard = f", mask={mask}" if mask else ""
        block.add(f"tl.store({base} + {offset}, {value[0].text}{guard})")


def _joined(text: str) -> str:
    """An expression that may be followed by an operator."""
    return text if text.isidentifier() else f"({text})"


def _pointer(dtype: DType) -> str:
    return pointer_type(dv.part_dtype(dtype))
