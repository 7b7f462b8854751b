"""Scans inside the edge loop: carries in registers, and rows of them kept for later phases."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from torch_mlir import ir
from torch_mlir.dialects import arith, func

from tiga.backends.llvm.layout import Layout, evaluate_op
from tiga.backends.llvm.memory import Array, i64, integer
from tiga.ir import llvm
from tiga.passes.carries import kept_scans
from tiga.passes.rows import RowProgram
from tiga.trace.node import Node
from tiga.trace.program import Program


def run_step(layout: Layout, step: Program, arguments: Sequence[ir.Value]) -> ir.Value:
    """A region of one output on register values."""
    known = dict(zip(step.inputs, arguments, strict=True))
    for node in step.order:
        if node not in known:
            known[node] = evaluate_op(layout, node, [known[n] for n in node.inputs])
    return known[step.outputs[0]]


@dataclass(frozen=True)
class KeptCarries:
    """The carries of a row's edges, by position in the row, for as long as a task runs."""

    arrays: Mapping[Node, Array]

    def store(self, before: Node, position: ir.Value, carry: ir.Value) -> None:
        array = self.arrays[before]
        array.store(carry, array.start(position))

    def load(self, before: Node, position: ir.Value) -> ir.Value:
        array = self.arrays[before]
        return array.load(array.start(position), array.row)


@contextmanager
def keep_carries(program: RowProgram, max_degree: ir.Value) -> Iterator[KeptCarries]:
    """Room for the carries of the longest row, freed after the task."""
    arrays: dict[Node, Array] = {}
    for scan in kept_scans(program):
        type_ = scan.before.type
        compute = type_.dtype.compute
        nbytes = arith.muli(max_degree, i64(type_.size * compute.itemsize))
        base = func.CallOp([llvm.PointerType.get()], "malloc", [nbytes]).result
        arrays[scan.before] = Array(base, compute, type_.size)
    yield KeptCarries(arrays)
    for array in arrays.values():
        func.CallOp([], "free", [array.base])


def declare_allocator() -> None:
    """Declare the C library's allocator in the module at the insertion point."""
    pointer = llvm.PointerType.get()
    for name, signature in (("malloc", ([integer(64)], [pointer])), ("free", ([pointer], []))):
        func.FuncOp(name, signature, visibility="private")
