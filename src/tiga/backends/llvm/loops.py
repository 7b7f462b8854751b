"""Counted loops that carry values."""

from collections.abc import Callable, Sequence

from torch_mlir import ir
from torch_mlir.dialects import scf

from tiga.backends.llvm.memory import i64

Step = Callable[[ir.Value, Sequence[ir.Value]], Sequence[ir.Value]]
Loop = Callable[[ir.Value, ir.Value, int, Sequence[ir.Value], Step], list[ir.Value]]


def loop(
    low: ir.Value, high: ir.Value, step: int, carried: Sequence[ir.Value], body: Step
) -> list[ir.Value]:
    """For positions low, low + step, ... below high: `carried = body(position, carried)`."""
    op = scf.ForOp(low, high, i64(step), list(carried))
    return _filled(op, body)


def for_each(
    low: ir.Value, high: ir.Value, step: int, body: Callable[[ir.Value], None], over: Loop = loop
) -> None:
    """`body(position)` for the same positions, in one kind of loop; nothing is carried."""

    def one(position: ir.Value, carried: Sequence[ir.Value]) -> Sequence[ir.Value]:
        body(position)
        return carried

    over(low, high, step, [], one)


def _filled(op: scf.ForOp, body: Step) -> list[ir.Value]:
    with ir.InsertionPoint(op.body):
        results = body(op.induction_variable, list(op.inner_iter_args))
        scf.YieldOp(list(results))
    return list(op.results)


_NOT_UNROLLED = "#llvm.loop_annotation<unroll = <disable = true>>"


def rolled_loop(
    low: ir.Value, high: ir.Value, step: int | ir.Value, carried: Sequence[ir.Value], body: Step
) -> list[ir.Value]:
    """A loop that LLVM leaves as it is: one whose body works on whole vectors gains nothing from
    being unrolled, and loops of a few rounds lose by it."""
    op = scf.ForOp(low, high, i64(step) if isinstance(step, int) else step, list(carried))
    op.operation.attributes["llvm.loop_annotation"] = ir.Attribute.parse(_NOT_UNROLLED)
    return _filled(op, body)


def repeat(
    carried: Sequence[ir.Value], test: Callable[..., ir.Value], body: Callable[..., list[ir.Value]]
) -> list[ir.Value]:
    """While `test(*carried)`: `carried = body(*carried)`."""
    types = [value.type for value in carried]
    op = scf.WhileOp(types, list(carried))
    before, after = op.before.blocks.append(*types), op.after.blocks.append(*types)
    with ir.InsertionPoint(before):
        scf.ConditionOp(test(*before.arguments), list(before.arguments))
    with ir.InsertionPoint(after):
        scf.YieldOp(body(*after.arguments))
    return list(op.results)
