"""Reductions over any axes, as reductions over runs of neighbouring axes."""

import math

from tiga.ops.pointwise import cast
from tiga.ops.tensor_reduce import Max, Min, Reduction
from tiga.passes.tensor_fusable import REDUCTIONS
from tiga.trace.node import Node, rewrite
from tiga.trace.program import Program
from tiga.types import Shape, bool_, int8

QUANTIFIERS: dict[str, type[Reduction]] = {"all_axes": Min, "any_axes": Max}


def runs(shape: Shape, axes: Shape) -> list[tuple[int, ...]]:
    """The reduced axes in runs between which nothing is kept; axes of extent 1 join any."""
    found: list[list[int]] = []
    kept_between = True
    for axis, extent in enumerate(shape):
        if axis in axes:
            if kept_between:
                found.append([])
            found[-1].append(axis)
            kept_between = False
        elif extent != 1:
            kept_between = True
    return [tuple(run) for run in found]


def columns_after(shape: Shape, axes: Shape) -> int | None:
    """How many columns follow the one run of reduced axes; None if there are several runs, or
    nothing is kept after it."""
    large = tuple(axis for axis in axes if shape[axis] != 1)
    if len(runs(shape, large)) != 1:
        return None
    columns = math.prod(shape[large[-1] + 1 :])
    return columns if columns > 1 else None


def split_runs(program: Program) -> Program:
    """An equal program whose reductions each go over one run of axes, the last run first; those
    of truth values are extrema of whole numbers."""
    return Program(program.inputs, tuple(rewrite(program.outputs, _split)))


def _split(node: Node, inputs: tuple[Node, ...]) -> Node | None:
    if node.op.name in QUANTIFIERS and inputs[0].type.size:
        kind = QUANTIFIERS[node.op.name]
        whole = _by_runs(kind, node.op.axes, cast(inputs[0], int8), node.where)
        return cast(whole, bool_)
    if node.op.name not in REDUCTIONS or len(runs(inputs[0].type.shape, node.op.axes)) < 2:
        return None
    return _by_runs(type(node.op), node.op.axes, inputs[0], node.where)


def _by_runs(kind: type[Reduction], axes: Shape, x: Node, where: str | None) -> Node:
    for run in reversed(runs(x.type.shape, axes)):
        x = kind(run)(x, where=where)
    return x
