"""Whole-tensor programs in the form that GPU kernels take: reductions along the last axes."""

from dataclasses import replace

from tiga.backends.triton.dense.library import CALLS
from tiga.backends.triton.dense.values import GPU
from tiga.ops.feature import permute
from tiga.ops.pointwise import cast
from tiga.ops.tensor_reduce import Reduction
from tiga.passes.tensor_fusable import expanded, is_axes_reduction
from tiga.passes.tensor_strides import prefix, suffix
from tiga.trace.node import Node
from tiga.trace.program import Program
from tiga.types import bool_, int8


def for_kernels(program: Program) -> Program:
    """An equal program of ops that kernels or library calls compute: reductions go over moved axes,
    and extrema of truth values over whole numbers."""
    return expanded(program, GPU, lambda node: node.op.name in CALLS).rewritten(_rule)


def _rule(node: Node, inputs: tuple[Node, ...]) -> Node | None:
    if not is_axes_reduction(node) or not inputs[0].type.size:
        return None
    (x,) = inputs
    if node.op.selects and x.type.dtype == bool_:
        return cast(_reduced(node.op, cast(x, int8), node.where), bool_)
    return _reduced(node.op, x, node.where)


def _reduced(op: Reduction, x: Node, where: str | None) -> Node:
    shape, axes = x.type.shape, op.axes
    ends = suffix(shape, axes) is not None or prefix(shape, axes) is not None
    if ends:
        return op(x, where=where)
    kept = [axis for axis in range(len(shape)) if axis not in axes]
    last = tuple(range(len(kept), len(shape)))
    return replace(op, axes=last)(permute(x, (*kept, *axes)), where=where)
