"""What follows a kernel whose tasks leave parts of results: the parts, combined in a fixed order.

Parts of sums add in double precision where there is one, those of totals in several lanes.
"""

from collections.abc import Sequence

from torch_mlir import ir
from torch_mlir.dialects import arith, scf

from tiga.backends.llvm.complex_values import Value
from tiga.backends.llvm.dense import values as dv
from tiga.backends.llvm.dense.slots import part_dtype, slot_names, wider
from tiga.backends.llvm.lanes import integer
from tiga.backends.llvm.loops import for_each, rolled_loop
from tiga.backends.llvm.memory import element_pointer, i64
from tiga.backends.llvm.task_function import task_function
from tiga.ir import llvm
from tiga.ops.monoid import COMBINED_BY
from tiga.passes.tensor_spec import COLUMN, TOTAL, Spec
from tiga.types import DType

TOTAL_LANES = 8
"""Parts of a total that are combined side by side."""

COLUMN_LANES = 16
"""Neighbouring columns that are combined at once."""


def identity(name: str, dtype: DType, lanes: int) -> Value:
    """The value that a reduction starts from."""
    monoid = COMBINED_BY[name]
    number = monoid.identity_value if dtype.is_complex else monoid.identity(dtype)
    return dv.filled(number, dtype, lanes)


def add_finish(spec: Spec, name: str = "finish") -> None:
    """Add the function `void finish(ptr table, i64 lo, i64 hi)` to the module at the insertion
    point. Its tasks are ranges of columns, group by group of rows; the first has the totals too."""
    task_function(name, lambda table: _Finish(spec, table).task, rolled_loop)


class _Finish:
    def __init__(self, spec: Spec, table: ir.Value) -> None:
        self.spec, self.table = spec, table
        self.slots = {name: i for i, name in enumerate(slot_names(spec))}
        self.columns = self._word(("size", "columns"))
        kinds = [spec.instructions[i].kind for i in spec.stores]
        self.places = {
            wanted: [place for place, kind in enumerate(kinds) if kind == wanted]
            for wanted in (COLUMN, TOTAL)
        }

    def _word(self, name: tuple) -> ir.Value:
        place = element_pointer(self.table, i64(self.slots[name]), integer(64))
        return llvm.load(integer(64), place)

    def pointer(self, kind: str, place: int) -> ir.Value:
        return llvm.inttoptr(llvm.PointerType.get(), self._word((kind, place)))

    def task(self, task: ir.Value) -> None:
        """Combine what belongs to one task."""
        for place in self.places[COLUMN]:
            self._columns(place, task)
        if not self.places[TOTAL]:
            return
        first = scf.IfOp(arith.cmpi(arith.CmpIPredicate.eq, task, i64(0)))
        with ir.InsertionPoint(first.then_block):
            for place in self.places[TOTAL]:
                self._total(place)
            scf.yield_([])

    def _total(self, place: int) -> None:
        count, lanes = self._word(("size", "tasks")), TOTAL_LANES
        part = _Part(self, place)

        def some(first: ir.Value, carried: Sequence[ir.Value]) -> Sequence[ir.Value]:
            mask = dv.first_lanes(arith.subi(count, first), lanes)
            state = tuple(carried)
            return dv.flat([dv.choose(mask, part.added(state, first, lanes, mask), state)])

        ended = rolled_loop(i64(0), count, lanes, dv.flat([part.start(lanes)]), some)
        one = dv.across_lanes(part.combine, part.wide, tuple(ended), lanes)
        part.store(one, i64(0), 1, None)

    def _columns(self, place: int, task: ir.Value) -> None:
        blocks, width = self._word(("size", "blocks")), self._word(("size", "width"))
        parts, lanes = self._word(("size", "parts")), COLUMN_LANES
        group = arith.divui(task, blocks)
        low = arith.muli(arith.remui(task, blocks), width)
        high = arith.minui(arith.addi(low, width), self.columns)
        into = arith.muli(group, self.columns)
        start = arith.muli(into, parts)
        part = _Part(self, place)

        def some(column: ir.Value) -> None:
            mask = dv.first_lanes(arith.subi(high, column), lanes)
            first = arith.addi(start, column)

            def one(number: ir.Value, state: Sequence[ir.Value]) -> Sequence[ir.Value]:
                at = arith.addi(first, arith.muli(number, self.columns))
                return dv.flat([part.added(tuple(state), at, lanes, mask)])

            ended = rolled_loop(i64(0), parts, 1, dv.flat([part.start(lanes)]), one)
            part.store(tuple(ended), arith.addi(into, column), lanes, mask)

        for_each(low, high, lanes, some, rolled_loop)


class _Part:
    """How parts of one result are read and combined, and where it goes."""

    def __init__(self, finish: _Finish, place: int) -> None:
        number = finish.spec.stores[place]
        one = finish.spec.reduction(number)
        self.combine, self.dtype = one.combine, one.dtype
        self.stored = part_dtype(finish.spec, number)
        self.wide = wider(self.stored) if one.combine == "add" else self.stored
        self.base, self.into = finish.pointer("store", place), finish.pointer("result", place)

    def start(self, lanes: int) -> Value:
        return identity(self.combine, self.wide, lanes)

    def added(self, state: Value, at: ir.Value, lanes: int, mask: ir.Value) -> Value:
        """The state with the parts from an element on; what is masked is no part."""
        loaded = dv.load(self.base, self.stored, at, lanes, mask)
        return dv.combine(
            self.combine, self.wide, state, dv.converted(loaded, self.stored, self.wide)
        )

    def store(self, value: Value, element: ir.Value, lanes: int, mask: ir.Value | None) -> None:
        """Store results from an element on."""
        narrow = dv.converted(value, self.wide, self.dtype.compute)
        dv.store(self.into, self.dtype, narrow, element, lanes, mask)
