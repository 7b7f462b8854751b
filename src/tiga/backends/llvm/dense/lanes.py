"""Full values of a whole-tensor kernel at a run of columns, computed as they are asked for."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from torch_mlir import ir
from torch_mlir.dialects import arith

from tiga.backends.llvm.dense import places, scans, windows
from tiga.backends.llvm.dense import values as dv
from tiga.backends.llvm.dense.values import Value
from tiga.passes.tensor_spec import (
    ROW,
    SCALAR,
    Apply,
    Gather,
    Instruction,
    Load,
    Position,
    RowScan,
    Spread,
)

if TYPE_CHECKING:
    from tiga.backends.llvm.dense.kernel import TensorKernel


@dataclass
class Row:
    """One row while code for it is made: where loads start (and whether they are `there`), its row
    values, and where gathers read that have one position for all of it."""

    index: ir.Value
    starts: dict[int, ir.Value] = field(default_factory=dict)
    there: dict[int, ir.Value] = field(default_factory=dict)
    ahead: dict[int, ir.Value] = field(default_factory=dict)
    """Where loads start in the row that is asked for ahead of time."""
    values: dict[int, Value] = field(default_factory=dict)
    picks: dict[int, ir.Value] = field(default_factory=dict)


@dataclass
class Lanes:
    """Full values at a run of columns; `common` are those that all rows share, `carries` what
    scans carry to the next columns."""

    kernel: "TensorKernel"
    row: Row
    column: ir.Value
    lanes: int
    mask: ir.Value | None
    phase: int
    common: dict[int, Value]
    values: dict[int, Value] = field(default_factory=dict)
    carries: dict[int, Value] = field(default_factory=dict)

    def value(self, i: int) -> Value:
        """One instruction's lanes."""
        known = self.common if i in self.kernel.common else self.values
        if i not in known:
            known[i] = self._make(i)
        return known[i]

    def _make(self, i: int) -> Value:
        kernel = self.kernel
        one = kernel.spec.instructions[i]
        if one.kind in (ROW, SCALAR):
            return dv.spread(kernel.row_value(self.row, i), self.lanes)
        return _MAKERS[type(one)](self, i)

    def spread(self, i: int) -> Value:
        """A row's value at these columns."""
        return self.value(self.kernel.spec.instructions[i].inputs[0])

    def applied(self, i: int) -> Value:
        """What a pointwise op makes, unless an earlier phase did and kept it."""
        kernel = self.kernel
        one = kernel.spec.one(Apply, i)
        if i in kernel.scratch and self._kept(i):
            return self._scratch(i, one)
        if (mask := places.compared(self, one)) is not None:
            return mask
        args = [self.value(j) for j in one.inputs]
        made = dv.apply(one.op, one.dtype, kernel.dtypes(one), args)
        if i in kernel.scratch:
            dv.store(kernel.scratch[i], one.dtype.compute, made, self.column, self.lanes, None)
        return made

    def _kept(self, i: int) -> bool:
        """Whether an earlier phase computed the value already."""
        return self.phase > self.kernel.first_use(i)

    def _scratch(self, i: int, one: Instruction) -> Value:
        return dv.load(self.kernel.scratch[i], one.dtype.compute, self.column, self.lanes, None)

    def loaded(self, i: int) -> Value:
        """What is in memory."""
        one = self.kernel.spec.load(i)
        if one.window is not None:
            return windows.loaded(self, one)
        kernel, number = self.kernel, one.array
        base, start = kernel.pointers["load", number], self.row.starts[number]
        if not one.moves:
            return dv.spread(dv.load(base, one.dtype, start, 1, None), self.lanes)
        return dv.load(base, one.dtype, arith.addi(start, self.column), self.lanes, self.mask)

    def look_ahead(self) -> None:
        """Ask for what a later row has in these columns."""
        kernel = self.kernel
        for i in kernel.spec.ahead(self.phase):
            one = kernel.spec.load(i)
            base, start = kernel.pointers["load", one.array], self.row.ahead[i]
            dv.prefetch(base, one.dtype, arith.addi(start, self.column), self.lanes)

    def reduced(self, i: int, state: Value) -> Value:
        """A reduction's accumulator with these lanes."""
        one = self.kernel.spec.reduction(i)
        joined = dv.combine(one.combine, one.dtype, state, self.value(one.inputs[0]))
        return joined if self.mask is None else dv.choose(self.mask, joined, state)


_MAKERS: dict[type[Instruction], Callable[[Lanes, int], Value]] = {
    Apply: Lanes.applied,
    Gather: places.gathered,
    Load: Lanes.loaded,
    Position: lambda lanes, i: places.lane_positions(lanes),
    RowScan: scans.value,
    Spread: Lanes.spread,
}
