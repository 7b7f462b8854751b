"""Kernels of whole-tensor programs as Triton source.

A program of the grid holds a tile of the domain: some rows, and a window of their columns (of a
flat domain: a run of elements). Where row reductions end within a tile the text is straight; where
a row is longer, each phase takes its windows in turn. Reductions over rows, or over everything,
leave one partial result per program, which `combine` adds in a fixed order.
"""

from dataclasses import dataclass, field
from functools import lru_cache

from tiga.backends.triton.arithmetic import Term, dtype_text, number_text, typed
from tiga.backends.triton.block import Block, Names
from tiga.backends.triton.dense import values as dv
from tiga.backends.triton.dense.form import DenseForm
from tiga.backends.triton.dense.memory import Memory
from tiga.backends.triton.dense.values import Value
from tiga.backends.triton.evaluate import ARITHMETIC, stored
from tiga.backends.triton.layout import Tile
from tiga.backends.triton.writer import KernelSource
from tiga.ops.arithmetic import round_to
from tiga.passes.tensor_spec import (
    COLUMN,
    FULL,
    ROW,
    SCALAR,
    TOTAL,
    Apply,
    Argument,
    Constant,
    Instruction,
    Load,
    Reduce,
    Spec,
    Spread,
)
from tiga.types import DType

Shape = tuple[int, int]
"""Extents of a value in registers: rows, columns."""


@lru_cache(maxsize=1024)
def build(spec: Spec, form: DenseForm, name: str = "kernel") -> KernelSource:
    """The source of a kernel."""
    return DenseKernel(spec, form, name).source()


@dataclass
class DenseKernel:
    """One kernel under construction: `values` holds what is computed so far, `shapes` the extents
    that each value has in registers."""

    spec: Spec
    form: DenseForm
    name: str
    body: Block = field(default_factory=Block)
    values: dict[int, Value] = field(default_factory=dict)
    shapes: dict[int, Shape] = field(default_factory=dict)
    accumulators: dict[int, list[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.names = Names()
        self.memory = Memory(self.spec, self.form, self.names)
        self.levels = self.spec.levels
        self.block = self.body

    def source(self) -> KernelSource:
        """The kernel's text and parameters."""
        self._scalars()
        if self.form.adds:
            self._added()
        else:
            self.memory.locate(self.body, None)
            self._tile()
        parameters = tuple(self.memory.parameters.values())
        head = f"def {self.name}({', '.join(p.name for p in parameters)}):"
        whole = Block(["@triton.jit"])
        whole.nest(head, Block([*self.memory.prologue.lines, *self.body.lines]))
        tile = Tile(self.form.rows, self.form.window, self.form.warps)
        return KernelSource(self.name, "\n".join(whole.lines) + "\n", parameters, (), tile)

    # the parts of a program

    def _scalars(self) -> None:
        for i, one in enumerate(self.spec.instructions):
            if one.kind != SCALAR or isinstance(one, Apply):
                continue
            self.shapes[i] = (1, 1)
            if isinstance(one, Constant):
                self.values[i] = dv.number(one.text, one.dtype)
            elif isinstance(one, Argument):
                self.values[i] = (self.memory.argument(one),)
            else:
                self.values[i] = self._load(i)

    def _added(self) -> None:
        """Tile after tile, then the partial results."""
        # A program that takes columns in turn cannot hold sums over rows for all of them.
        ends = self._ends(TOTAL) + ([] if self.form.loops else self._ends(COLUMN))
        for i in ends:
            self.accumulators[i] = self._start(i, self._accumulated(i))
        kept = dict(self.values)
        inner = Block()
        self.block = inner
        self.memory.locate(inner, "step")
        self._tile()
        self.body.nest(f"for step in range(0, {self.memory.steps()}):", inner)
        self.block, self.values = self.body, kept
        for i in ends:
            self._store_partial(i)

    def _start(self, i: int, shape: Shape) -> list[str]:
        """Accumulators of a reduction: a name for each part."""
        one = self.spec.reduction(i)
        found = []
        for part in dv.identity(one.combine, one.dtype):
            name = self.names.fresh({"add": "sum"}.get(one.combine, one.combine[:3]))
            assert part.number is not None
            dims = self.memory.dims(shape)
            text = f"tl.full({dims}, {number_text(part.number)}, {dtype_text(part.dtype)})"
            self.block.add(f"{name} = {text}")
            found.append(name)
        return found

    def _accumulated(self, i: int) -> Shape:
        kind = self.spec.instructions[self.spec.instructions[i].inputs[0]].kind
        return (self.form.rows, self.form.window if kind == FULL else 1)

    def _tile(self) -> None:
        """What is computed of one tile of rows."""
        if not self.form.loops:
            self._phase(None)
            self._store_rows()
            return
        for phase in range(max(self.levels, default=0) + 1):
            self._looped_phase(phase)
        for i in self._ends(TOTAL):
            if self._source(i).kind == ROW:
                self._accumulate(i)
        self._store_rows()

    def _looped_phase(self, phase: int) -> None:
        """A phase whose columns are taken in turn."""
        rows = self._ends(ROW, phase)
        others = [i for i in self._ends(TOTAL, phase) + self._ends(COLUMN, phase)
                  if self._source(i).kind == FULL]  # fmt: skip
        stores = self._full_stores(phase)
        if not (rows or others or stores):
            return
        self._prepare([*(self.spec.instructions[i].inputs[0] for i in (*rows, *others)), *stores])
        for i in rows:
            self.accumulators[i] = self._start(i, (self.form.rows, self.form.window))
        outer, kept = self.block, dict(self.values)
        self.block = Block()
        self.memory.take_window(self.block)
        for i in (*rows, *others):
            if self.spec.instructions[i].kind == COLUMN:
                self._add_to_column(i)
            else:
                self._accumulate(i)
        for i in stores:
            self._store(i)
        inner, self.block = self.block, outer
        columns = self.memory.columns()
        outer.nest(f"for start in range(0, {columns}, {self.form.window}):", inner)
        self.values = kept
        for i in rows:
            one = self.spec.instructions[i]
            terms = tuple(Term(n, dv.part_dtype(one.dtype).compute) for n in self.accumulators[i])
            self._end_row(i, terms)

    def _phase(self, phase: int | None) -> None:
        """Everything that one straight tile computes."""
        for i in self._ends(COLUMN) + self._ends(TOTAL):
            self._accumulate(i)
        for i in self._full_stores(phase):
            self._store(i)

    # reductions

    def _ends(self, kind: str, phase: int | None = None) -> list[int]:
        """Reductions of a kind (that take place in a phase)."""
        kinds = self.spec.instructions
        return [
            i for i in self.spec.of(Reduce)
            if kinds[i].kind == kind and phase in (None, self.levels[kinds[i].inputs[0]])
        ]  # fmt: skip

    def _source(self, i: int) -> Instruction:
        return self.spec.instructions[self.spec.instructions[i].inputs[0]]

    def _full_stores(self, phase: int | None) -> list[int]:
        found = dict.fromkeys(self.spec.stores)
        kinds = self.spec.instructions
        return [i for i in found if kinds[i].kind == FULL and phase in (None, self.levels[i])]

    def _masked(self, i: int) -> Value:
        """What a reduction takes: its operand, and what changes nothing past the domain's end."""
        one = self.spec.reduction(i)
        source = one.inputs[0]
        value, shape = self.value(source), self._accumulated(i)
        mask = self.memory.mask(shape)
        if mask is not None:
            return dv.selected(mask, value, dv.identity(one.combine, one.dtype))
        if self.shapes[source] == shape:
            return value
        dims = self.memory.dims(shape)
        return tuple(Term(f"tl.broadcast_to({typed(v).text}, {dims})", v.dtype) for v in value)

    def _accumulate(self, i: int) -> None:
        one = self.spec.reduction(i)
        names = self.accumulators[i]
        state = tuple(Term(n, dv.part_dtype(one.dtype).compute) for n in names)
        joined = dv.combined(one.combine, one.dtype, state, self._masked(i))
        for name, term in zip(names, joined, strict=True):
            self.block.add(f"{name} = {_bare(term.text)}")

    def _add_to_column(self, i: int) -> None:
        """Combine these columns with the program's partial results in memory."""
        one = self.spec.reduction(i)
        value = dv.reduced(one.combine, self._masked(i), 0, True)
        for place, stored_ in enumerate(self.spec.stores):
            if stored_ == i:
                before = self.memory.load_partial(self.block, place, one)
                first = dv.selected("step == 0", dv.identity(one.combine, one.dtype), before)
                joined = dv.combined(one.combine, one.dtype, first, value)
                self.memory.store_partial(self.block, place, one, joined)
                self.block.add("tl.debug_barrier()")

    def _end_row(self, i: int, value: Value) -> None:
        """The row values that a reduction over columns ends in."""
        one = self.spec.reduction(i)
        ended = dv.reduced(one.combine, value, 1, True)
        rounded = tuple(_rounded(term, one.dtype) for term in ended)
        hint = {"add": "row_sum"}.get(one.combine, f"row_{one.combine[:3]}")
        self.values[i] = tuple(self._named(hint, term) for term in rounded)
        self.shapes[i] = (self.form.rows, 1)

    def _store_partial(self, i: int) -> None:
        one = self.spec.reduction(i)
        state = tuple(Term(n, dv.part_dtype(one.dtype).compute) for n in self.accumulators[i])
        axis = 0 if one.kind == COLUMN else None
        value = dv.reduced(one.combine, state, axis, one.kind == COLUMN)
        for place, stored_ in enumerate(self.spec.stores):
            if stored_ == i:
                self.memory.store_partial(self.block, place, one, value)

    # values

    def value(self, i: int) -> Value:
        """One instruction's value, computed where it is first needed."""
        if i not in self.values:
            one = self.spec.instructions[i]
            made = self._make(i, one)
            self.values[i] = made
        return self.values[i]

    def _make(self, i: int, one: Instruction) -> Value:
        if isinstance(one, Load):
            return self._load(i)
        if isinstance(one, Reduce):
            assert one.kind == ROW, f"{one} ends after the kernel"
            self._end_row(i, self._masked(i))
            return self.values[i]
        args = [self.value(j) for j in one.inputs]
        shapes = [self.shapes[j] for j in one.inputs]
        self.shapes[i] = (max(s[0] for s in shapes), max(s[1] for s in shapes))
        if isinstance(one, Spread):
            return args[0]
        assert isinstance(one, Apply), f"no kernel for GPUs has {one}"
        sources = [self.spec.instructions[j].dtype for j in one.inputs]
        hint = one.op.name
        value = dv.apply(one.op, one.dtype, sources, args, lambda t: self._named(hint, t))
        return tuple(self._named(hint, term) for term in value)

    def _named(self, hint: str, term: Term) -> Term:
        if term.number is not None or term.text.isidentifier():
            return term
        name = self.names.fresh(hint)
        self.block.add(f"{name} = {_bare(typed(term).text)}")
        return Term(name, term.dtype)

    def _load(self, i: int) -> Value:
        one = self.spec.load(i)
        self.shapes[i] = self.memory.shape_of(one)
        texts = self.memory.load(self.block, one, self.shapes[i])
        part = dv.part_dtype(one.dtype)
        return tuple(self._named(f"x{one.array}", dv.loaded(t, part)) for t in texts)

    def _prepare(self, wanted: list[int]) -> None:
        """Make the row values that the full values of a phase read, before its loop."""
        for i in self.spec.read_of_rows(wanted):
            self.value(i)

    # stores

    def _store_rows(self) -> None:
        for i in dict.fromkeys(self.spec.stores):
            if self.spec.instructions[i].kind in (ROW, SCALAR):
                self._store(i)

    def _store(self, i: int) -> None:
        one, value = self.spec.instructions[i], self.value(i)
        part = dv.part_dtype(one.dtype)
        rounded = tuple(stored(typed(term), part) for term in value)
        for place, stored_ in enumerate(self.spec.stores):
            if stored_ == i:
                self.memory.store(self.block, place, one, rounded)


def _bare(text: str) -> str:
    """An expression without parentheses around all of it."""
    if not (text.startswith("(") and text.endswith(")")):
        return text
    depth = 0
    for place, character in enumerate(text):
        depth += {"(": 1, ")": -1}.get(character, 0)
        if depth == 0 and place < len(text) - 1:
            return text
    return text[1:-1]


def _rounded(term: Term, dtype: DType) -> Term:
    return term if dtype.is_complex else round_to(ARITHMETIC, term, dtype)
