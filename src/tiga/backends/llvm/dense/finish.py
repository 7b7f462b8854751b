"""What follows a kernel whose tasks leave parts of results: the parts, combined in a fixed order.

Parts of sums add in double precision where there is one. Several streams of them run side by side:
additions do not wait for one another, and errors grow with the length of a stream only.
"""

from collections.abc import Callable, Sequence

from torch_mlir import ir
from torch_mlir.dialects import arith, func, llvm, scf

from tiga.backends.llvm.complex_values import A, Value
from tiga.backends.llvm.complex_values import cast as cast_complex
from tiga.backends.llvm.dense import values as dv
from tiga.backends.llvm.dense.slots import slot_names
from tiga.backends.llvm.lanes import integer
from tiga.backends.llvm.loops import loop
from tiga.backends.llvm.memory import element_pointer, i64
from tiga.ops.monoid import MONOIDS
from tiga.passes.tensor_spec import COLUMN, TOTAL, Spec
from tiga.types import DType, complex64, complex128, float32, float64

STREAMS = 8
"""Parts that are added side by side."""

LANES = 16
"""Neighbouring columns that are combined at once."""

MONOID = {"add": "sum", "maximum": "max", "minimum": "min", "mul": "prod"}
"""The monoid of what combines a reduction's values."""

_WIDE = {float32: float64, complex64: complex128}


def identity(name: str, dtype: DType, lanes: int) -> Value:
    """The value that a reduction starts from."""
    monoid = MONOIDS[MONOID[name]]
    number = monoid.identity_value if dtype.is_complex else monoid.identity(dtype)
    return dv.filled(number, dtype, lanes)


def add_finish(spec: Spec, name: str = "finish") -> None:
    """Add the function `void finish(ptr table, i64 lo, i64 hi)` to the module at the insertion
    point. Its tasks are ranges of columns, group by group of rows; the first has the totals too."""
    types = [llvm.PointerType.get(), integer(64), integer(64)]
    function = func.FuncOp(name, (types, []))
    with ir.InsertionPoint(function.add_entry_block()):
        table, low, high = function.arguments
        finish = _Finish(spec, table)

        def task(number: ir.Value, carried: Sequence[ir.Value]) -> Sequence[ir.Value]:
            finish.task(number)
            return carried

        loop(low, high, 1, [], task)
        func.ReturnOp([])


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

    def _pointer(self, kind: str, place: int) -> ir.Value:
        return llvm.inttoptr(llvm.PointerType.get(), self._word((kind, place)))

    def task(self, task: ir.Value) -> None:
        """Combine what belongs to one task."""
        for place in self.places[COLUMN]:
            self._columns(place, task)
        if not self.places[TOTAL]:
            return
        first = scf.IfOp(arith.cmpi(arith.CmpIPredicate.eq, task, i64(0)))
        with ir.InsertionPoint(first.then_block):
            count = self._word(("size", "tasks"))
            for place in self.places[TOTAL]:
                self._store(place, i64(0), 1, self._combined(place, count, lambda p: p, 1))
            scf.yield_([])

    def _columns(self, place: int, task: ir.Value) -> None:
        blocks, width = self._word(("size", "blocks")), self._word(("size", "width"))
        parts = self._word(("size", "parts"))
        group = arith.divui(task, blocks)
        low = arith.muli(arith.remui(task, blocks), width)
        high = arith.minui(arith.addi(low, width), self.columns)
        lanes = i64(LANES)
        whole = arith.muli(arith.divui(arith.subi(high, low), lanes), lanes)
        start = arith.muli(arith.muli(group, parts), self.columns)
        into = arith.muli(group, self.columns)

        def some(count: int) -> Callable[..., Sequence[ir.Value]]:
            def body(column: ir.Value, carried: Sequence[ir.Value]) -> Sequence[ir.Value]:
                first = arith.addi(start, column)

                def at(part: ir.Value) -> ir.Value:
                    return arith.addi(first, arith.muli(part, self.columns))

                value = self._combined(place, parts, at, count)
                self._store(place, arith.addi(into, column), count, value)
                return carried

            return body

        middle = arith.addi(low, whole)
        loop(low, middle, LANES, [], some(LANES))
        loop(middle, high, 1, [], some(1))

    def _combined(
        self, place: int, count: ir.Value, at: Callable[[ir.Value], ir.Value], lanes: int
    ) -> Value:
        """The parts of a result, whose elements `at` tells, in their order."""
        one = self.spec.instructions[self.spec.stores[place]]
        base, stored = self._pointer("store", place), one.dtype.compute
        wide = _WIDE.get(stored, stored) if one.text == "add" else stored

        def added(value: Value, part: ir.Value) -> Value:
            loaded = dv.load(base, stored, at(part), lanes, None)
            return dv.combine(one.text, wide, value, _cast(loaded, stored, wide))

        def several(part: ir.Value, carried: Sequence[ir.Value]) -> Sequence[ir.Value]:
            streams = dv.grouped(carried, [wide] * STREAMS)
            parts = [part, *(arith.addi(part, i64(k)) for k in range(1, STREAMS))]
            return dv.flat([added(s, p) for s, p in zip(streams, parts, strict=True)])

        def single(part: ir.Value, carried: Sequence[ir.Value]) -> Sequence[ir.Value]:
            return dv.flat([added(tuple(carried), part)])

        start = dv.flat([identity(one.text, wide, lanes)] * STREAMS)
        whole = arith.muli(arith.divui(count, i64(STREAMS)), i64(STREAMS))
        streams = dv.grouped(loop(i64(0), whole, STREAMS, start, several), [wide] * STREAMS)
        while len(streams) > 1:
            pairs = zip(streams[::2], streams[1::2], strict=True)
            streams = [dv.combine(one.text, wide, a, b) for a, b in pairs]
        rest = loop(whole, count, 1, dv.flat(streams), single)
        return _cast(tuple(rest), wide, stored)

    def _store(self, place: int, element: ir.Value, lanes: int, value: Value) -> None:
        one = self.spec.instructions[self.spec.stores[place]]
        dv.store(self._pointer("result", place), one.dtype, value, element, lanes, None)


def _cast(value: Value, given: DType, wanted: DType) -> Value:
    if given == wanted:
        return value
    if given.is_complex:
        return cast_complex(value, given, wanted)
    return (A.cast(value[0], given, wanted),)
