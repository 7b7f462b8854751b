"""A phase of a whole-tensor kernel: one loop over the columns of some rows, which reduces and
stores."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from torch_mlir import ir
from torch_mlir.dialects import arith

from tiga.backends.llvm.dense import values as dv
from tiga.backends.llvm.dense.lanes import Lanes, Row
from tiga.backends.llvm.dense.places import pick_row
from tiga.backends.llvm.dense.scans import first_state, state_dtype
from tiga.backends.llvm.dense.stretches import Level
from tiga.backends.llvm.dense.values import Value
from tiga.passes.tensor_spec import COLUMN, FULL, ROW, TOTAL, Gather, RowScan
from tiga.types import DType

if TYPE_CHECKING:
    from tiga.backends.llvm.dense.kernel import TensorKernel


class Phase:
    """What the loop makes: reductions along rows (`reductions`), over rows (`columns`) and over
    both (`sums`), full values that it stores, and all full values that these read (`full`)."""

    def __init__(self, kernel: "TensorKernel", number: int) -> None:
        self.kernel, self.number, self.spec = kernel, number, kernel.spec
        self.reductions = kernel.ends(ROW, number)
        self.sums = [i for i in kernel.ends(TOTAL, number) if kernel.source(i).kind == FULL]
        self.columns = [one for one in kernel.columns if one.number in kernel.ends(COLUMN, number)]
        self.stores = kernel.full_stores(number)
        ends = (*self.reductions, *self.sums, *(one.number for one in self.columns))
        self.wanted = [*(self.spec.instructions[i].inputs[0] for i in ends), *self.stores]
        self.full = self.spec.full(self.wanted)
        self.scans = self.spec.reached(self.wanted, RowScan)

    def run(self, rows: Sequence[Row], totals: dict[int, Value]) -> None:
        """Make the loop over the columns of some rows together, and their row values; `totals` are
        the accumulators of totals, which are exchanged for the next."""
        if not self.wanted:
            return
        for row in rows:
            self._prepare(row)
        levels = self._levels(len(rows))
        start = self._start(len(rows), totals, levels)
        body = partial(self._body, rows, [level.dtype for level in levels])
        looped = self.kernel.over_columns(body, dv.flat(start), levels if self.spec.long else ())
        ended = dv.grouped(looped, [level.outer for level in levels])
        width = len(self.reductions)
        for place, row in enumerate(rows):
            own = ended[width * place : width * (place + 1)]
            for i, level, value in zip(self.reductions, levels, own, strict=False):
                row.values[i] = self._across_lanes(i, level, value)
        totals.update(zip(self.sums, ended[width * len(rows) :], strict=False))

    def _prepare(self, row: Row) -> None:
        """Make the row values that the full values of a phase read, before its loop."""
        for i in self.spec.read_of_rows(self.wanted):
            self.kernel.row_value(row, i)
        for i in self.spec.reached(self.wanted, Gather):
            pick_row(self.kernel, row, i)

    def _levels(self, rows: int) -> list[Level]:
        """Those of what the loop carries: reductions row by row, then totals, then scans."""
        carried = [self.spec.reduction(i) for i in (*self.reductions * rows, *self.sums)]
        scans = (Level.through(state_dtype(self.spec, i)) for i in self.scans)
        if not self.spec.long:
            return [*(Level.through(one.dtype) for one in carried), *scans]
        return [*(Level.of(one, self.spec.lanes) for one in carried), *scans]

    def _start(self, rows: int, totals: dict[int, Value], levels: Sequence[Level]) -> list[Value]:
        reductions = (
            self.kernel.identity(i, self.spec.lanes, level.outer)
            for i, level in zip(self.reductions * rows, levels, strict=False)
        )
        scans = (first_state(self.spec, i) for i in self.scans)
        return [*reductions, *(totals[i] for i in self.sums), *scans]

    def _body(
        self, rows: Sequence[Row], dtypes: Sequence[DType], column: ir.Value, lanes: int,
        mask: ir.Value | None, carried: Sequence[ir.Value],
    ) -> Sequence[ir.Value]:  # fmt: skip
        """What is done in some columns, one row after the other; scans have blocks of one row."""
        common: dict[int, Value] = {}
        every = [Lanes(self.kernel, r, column, lanes, mask, self.number, common) for r in rows]
        states = dv.grouped(carried, dtypes)
        first, width = every[0], len(self.reductions)
        sums = slice(width * len(rows), width * len(rows) + len(self.sums))
        first.carries.update(zip(self.scans, states[sums.stop :], strict=True))
        for place, one in enumerate(every):
            one.look_ahead()
            own = slice(width * place, width * (place + 1))
            states[own] = map(one.reduced, self.reductions, states[own])
            states[sums] = map(one.reduced, self.sums, states[sums])
            self._store(one)
        for column_reduction in self.columns:
            column_reduction.add(every)
        return dv.flat([*states[: sums.stop], *(first.carries[i] for i in self.scans)])

    def _store(self, one: Lanes) -> None:
        for i in self.stores:
            start = arith.muli(one.row.index, self.kernel.size("columns"))
            offset = arith.addi(start, one.column)
            self.kernel.store_full(i, one.value(i), offset, one.lanes, one.mask)

    def _across_lanes(self, i: int, level: Level, value: Value) -> Value:
        one = self.spec.reduction(i)
        whole = dv.across_lanes(one.combine, level.outer, value, self.spec.lanes)
        return dv.rounded(dv.converted(whole, level.outer, level.dtype), one.dtype)
