"""Reductions over rows: tasks keep theirs in memory, and combine some rows with it at a time."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial, reduce
from typing import TYPE_CHECKING

from torch_mlir import ir
from torch_mlir.dialects import arith

from tiga.backends.llvm.dense import values as dv
from tiga.backends.llvm.dense.lanes import Lanes
from tiga.backends.llvm.dense.values import Value
from tiga.types import DType

if TYPE_CHECKING:
    from tiga.backends.llvm.dense.kernel import TensorKernel


@dataclass(frozen=True)
class ColumnReduction:
    """One of them, by its instruction: the task's part of the result, and where it is a sum over
    several stretches of rows, the stretch beside it (`work`)."""

    kernel: "TensorKernel"
    number: int

    @cached_property
    def places(self) -> list[int]:
        """The stores that take it."""
        stores = self.kernel.spec.stores
        return [place for place, stored in enumerate(stores) if stored == self.number]

    @property
    def has_stretches(self) -> bool:
        return self.kernel.spec.tall and self.kernel.spec.reduction(self.number).adds

    @property
    def dtype(self) -> DType:
        """The type that rows are combined in."""
        return self.kernel.spec.instructions[self.number].dtype.compute

    def begin(self) -> None:
        """Start the task's part."""
        self._fill("store", self.kernel.partial(self.number))

    def begin_stretch(self) -> None:
        """Start a stretch of rows."""
        if self.has_stretches:
            self._fill("work", self.dtype)

    def _fill(self, where: str, dtype: DType) -> None:
        def body(
            column: ir.Value, lanes: int, mask: ir.Value | None, carried: Sequence[ir.Value]
        ) -> Sequence[ir.Value]:
            value = self.kernel.identity(self.number, lanes, dtype)
            self._store(where, dtype, value, self._offset(column), lanes, mask)
            return carried

        self.kernel.over_columns(body, [])

    def _offset(self, column: ir.Value) -> ir.Value:
        return arith.addi(self.kernel.partial_row, column)

    def _load(
        self, where: str, dtype: DType, offset: ir.Value, lanes: int, mask: ir.Value | None
    ) -> Value:
        base = self.kernel.pointers[where, self.places[0]]
        return dv.load(base, dtype, offset, lanes, mask)

    def _store(
        self, where: str, dtype: DType, value: Value, offset: ir.Value, lanes: int,
        mask: ir.Value | None,
    ) -> None:  # fmt: skip
        for place in self.places:
            dv.store(self.kernel.pointers[where, place], dtype, value, offset, lanes, mask)

    def add(self, rows: Sequence[Lanes]) -> None:
        """Combine these lanes of some rows. Unless the order is that of the rows, it is with one
        another first: of rows that go together one value is added in sequence."""
        first, spec = rows[0], self.kernel.spec
        where, offset = "work" if self.has_stretches else "store", self._offset(first.column)
        one = spec.reduction(self.number)
        before = self._load(where, self.dtype, offset, first.lanes, first.mask)
        values = [row.value(one.inputs[0]) for row in rows]
        order = [before, *values] if spec.ordered else [*values, before]
        value = reduce(partial(dv.combine, one.combine, one.dtype), order)
        self._store(where, self.dtype, value, offset, first.lanes, first.mask)

    def end_stretch(self) -> None:
        """Add a stretch of rows to the task's part."""
        if not self.has_stretches:
            return
        wide = self.kernel.partial(self.number)

        def body(
            column: ir.Value, lanes: int, mask: ir.Value | None, carried: Sequence[ir.Value]
        ) -> Sequence[ir.Value]:
            offset = self._offset(column)
            value = self._load("work", self.dtype, offset, lanes, mask)
            total = self._load("store", wide, offset, lanes, mask)
            value = dv.combine("add", wide, total, dv.converted(value, self.dtype, wide))
            self._store("store", wide, value, offset, lanes, mask)
            return carried

        self.kernel.over_columns(body, [])
