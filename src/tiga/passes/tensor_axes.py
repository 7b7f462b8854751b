"""Reductions over any axes, as reductions over runs of neighbouring axes."""

import math

from tiga.passes.tensor_fusable import REDUCTIONS
from tiga.trace.node import Node, rewrite
from tiga.trace.program import Program
from tiga.types import Shape


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
    """An equal program whose reductions each go over one run of axes, the last run first."""
    return Program(program.inputs, tuple(rewrite(program.outputs, _split)))


def _split(node: Node, inputs: tuple[Node, ...]) -> Node | None:
    if node.op.name not in REDUCTIONS:
        return None
    (x,) = inputs
    found = runs(x.type.shape, node.op.axes)
    if len(found) < 2:
        return None
    for run in reversed(found):
        x = type(node.op)(run)(x, where=node.where)
    return x
