"""Reductions over any axes, as reductions over runs of neighbouring axes; scans, as scans along the
last axis."""

import math
from dataclasses import replace

from tiga.ops.feature import permute
from tiga.ops.tensor_reduce import ArgExtremum, runs
from tiga.passes.tensor_fusable import CPU, expanded, is_axes_reduction
from tiga.trace.node import Node
from tiga.trace.origin import Origin
from tiga.trace.program import Program
from tiga.types import Shape


def columns_after(shape: Shape, axes: Shape) -> int | None:
    """How many columns follow the one run of reduced axes; None if there are several runs, or
    nothing is kept after it."""
    large = tuple(axis for axis in axes if shape[axis] != 1)
    if len(runs(shape, large)) != 1:
        return None
    columns = math.prod(shape[large[-1] + 1 :])
    return columns if columns > 1 else None


def for_kernels(program: Program) -> Program:
    """An equal program in the form that the CPU's kernels take: ops that they have no code for are
    expanded, reductions go over one run of axes each, the last run first, scans along the last
    axis."""
    return expanded(program, CPU, is_position_of_all).rewritten(_rule)


def _rule(node: Node, inputs: tuple[Node, ...]) -> Node | None:
    if not inputs or not inputs[0].type.size:
        return None
    if node.op.carries:
        return _along_last(node, inputs)
    return _by_runs(node, inputs[0]) if is_axes_reduction(node) else None


ALL_FROM = 32768
"""Elements from which the position of an extremum of all of them is found by blocks."""


def is_position_of_all(node: Node) -> bool:
    """Whether a node is the position of the extremum of all elements of an input, which need not be
    read a second time to find it."""
    if not isinstance(node.op, ArgExtremum):
        return False
    given = node.inputs[0]
    dtype, extent = given.type.dtype, given.type.shape[node.op.axis]
    plain = dtype.kind != "b" and dtype == dtype.compute
    while given.op.reshapes:
        (given,) = given.inputs
    is_input = given.op.origin is Origin.ARGUMENT
    return plain and given.type.size == extent >= ALL_FROM and is_input


def _by_runs(node: Node, x: Node) -> Node | None:
    found = runs(x.type.shape, node.op.axes)
    if len(found) < 2 or node.op.combine is None:
        return None
    for run in reversed(found):
        x = replace(node.op, axes=run)(x, where=node.where)
    return x


def _along_last(node: Node, inputs: tuple[Node, ...]) -> Node | None:
    """The scan with its axis moved to the end."""
    op, rank = node.op, len(node.type.shape)
    if all(extent == 1 for extent in node.type.shape[op.axis + 1 :]):
        return None
    order = (*(a for a in range(rank) if a != op.axis), op.axis)
    back = tuple(order.index(axis) for axis in range(rank))
    moved = replace(op, axis=rank - 1)(*(permute(x, order) for x in inputs), where=node.where)
    return permute(moved, back)
