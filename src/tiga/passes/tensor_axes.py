"""Reductions over any axes, as reductions over runs of neighbouring axes; scans, as scans along the
last axis; positions of extrema, as the least position where the extremum is."""

import math

from tiga.ops.feature import Reshape, permute
from tiga.ops.leaf import Input, constant
from tiga.ops.pointwise import cast, eq, logical_or, ne, where
from tiga.ops.tensor_reduce import ArgExtremum, Min, Quantifier, Reduction, expand, runs
from tiga.ops.tensor_scan import AxisScan, Positions
from tiga.trace.node import Node
from tiga.trace.program import Program
from tiga.types import Shape, bool_, int8, int32, int64


def columns_after(shape: Shape, axes: Shape) -> int | None:
    """How many columns follow the one run of reduced axes; None if there are several runs, or
    nothing is kept after it."""
    large = tuple(axis for axis in axes if shape[axis] != 1)
    if len(runs(shape, large)) != 1:
        return None
    columns = math.prod(shape[large[-1] + 1 :])
    return columns if columns > 1 else None


def for_kernels(program: Program) -> Program:
    """An equal program in the form that kernels take: reductions go over one run of axes each, the
    last run first, scans along the last axis; truth values are reduced as whole numbers."""
    return program.rewritten(_rule)


def _rule(node: Node, inputs: tuple[Node, ...]) -> Node | None:
    if not inputs or not inputs[0].type.size:
        return None
    if isinstance(node.op, Quantifier):
        kind = node.op.over_numbers
        whole = _by_runs(kind, node.op.axes, cast(inputs[0], int8), node.where)
        return cast(whole, bool_)
    if isinstance(node.op, ArgExtremum):
        return None if is_position_of_all(node) else _position(node, inputs[0])
    if isinstance(node.op, AxisScan):
        return _along_last(node, inputs)
    if not isinstance(node.op, Reduction) or len(runs(inputs[0].type.shape, node.op.axes)) < 2:
        return None
    return _by_runs(type(node.op), node.op.axes, inputs[0], node.where)


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
    while isinstance(given.op, Reshape):
        (given,) = given.inputs
    return plain and given.type.size == extent >= ALL_FROM and isinstance(given.op, Input)


def _by_runs(kind: type[Reduction], axes: Shape, x: Node, where: str | None) -> Node:
    for run in reversed(runs(x.type.shape, axes)):
        x = kind(run)(x, where=where)
    return x


def _position(node: Node, x: Node) -> Node:
    """The least position whose element is the extremum, or is NaN as it is."""
    axis = node.op.axis
    x = cast(x, int8) if x.type.dtype == bool_ else x
    best = expand(node.op.extremum((axis,))(x, where=node.where), (axis,), x.type)
    found = eq(x, best)
    if x.type.dtype.is_float:
        found = logical_or(found, ne(x, x))
    # Half as wide where they fit: twice as many lanes.
    extent = x.type.shape[axis]
    places = cast(Positions(axis, x.type.shape)(), int32 if extent < 2**31 else int64)
    nowhere = constant(extent, places.type)
    first = Min((axis,))(where(found, places, nowhere), where=node.where)
    return cast(first, int64)


def _along_last(node: Node, inputs: tuple[Node, ...]) -> Node | None:
    """The scan with its axis moved to the end."""
    op, rank = node.op, len(node.type.shape)
    if all(extent == 1 for extent in node.type.shape[op.axis + 1 :]):
        return None
    order = (*(a for a in range(rank) if a != op.axis), op.axis)
    back = tuple(order.index(axis) for axis in range(rank))
    moved = type(op)(rank - 1, op.reverse)(*(permute(x, order) for x in inputs), where=node.where)
    return permute(moved, back)
