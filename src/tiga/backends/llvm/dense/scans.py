"""Scans along the rows of whole-tensor kernels: what a row carries from column to column.

All carry double precision where their numbers have less. Sums go through lanes by doubling,
products and recurrences take one lane after the other: products of parts may overflow where those
of all do not.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from torch_mlir import ir
from torch_mlir.dialects import arith, vector

from tiga.backends.llvm.complex_values import COMPLEX, A
from tiga.backends.llvm.dense import values as dv
from tiga.backends.llvm.dense.slots import wider
from tiga.backends.llvm.dense.values import Value
from tiga.backends.llvm.memory import i64
from tiga.ops.tensor_scan import AxisScan
from tiga.passes.tensor_spec import Instruction, RowScan, Spec
from tiga.types import DType

if TYPE_CHECKING:
    from tiga.backends.llvm.dense.lanes import Lanes


def state_dtype(spec: Spec, i: int) -> DType:
    """The type of what a scan carries."""
    return wider(spec.instructions[i].dtype.compute)


def first_state(spec: Spec, i: int) -> Value:
    """What a scan carries before its first column."""
    return dv.filled(
        1 if _scan(spec.instructions[i]).combine == "mul" else 0, state_dtype(spec, i), 1
    )


def _scan(one: Instruction) -> AxisScan:
    assert isinstance(one, RowScan), f"{one} carries nothing"
    return one.op


def value(lanes: "Lanes", i: int) -> Value:
    """A scan's lanes, and in `lanes.carries` what it carries on."""
    spec = lanes.kernel.spec
    one, state = spec.instructions[i], lanes.carries[i]
    plain, wide = one.dtype.compute, state_dtype(spec, i)
    sources = [dv.converted(lanes.value(j), plain, wide) for j in one.inputs]
    if _scan(one).combine == "add":
        made, lanes.carries[i] = _added(lanes, sources[0], wide, state)
    else:
        made, lanes.carries[i] = _one_by_one(lanes, one, wide, sources, state)
    return dv.rounded(dv.converted(made, wide, plain), one.dtype)


def _backwards(lanes: "Lanes") -> bool:
    return bool(lanes.kernel.spec.backwards)


def _order(lanes: "Lanes") -> Sequence[int]:
    return range(lanes.lanes)[::-1] if _backwards(lanes) else range(lanes.lanes)


def _added(lanes: "Lanes", x: Value, dtype: DType, state: Value) -> tuple[Value, Value]:
    """The sums of the lanes up to each one, by doubling, on top of what is carried."""
    count = lanes.lanes
    zero = dv.filled(0, dtype, count)
    if lanes.mask is not None:
        x = dv.choose(lanes.mask, x, zero)
    step = 1
    while step < count:
        x = dv.combine("add", dtype, _moved(lanes, x, zero, step), x)
        step *= 2
    total = dv.combine("add", dtype, dv.spread(state, count), x)
    return total, tuple(_lane(part, _order(lanes)[-1]) for part in total)


def _moved(lanes: "Lanes", x: Value, zero: Value, step: int) -> Value:
    """Each lane's value `step` lanes on in the scan's direction."""
    count = lanes.lanes
    before = step if _backwards(lanes) else -step
    places = [k + before if 0 <= k + before < count else count + k for k in range(count)]
    return tuple(vector.shuffle(a, b, places) for a, b in zip(x, zero, strict=True))


def _lane(x: ir.Value, k: int) -> ir.Value:
    return vector.extract(x, [], [k]) if isinstance(x.type, ir.VectorType) else x


def _with_lane(x: ir.Value, k: int, lane: ir.Value) -> ir.Value:
    return vector.insert(lane, x, [], [k]) if isinstance(x.type, ir.VectorType) else lane


def _one_by_one(
    lanes: "Lanes", one: Instruction, dtype: DType, sources: Sequence[Value], state: Value
) -> tuple[Value, Value]:
    """The lanes one after the other; masked ones carry on what they are given."""
    made = dv.filled(0, dtype, lanes.lanes)
    rule = _product if _scan(one).combine == "mul" else _recurrence
    for k in _order(lanes):
        here = [tuple(_lane(part, k) for part in x) for x in sources]
        after = rule(lanes, k, dtype, here, state)
        if lanes.mask is not None:
            after = dv.choose(_lane(lanes.mask, k), after, state)
        state = after
        made = tuple(_with_lane(x, k, part) for x, part in zip(made, state, strict=True))
    return made, state


def _times(dtype: DType, a: Value, b: Value) -> Value:
    return COMPLEX["mul"](a, b) if dtype.is_complex else (A.mul(a[0], b[0]),)


def _product(
    lanes: "Lanes", k: int, dtype: DType, here: Sequence[Value], state: Value
) -> Value:  # fmt: skip
    return _times(dtype, state, here[0])


def _recurrence(
    lanes: "Lanes", k: int, dtype: DType, here: Sequence[Value], state: Value
) -> Value:  # fmt: skip
    """a y + b, but b alone in the first column, where a may be no number."""
    kernel, factor, term = lanes.kernel, *here
    column = arith.addi(lanes.column, i64(k))
    first = arith.subi(kernel.high, i64(1)) if _backwards(lanes) else kernel.low
    grown = dv.combine("add", dtype, _times(dtype, factor, state), term)
    return dv.choose(arith.cmpi(arith.CmpIPredicate.eq, column, first), term, grown)
