"""Loads of windows: elements of memory in another order, and zeros where there are none."""

from typing import TYPE_CHECKING

from torch_mlir import ir
from torch_mlir.dialects import arith, vector

from tiga.backends.llvm.dense import values as dv
from tiga.backends.llvm.dense.values import Value
from tiga.backends.llvm.memory import i64
from tiga.passes.tensor_spec import Load
from tiga.types import DType

if TYPE_CHECKING:
    from tiga.backends.llvm.dense.kernel import TensorKernel
    from tiga.backends.llvm.dense.lanes import Lanes

ROW_NUMBERS = 5
"""Numbers that a bound on rows has."""


def _numbers(
    kernel: "TensorKernel", one: Load
) -> tuple[list[tuple[ir.Value, ...]], tuple[ir.Value, ...]]:
    """The numbers of a load's bounds: on rows, and on columns."""
    assert one.window is not None
    known = [kernel.scalars[i][0] for i in one.inputs]
    end = ROW_NUMBERS * one.window.rows
    rows = [tuple(known[at : at + ROW_NUMBERS]) for at in range(0, end, ROW_NUMBERS)]
    return rows, tuple(known[end:])


def _within(place: ir.Value, low: ir.Value, high: ir.Value) -> ir.Value:
    """Whether a position is from `low` to below `high`: one comparison, as below it wraps."""
    offset, count = arith.subi(place, low), arith.subi(high, low)
    return arith.cmpi(arith.CmpIPredicate.ult, offset, count)


def bounded_start(
    kernel: "TensorKernel", one: Load, row: ir.Value, start: ir.Value
) -> tuple[ir.Value, ir.Value | None]:
    """Where a window starts in a row, and whether the row is there; one that is not starts where
    another does, so that what is read exists."""
    there, safe = None, i64(0)
    for inner, extent, low, high, step in _numbers(kernel, one)[0]:
        inside = _within(arith.remui(arith.divui(row, inner), extent), low, high)
        there = inside if there is None else arith.andi(there, inside)
        safe = arith.addi(safe, arith.muli(low, step))
    return (start, None) if there is None else (arith.select(there, start, safe), there)


def loaded(lanes: "Lanes", one: Load) -> Value:
    """A window's lanes."""
    count, nothing = lanes.lanes, dv.filled(0, one.dtype, lanes.lanes)
    inside = _inside(lanes, one)
    value = _scalar(lanes, one, inside) if count == 1 else _run(lanes, one, inside)
    if inside is not None:
        value = dv.choose(inside, value, nothing)
    there = lanes.row.there.get(one.array)
    return value if there is None else dv.choose(there, value, nothing)


def _inside(lanes: "Lanes", one: Load) -> ir.Value | None:
    """Which columns are there; None: all."""
    _, bounds = _numbers(lanes.kernel, one)
    if not bounds:
        return None
    if lanes.lanes == 1:
        return _within(lanes.column, *bounds)
    before, below = (dv.first_lanes(arith.subi(n, lanes.column), lanes.lanes) for n in bounds)
    return arith.xori(below, before)


def _scalar(lanes: "Lanes", one: Load, inside: ir.Value | None) -> Value:
    assert one.window is not None
    base, start = _place(lanes, one)
    column = lanes.column
    if inside is not None:
        column = arith.select(inside, column, _numbers(lanes.kernel, one)[1][0])
    offset = arith.addi(start, arith.muli(column, i64(one.window.step)))
    return dv.load(base, one.dtype, offset, 1, None)


def _run(lanes: "Lanes", one: Load, inside: ir.Value | None) -> Value:
    """Lanes from runs of memory, without the masked ones."""
    assert one.window is not None
    base, start = _place(lanes, one)
    count, step, mask = lanes.lanes, one.window.step, lanes.mask
    if inside is not None:
        mask = inside if mask is None else arith.andi(mask, inside)
    if step == 0:
        return dv.spread(dv.load(base, one.dtype, start, 1, None), count)
    first = arith.addi(start, arith.muli(lanes.column, i64(step)))
    if step == 1:
        return dv.load(base, one.dtype, first, count, mask)
    backwards = list(range(count - 1, -1, -1))
    if step == -1:
        first = arith.subi(first, i64(count - 1))
        turned = None if mask is None else vector.shuffle(mask, mask, backwards)
        read = dv.load(base, one.dtype, first, count, turned)
        return tuple(vector.shuffle(part, part, backwards) for part in read)
    return _every_second(base, one.dtype, first, count, mask)


def _every_second(
    base: ir.Value, dtype: DType, first: ir.Value, count: int, mask: ir.Value | None
) -> Value:
    """Every second element of two runs, of which the other starts where the one has its last: what
    follows the last element may not exist."""
    masks = (None, None) if mask is None else (
        vector.shuffle(mask, mask, [i // 2 for i in range(count)]),
        vector.shuffle(mask, mask, [(count - 1 + i) // 2 for i in range(count)]),
    )  # fmt: skip
    later = arith.addi(first, i64(count - 1))
    low, high = (
        dv.load(base, dtype, at, count, m) for at, m in zip((first, later), masks, strict=True)
    )
    chosen = [2 * k if 2 * k < count else 2 * k + 1 for k in range(count)]
    return tuple(vector.shuffle(a, b, chosen) for a, b in zip(low, high, strict=True))


def _place(lanes: "Lanes", one: Load) -> tuple[ir.Value, ir.Value]:
    number = one.array
    return lanes.kernel.pointers["load", number], lanes.row.starts[number]
