"""Sums in two levels: a stretch adds up in the type that computes, what stretches leave in a wider
one.

So the error of a sum grows with the length of a stretch, which is fixed, and not with that of a row
or a column. The second level costs little: it is reached once per stretch.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch_mlir import ir

from tiga.backends.llvm.dense import values as dv
from tiga.backends.llvm.dense.finish import identity
from tiga.backends.llvm.dense.slots import wider
from tiga.backends.llvm.dense.values import Value
from tiga.passes.tensor_spec import Reduce
from tiga.types import DType


@dataclass(frozen=True)
class Level:
    """The types of what a loop carries, within a stretch and from one to the next (`outer`). A
    stretch starts from `start`; None goes through as it is."""

    dtype: DType
    outer: DType
    start: Value | None

    @staticmethod
    def of(one: Reduce, lanes: int) -> "Level":
        """That of a reduction: sums have two levels."""
        if not one.adds:
            return Level.through(one.dtype)
        dtype = one.dtype.compute
        return Level(dtype, wider(dtype), identity(one.combine, dtype, lanes))

    @staticmethod
    def through(dtype: DType) -> "Level":
        """That of a value which has one level."""
        return Level(dtype, dtype, None)

    def end(self, outer: Value, value: Value) -> Value:
        """What is carried on after a stretch that left `value`."""
        if self.start is None:
            return value
        return dv.combine("add", self.outer, outer, dv.converted(value, self.dtype, self.outer))


def in_levels(
    levels: Sequence[Level],
    carried: Sequence[ir.Value],
    stretch: Callable[[Sequence[ir.Value]], Sequence[ir.Value]],
) -> list[ir.Value]:
    """What is carried on after a stretch."""
    outer = dv.grouped(carried, [level.outer for level in levels])
    pairs = zip(levels, outer, strict=True)
    inner = [value if level.start is None else level.start for level, value in pairs]
    ended = dv.grouped(stretch(dv.flat(inner)), [level.dtype for level in levels])
    parts = zip(levels, outer, ended, strict=True)
    return dv.flat([level.end(before, value) for level, before, value in parts])
