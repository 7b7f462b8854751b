"""Kernels of whole-tensor programs: a task is a batch of rows, or of one row's columns.

Each row is walked once per phase: a phase computes what depends on the row reductions of the
phases before it. Accumulators have a fixed number of lanes, tasks a fixed extent, and partial
results of tasks are combined in their order: no result depends on the number of threads.
"""

from collections.abc import Callable, Sequence

from torch_mlir import ir
from torch_mlir.dialects import arith

from tiga.backends.llvm.dense import values as dv
from tiga.backends.llvm.dense.columns import ColumnReduction
from tiga.backends.llvm.dense.finish import add_finish, identity
from tiga.backends.llvm.dense.lanes import Row
from tiga.backends.llvm.dense.phase import Phase
from tiga.backends.llvm.dense.places import row_position
from tiga.backends.llvm.dense.slots import (
    STRETCH,
    part_dtype,
    partial_places,
    slot_names,
)
from tiga.backends.llvm.dense.stretches import Level, in_levels
from tiga.backends.llvm.dense.values import Value
from tiga.backends.llvm.dense.windows import bounded_start
from tiga.backends.llvm.lanes import integer
from tiga.backends.llvm.loops import Step, for_each, rolled_loop
from tiga.backends.llvm.memory import element_pointer, i64, register_element
from tiga.backends.llvm.task_function import launched
from tiga.ir import llvm
from tiga.ir.kernel_context import kernel_context
from tiga.ir.module import new_module
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
    Position,
    Read,
    Reduce,
    Spec,
)
from tiga.types import DType

AHEAD_COLUMNS = 8192
"""Columns up to which a row is asked for before it is read: a few such rows fit a cache."""

Body = Callable[[ir.Value, int, ir.Value | None, Sequence[ir.Value]], Sequence[ir.Value]]
"""What is done in some columns: the first, how many, which of them, and the values carried."""


def build(spec: Spec, name: str = "kernel") -> ir.Module:
    """The module with the kernel `void name(ptr table, i64 lo, i64 hi)`, and with `finish` if its
    tasks leave parts of results."""
    with new_module(kernel_context()) as module:
        with launched(name) as (table, low, high):
            TensorKernel(spec, table).run(low, high)
        if partial_places(spec):
            add_finish(spec)
    return module


class TensorKernel:
    """A kernel while its code is made: its arguments in registers (`words`, `pointers`, `scalars`),
    what it computes in which phase, and of the task that code is made for the columns [`low`,
    `high`), where the last full group of their lanes ends (`whole`), and where its parts of
    reductions over rows begin (`partial_row`)."""

    low: ir.Value
    high: ir.Value
    whole: ir.Value
    partial_row: ir.Value

    def __init__(self, spec: Spec, table: ir.Value) -> None:
        self.spec = spec
        self.levels = spec.levels
        self.table = table
        self.slots = {name: i for i, name in enumerate(slot_names(spec))}
        self.totals = self.ends(TOTAL)
        self.columns = [ColumnReduction(self, i) for i in self.ends(COLUMN)]
        self.scalars: dict[int, Value] = {}
        self.words = {name: self._word(i) for name, i in self.slots.items()}
        self.pointers = {
            name: llvm.inttoptr(llvm.PointerType.get(), self.words[name])
            for name in self.slots
            if name[0] in ("load", "store", "work", "fault")
        }
        for i, one in enumerate(spec.instructions):
            if one.kind == SCALAR and not isinstance(one, Apply):
                self.scalars[i] = self._scalar(one)
        self.common = spec.common
        self.phases = [Phase(self, number) for number in range(max(self.levels, default=0) + 1)]
        self.scratch = {i: self._allocate(spec.instructions[i]) for i in spec.stashed}

    def _word(self, slot: int) -> ir.Value:
        return llvm.load(integer(64), element_pointer(self.table, i64(slot), integer(64)))

    def size(self, name: str) -> ir.Value:
        """One of the first slots of the table."""
        return self.words["size", name]

    def _scalar(self, one: Instruction) -> Value:
        if isinstance(one, Constant):
            return dv.filled(dv.number(one.text, one.dtype), one.dtype, 1)
        if isinstance(one, Load):
            return dv.load(self.pointers["load", one.array], one.dtype, i64(0), 1, None)
        assert isinstance(one, Argument), f"{one} is no number by itself"
        word = self.words["argument", one.place]
        element = register_element(one.dtype)
        if not one.dtype.is_float:
            narrow = one.dtype.itemsize * 8 < 64
            return (arith.trunci(element, word) if narrow else word,)
        wide = arith.bitcast(ir.F64Type.get(), word)
        return (wide if element == ir.F64Type.get() else arith.truncf(element, wide),)

    def _allocate(self, one: Instruction) -> ir.Value:
        """Memory for a row's values of one instruction, on the stack."""
        element = register_element(one.dtype)
        count = arith.addi(self.size("columns"), i64(self.spec.lanes))
        return llvm.alloca(llvm.PointerType.get(), count, element, alignment=64)

    def ends(self, kind: str, phase: int | None = None) -> list[int]:
        """Reductions of a kind (that take place in a phase)."""
        kinds = self.spec.instructions
        return [
            i for i in self.spec.of(Reduce)
            if kinds[i].kind == kind and phase in (None, self.levels[kinds[i].inputs[0]])
        ]  # fmt: skip

    def full_stores(self, phase: int) -> list[int]:
        """The full values that a phase stores."""
        found = dict.fromkeys(self.spec.stores)
        kinds = self.spec.instructions
        return [i for i in found if kinds[i].kind == FULL and self.levels[i] == phase]

    def source(self, i: int) -> Instruction:
        """What a reduction reduces."""
        return self.spec.instructions[self.spec.instructions[i].inputs[0]]

    def identity(self, i: int, lanes: int, dtype: DType) -> Value:
        """The value that a reduction in a type starts from."""
        return identity(self.spec.reduction(i).combine, dtype, lanes)

    # tasks

    def run(self, low: ir.Value, high: ir.Value) -> None:
        """The loop over tasks."""
        for_each(low, high, 1, self._task, rolled_loop)

    def _task(self, task: ir.Value) -> None:
        tiles = self.size("tiles")
        batch, tile = arith.divui(task, tiles), arith.remui(task, tiles)
        first = arith.muli(batch, self.size("batch"))
        last = arith.minui(arith.addi(first, self.size("batch")), self.size("rows"))
        self.low = arith.muli(tile, self.size("tile"))
        self.high = arith.minui(arith.addi(self.low, self.size("tile")), self.size("columns"))
        self.whole = self._whole()
        self.partial_row = arith.muli(batch, self.size("columns"))
        for column_reduction in self.columns:
            column_reduction.begin()
        rows = self._stretches if self.spec.tall else self._rows
        start = [self.identity(i, self._total_lanes(i), self.partial(i)) for i in self.totals]
        ended = self._totals(rows(first, last, dv.flat(start)), self.partial)
        for i, value in zip(self.totals, ended, strict=True):
            name, width = self.spec.reduction(i).combine, self._total_lanes(i)
            result = dv.across_lanes(name, self.partial(i), value, width)
            self._store_at(i, result, task)

    def _whole(self) -> ir.Value:
        """Where the last full group of lanes of the task ends."""
        lanes = i64(self.spec.lanes)
        count = arith.subi(self.high, self.low)
        return arith.addi(self.low, arith.muli(arith.divui(count, lanes), lanes))

    def _total_lanes(self, i: int) -> int:
        return self.spec.lanes if self.source(i).kind == FULL else 1

    def _totals(self, values: Sequence[ir.Value], dtype: Callable[[int], DType]) -> list[Value]:
        return dv.grouped(values, [dtype(i) for i in self.totals])

    def carried(self, i: int) -> DType:
        """The type in which a total goes from row to row."""
        return self.partial(i) if self.spec.long else self.spec.reduction(i).dtype.compute

    def _store_at(self, i: int, value: Value, element: ir.Value) -> None:
        for place, stored in enumerate(self.spec.stores):
            if stored == i:
                base, dtype = self.pointers["store", place], self.partial(i)
                dv.store(base, dtype, value, element, 1, None)

    def partial(self, i: int) -> DType:
        """The type in which an instruction's result is stored."""
        one = self.spec.instructions[i]
        return part_dtype(self.spec, i) if one.kind in (COLUMN, TOTAL) else one.dtype

    def store_full(
        self, i: int, value: Value, offset: ir.Value, lanes: int, mask: ir.Value | None
    ) -> None:
        """Store lanes of a full value."""
        dtype = self.spec.instructions[i].dtype
        for place, stored in enumerate(self.spec.stores):
            if stored == i:
                base = self.pointers["store", place]
                dv.store(base, dtype, value, offset, lanes, mask, self.spec.streaming)

    # columns

    def over_columns(
        self, body: Body, carried: Sequence[ir.Value], levels: Sequence[Level] = ()
    ) -> list[ir.Value]:
        """Run `body(column, lanes, mask, carried)` over the task's columns; by stretches of them,
        where what is carried has `levels`."""
        lanes = self.spec.lanes

        def whole(column: ir.Value, values: Sequence[ir.Value]) -> Sequence[ir.Value]:
            if self.spec.backwards:
                column = arith.subi(arith.addi(self.low, self.whole), column)
                column = arith.subi(column, i64(lanes))
            return body(column, lanes, None, values)

        def rest(column: ir.Value, values: Sequence[ir.Value]) -> Sequence[ir.Value]:
            mask = dv.first_lanes(arith.subi(self.high, column), lanes)
            return body(column, lanes, mask, values)

        parts = [(self.low, self.whole, whole)]
        if lanes > 1:
            parts.append((self.whole, self.high, rest))
        ended = list(carried)
        for low, high, part in reversed(parts) if self.spec.backwards else parts:
            ended = self._counted(low, high, ended, part, levels)
        return ended

    def _counted(
        self, low: ir.Value, high: ir.Value, carried: Sequence[ir.Value], part: Step,
        levels: Sequence[Level],
    ) -> list[ir.Value]:  # fmt: skip
        lanes = self.spec.lanes
        if not levels:
            return rolled_loop(low, high, lanes, carried, part)
        stretch = STRETCH * lanes

        def some(first: ir.Value, outer: Sequence[ir.Value]) -> Sequence[ir.Value]:
            last = arith.minui(arith.addi(first, i64(stretch)), high)
            return in_levels(
                levels, outer, lambda inner: rolled_loop(first, last, lanes, inner, part)
            )

        return rolled_loop(low, high, stretch, carried, some)

    # rows

    def _stretches(
        self, first: ir.Value, last: ir.Value, carried: Sequence[ir.Value]
    ) -> Sequence[ir.Value]:
        """The rows by stretches of them, whose sums are added in wider types."""
        height = self.size("height")
        levels = [
            Level.through(self.carried(i)) if self.spec.long
            else Level.of(self.spec.reduction(i), self._total_lanes(i))
            for i in self.totals
        ]  # fmt: skip

        def some(low: ir.Value, outer: Sequence[ir.Value]) -> Sequence[ir.Value]:
            high = arith.minui(arith.addi(low, height), last)
            for one in self.columns:
                one.begin_stretch()
            ended = in_levels(levels, outer, lambda inner: self._rows(low, high, inner))
            for one in self.columns:
                one.end_stretch()
            return ended

        return rolled_loop(first, last, height, carried, some)

    def _rows(
        self, first: ir.Value, last: ir.Value, carried: Sequence[ir.Value]
    ) -> Sequence[ir.Value]:
        """The loop over rows: `spec.block` of them together, while there are so many."""

        def together(count: int) -> Callable[..., Sequence[ir.Value]]:
            return lambda at, values: dv.flat(
                self._block(at, count, self._totals(values, self.carried))
            )

        count = self.spec.block
        if count > 1:
            blocks = arith.divui(arith.subi(last, first), i64(count))
            whole = arith.addi(first, arith.muli(blocks, i64(count)))
            carried = rolled_loop(first, whole, count, carried, together(count))
            first = whole
        return rolled_loop(first, last, 1, carried, together(1))

    def _block(self, position: ir.Value, count: int, totals: list[Value]) -> list[Value]:
        rows = [Row(position if k == 0 else arith.addi(position, i64(k))) for k in range(count)]
        current = dict(zip(self.totals, totals, strict=True))
        for row in rows:
            self._locate(row, count)
        for phase in self.phases:
            phase.run(rows, current)
        for row in rows:
            self._end(row, current)
        return [current[i] for i in self.totals]

    def _end(self, row: Row, totals: dict[int, Value]) -> None:
        """Store a row's values, and combine them with reductions over rows."""
        for i in self.totals:
            if self.source(i).kind == ROW:
                one, dtype = self.spec.reduction(i), self.carried(i)
                value = dv.converted(self.row_value(row, one.inputs[0]), one.dtype.compute, dtype)
                totals[i] = dv.combine(one.combine, dtype, totals[i], value)
        for i in dict.fromkeys(self.spec.stores):
            if self.spec.instructions[i].kind == ROW:
                self._store_at(i, self.row_value(row, i), row.index)

    def _locate(self, row: Row, count: int) -> None:
        """Where every load starts in this row, and in the one `count` later, if rows are so short
        that it stays in a cache until then."""
        for one in self.spec.instructions:
            if not isinstance(one, Read) or one.kind == SCALAR:
                continue
            row.starts[one.array], there = self._start(one, row.index)
            if there is not None:
                row.there[one.array] = there
        short = arith.cmpi(arith.CmpIPredicate.slt, self.size("columns"), i64(AHEAD_COLUMNS))
        later = arith.select(short, arith.addi(row.index, i64(count)), row.index)
        for phase in self.phases:
            for i in self.spec.ahead(phase.number):
                row.ahead[i], _ = self._start(self.spec.load(i), later)

    def _start(self, one: Read, row: ir.Value) -> tuple[ir.Value, ir.Value | None]:
        """Where a load starts in a row, and whether it has the row, if some are missing."""
        number, rest, total = one.array, row, i64(0)
        for dim in range(one.dims):
            step = self.words["step", number, dim]
            place = rest
            if dim + 1 < one.dims:
                extent = self.words["extent", number, dim]
                place, rest = arith.remui(rest, extent), arith.divui(rest, extent)
            total = arith.addi(total, arith.muli(place, step))
        if isinstance(one, Load) and one.window is not None:
            return bounded_start(self, one, row, total)
        return total, None

    def row_value(self, row: Row, i: int) -> Value:
        """A row or scalar value, made at the insertion point if it is not there yet."""
        if i in self.scalars:
            return self.scalars[i]
        if i not in row.values:
            one = self.spec.instructions[i]
            if isinstance(one, Load):
                base = self.pointers["load", one.array]
                row.values[i] = dv.load(base, one.dtype, row.starts[one.array], 1, None)
            elif isinstance(one, Position):
                row.values[i] = row_position(self, row, one)
            else:
                assert isinstance(one, Apply), f"{one} is not known yet"
                args = [self.row_value(row, j) for j in one.inputs]
                row.values[i] = dv.apply(one.op, one.dtype, self.dtypes(one), args)
        return row.values[i]

    def first_use(self, i: int) -> int:
        """The first phase that needs a full value."""
        return next(phase.number for phase in self.phases if i in phase.full)

    def dtypes(self, one: Instruction) -> list[DType]:
        return [self.spec.instructions[j].dtype for j in one.inputs]
