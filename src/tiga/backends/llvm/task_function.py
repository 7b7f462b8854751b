"""The functions that launches call: a loop over numbered tasks."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from torch_mlir import ir
from torch_mlir.dialects import func

from tiga.backends.llvm.lanes import integer
from tiga.backends.llvm.loops import Loop, for_each, loop
from tiga.ir import llvm

Task = Callable[[ir.Value], None]


@contextmanager
def launched(name: str) -> Iterator[tuple[ir.Value, ir.Value, ir.Value]]:
    """The arguments of `void name(ptr table, i64 lo, i64 hi)`, which is added to the module at the
    insertion point; operations are created in its body meanwhile."""
    types = [llvm.PointerType.get(), integer(64), integer(64)]
    function = func.FuncOp(name, (types, []))
    with ir.InsertionPoint(function.add_entry_block()):
        table, low, high = function.arguments
        yield table, low, high
        func.ReturnOp([])


def task_function(name: str, prepare: Callable[[ir.Value], Task], over: Loop = loop) -> None:
    """Add `void name(ptr table, i64 lo, i64 hi)` to the module at the insertion point.

    `prepare` is given the table, before the loop, and gives what is done for each task's number;
    `over` is the kind of loop.
    """
    with launched(name) as (table, low, high):
        for_each(low, high, 1, prepare(table), over)
