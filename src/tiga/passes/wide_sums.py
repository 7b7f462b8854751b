"""Sums of outer products of edge values whose matrix is large, part by part of the matrix."""

from dataclasses import dataclass

from tiga.ops.contract import is_outer_sum, outer_sum
from tiga.ops.feature import concat, take
from tiga.passes.base import Pass
from tiga.trace.node import Node
from tiga.trace.program import Program
from tiga.types import Shape

LARGEST = 16384
"""Elements of a matrix that a kernel sums in registers, extents padded to powers of two."""

SIDE = 128
"""The extent of parts of a matrix that is large in both directions."""


def padded(extent: int) -> int:
    """The least power of two that holds `extent`: GPUs have no other extents in registers."""
    return 1 << max(extent - 1, 0).bit_length()


def _sides(shape: Shape) -> tuple[int, int]:
    """The extents of the parts of a matrix: as few parts as fit."""
    inner, outer = map(padded, shape)
    columns = min(outer, LARGEST // min(inner, SIDE))
    return min(inner, LARGEST // columns), columns


def _pieces(x: Node, side: int) -> list[Node]:
    """The parts of a value along its last axis."""
    axis, extent = len(x.type.shape) - 1, x.type.shape[-1]
    if extent <= side:
        return [x]
    starts = range(0, extent, side)
    return [take(x, axis, tuple(range(i, min(i + side, extent)))) for i in starts]


def _rule(node: Node, inputs: tuple[Node, ...]) -> Node | None:
    if not is_outer_sum(node) or not inputs[0].type.on_edges:
        return None
    sides = _sides(node.type.shape)
    if sides == tuple(map(padded, node.type.shape)):
        return None
    rows, columns = (_pieces(x, side) for x, side in zip(inputs, sides, strict=True))
    return concat(0, *(concat(1, *(outer_sum(row, c) for c in columns)) for row in rows))


@dataclass(frozen=True)
class WideSums(Pass, name="gf-wide-sums"):
    """Sum outer products over edges part by part where a kernel cannot hold their matrix."""

    def __call__(self, form: Program) -> Program:
        return form.rewritten(_rule)
