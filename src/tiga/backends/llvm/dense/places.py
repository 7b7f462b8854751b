"""Elements that whole-tensor kernels read at positions which are values, and positions themselves.

A position is compared with the extent before anything is read: one that does not exist reads
element 0 instead and is noted in the kernel's table of faults, which whoever ran it looks at.
"""

from typing import TYPE_CHECKING

from torch_mlir import ir
from torch_mlir.dialects import arith, scf, vector

from tiga.backends.llvm.dense import values as dv
from tiga.backends.llvm.dense.values import Value
from tiga.backends.llvm.lanes import constant_of, integer
from tiga.backends.llvm.memory import consecutive, element_pointer, i64, splat
from tiga.ir import llvm
from tiga.ops.pointwise import Ge, Lt
from tiga.passes.tensor_spec import FULL, SCALAR, Apply, Gather, Instruction, Position

if TYPE_CHECKING:
    from tiga.backends.llvm.dense.kernel import TensorKernel
    from tiga.backends.llvm.dense.lanes import Lanes, Row


def row_position(kernel: "TensorKernel", row: "Row", one: Instruction) -> Value:
    """The position of a row along an axis."""
    step, extent = (kernel.scalars[i][0] for i in one.inputs)
    return (arith.remui(arith.divui(row.index, step), extent),)


def lane_positions(lanes: "Lanes") -> Value:
    """The columns themselves."""
    return (consecutive(lanes.column, lanes.lanes),)


def compared(lanes: "Lanes", one: Apply) -> Value | None:
    """Whether columns lie below a number, or not: the mask of the first lanes, or of the rest. None
    if that is not what is asked."""
    if not isinstance(one.op, (Lt, Ge)) or lanes.lanes == 1:
        return None
    left, right = (lanes.kernel.spec.instructions[i] for i in one.inputs)
    if not isinstance(left, Position) or left.kind != FULL or right.kind != SCALAR:
        return None
    (number,) = lanes.kernel.scalars[one.inputs[1]]
    below = dv.first_lanes(arith.subi(number, lanes.column), lanes.lanes)
    if isinstance(one.op, Lt):
        return (below,)
    whole = ir.VectorType.get([lanes.lanes], integer(1))
    return (arith.xori(below, constant_of(True, whole)),)


def _checked(kernel: "TensorKernel", i: int, position: ir.Value, mask: ir.Value | None) -> ir.Value:
    """A position below the extent, counted from the end if it was negative; 0 in place of those
    that do not exist, which are noted."""
    one = kernel.spec.instructions[i]
    lanes = position.type.shape[0] if isinstance(position.type, ir.VectorType) else 1
    bound, zero = (dv.spread((x,), lanes)[0] for x in (kernel.scalars[one.inputs[1]][0], i64(0)))
    negative = arith.cmpi(arith.CmpIPredicate.slt, position, zero)
    there = arith.select(negative, arith.addi(position, bound), position)
    missing = arith.cmpi(arith.CmpIPredicate.uge, there, bound)
    safe = arith.select(missing, zero, there)
    if mask is not None:
        missing = arith.andi(missing, mask)
    _note(kernel, i, position, missing)
    return safe


def _note(kernel: "TensorKernel", i: int, position: ir.Value, missing: ir.Value) -> None:
    vectors = isinstance(position.type, ir.VectorType)
    some = vector.reduction(integer(1), vector.CombiningKind.OR, missing) if vectors else missing
    branch = scf.IfOp(some)
    with ir.InsertionPoint(branch.then_block):
        if vectors:
            # Of those that are missing, one that is negative or large.
            zero = splat(i64(0), position.type.shape[0])
            worst = arith.select(missing, position, zero)
            position = vector.reduction(integer(64), vector.CombiningKind.MAXUI, worst)
        number = kernel.spec.of(Gather).index(i)
        place = element_pointer(kernel.pointers["fault",], i64(2 * number), integer(64))
        llvm.store(i64(1), place)
        after = element_pointer(kernel.pointers["fault",], i64(2 * number + 1), integer(64))
        llvm.store(position, after)
        scf.yield_([])


def pick_row(kernel: "TensorKernel", row: "Row", i: int) -> None:
    """Where a gather reads in this row, if the row has one position."""
    one = kernel.spec.one(Gather, i)
    if kernel.spec.instructions[one.inputs[0]].kind == FULL or i in row.picks:
        return
    (position,) = kernel.row_value(row, one.inputs[0])
    (scale,) = kernel.scalars[one.inputs[2]]
    offset = arith.muli(_checked(kernel, i, position, None), scale)
    row.picks[i] = arith.addi(row.starts[one.array], offset)


def gathered(lanes: "Lanes", i: int) -> Value:
    """A gather's lanes."""
    kernel = lanes.kernel
    one = kernel.spec.one(Gather, i)
    base, count = kernel.pointers["load", one.array], lanes.lanes
    if i in lanes.row.picks:
        start = lanes.row.picks[i]
        if not one.moves:
            return dv.spread(dv.load(base, one.dtype, start, 1, None), count)
        return dv.load(base, one.dtype, arith.addi(start, lanes.column), count, lanes.mask)
    (position,) = lanes.value(one.inputs[0])
    safe = _checked(kernel, i, position, lanes.mask)
    (scale,) = dv.spread(kernel.scalars[one.inputs[2]], count)
    offset = arith.muli(safe, scale)
    (start,) = dv.spread((lanes.row.starts[one.array],), count)
    offset = arith.addi(offset, start)
    if one.moves:
        offset = arith.addi(offset, consecutive(lanes.column, count))
    return dv.load_at(base, one.dtype, offset, count, lanes.mask)
