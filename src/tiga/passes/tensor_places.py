"""How whole-tensor kernels find elements at positions: of gathers, of scans, of axes themselves."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tiga.ops.tensor_index import linear_positions
from tiga.ops.tensor_scan import Positions
from tiga.passes.tensor_fusable import KNOWN, is_gather, is_scan
from tiga.passes.tensor_spec import FULL, ROW, SCALAR, Gather, Position, Reduce, Spread
from tiga.passes.tensor_strides import boundary, coalesced, fits, strides_of
from tiga.trace.node import Node
from tiga.types import Shape, int64

if TYPE_CHECKING:
    from tiga.passes.tensor_draft import KernelDraft

Strides = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Picked:
    """How a kernel reads `x` at positions: x's strides over the rows, whether columns go through
    it, and how far apart neighbours along the axis are; the same of the positions."""

    strides: Strides
    moves: bool
    step: int
    index: Strides
    index_moves: bool


def _axes_of(node: Node) -> tuple[Shape, Shape]:
    """For each axis of a gather's result, the step in x; and the positions' shape broadcast to the
    result's rank."""
    x, index = (child.type.shape for child in node.inputs)
    axis, steps = node.op.axis, linear_positions(x)
    if node.op.per_line:
        return (*steps[:axis], 0, *steps[axis + 1 :]), index
    after = len(x) - axis - 1
    there = (1,) * axis + index + (1,) * after
    return (*steps[:axis], *(0,) * len(index), *steps[axis + 1 :]), there


def picked(node: Node, columns: int, flat: bool) -> Picked | None:
    """How a kernel with so many columns computes a gather; None if it cannot."""
    shape = node.type.shape
    steps, index = _axes_of(node)
    step = linear_positions(node.inputs[0].type.shape)[node.op.axis]
    if flat:
        still = all(s == 0 for s, extent in zip(steps, shape, strict=True) if extent != 1)
        return Picked((), False, step, (), True) if still and index_fills(index, shape) else None
    place = boundary(shape, columns)
    if place is None or not fits(index, shape, columns):
        return None
    inner = {(s, t) for s, t, extent in
             zip(steps[place:], linear_positions(shape)[place:], shape[place:], strict=True)
             if extent != 1}  # fmt: skip
    moves = bool(inner) and all(s == t for s, t in inner)
    if not moves and any(s for s, _ in inner):
        return None
    rows = [(shape[axis], steps[axis]) for axis in reversed(range(place))]
    strides, index_moves = strides_of(index, shape, columns)
    return Picked(coalesced(rows), moves, step, strides, index_moves)


def index_fills(index: Shape, shape: Shape) -> bool:
    """Whether there is one position for each element."""
    return math.prod(index) == math.prod(shape)


def columns_of(node: Node) -> int | None:
    """The columns that a gather or a scan asks for; None if it has no wish."""
    shape = node.type.shape
    if is_scan(node):
        return shape[node.op.axis]
    if not is_gather(node):
        return None
    x, axis = node.inputs[0].type.shape, node.op.axis
    after = math.prod(x[axis + 1 :])
    if after > 1:
        return after
    positions = node.inputs[1].type.shape
    return positions[axis] if node.op.per_line else math.prod(positions)


def accepts_gather(draft: "KernelDraft", node: Node) -> bool:
    """Whether a gather can join a kernel: what it reads is in memory, its positions fit."""
    x, index = node.inputs
    if draft.kind(x) is not None or x.op.origin in KNOWN or {x, index} & draft.windows.keys():
        return False
    if not draft.is_full(node.type.shape):
        return False
    form = picked(node, draft.columns, draft.flat)
    if form is None:
        return False
    kind = draft.kind(index)
    if kind == FULL:
        return form.index_moves or draft.columns == 1
    if kind == ROW:
        return not form.index_moves and form.index in (((draft.rows, 1),), ())
    return kind in (None, SCALAR)


def join_gather(draft: "KernelDraft", node: Node) -> None:
    """Add a gather that a kernel accepts."""
    x, index = node.inputs
    form = picked(node, draft.columns, draft.flat)
    assert form is not None
    found = draft.index.get(index)
    if found is None:
        kind = FULL if form.index_moves else ROW
        found = draft.load(index, form.index, form.index_moves, kind)
    numbers = [draft.number(n) for n in (x.type.shape[node.op.axis], form.step)]
    array, dims = draft.array_of(x, form.strides), len(form.strides)
    inputs = (found, *numbers)
    place = draft.add(
        Gather(FULL, node.type.dtype, inputs, array=array, dims=dims, moves=form.moves)
    )
    draft.index[node] = place
    draft.gathers.setdefault(place, node)


def accepts_scan(draft: "KernelDraft", node: Node) -> bool:
    """Whether a scan can join a kernel: along its rows, in one direction."""
    if draft.flat or draft.direction not in (None, node.op.reverse):
        return False
    if draft.ordered and node.op.reverse and any(isinstance(i, Reduce) for i in draft.instructions):
        return False  # sums add from the start of a row
    if draft.columns != node.type.shape[node.op.axis] or not draft.is_full(node.type.shape):
        return False
    place = boundary(node.type.shape, draft.columns)
    kinds = {draft.kind(child) for child in node.inputs} - {None, SCALAR, FULL}
    return place is not None and place <= node.op.axis and not kinds


def place_kind(draft: "KernelDraft", op: Positions) -> str | None:
    """As which value a kernel knows the positions along an axis: of its columns, or of rows."""
    large = [axis for axis, extent in enumerate(op.shape) if extent != 1]
    if large == [op.axis] and (draft.flat or draft.columns == op.shape[op.axis]):
        return FULL
    if draft.flat:
        return None
    place = boundary(op.shape, draft.columns)
    if place is None:
        return None
    if op.axis < place:
        return ROW
    return FULL if op.shape[op.axis] == draft.columns else None


def columns_of_positions(op: Positions) -> int | None:
    """The columns that positions along an axis ask for; None if any number will do."""
    if sum(extent != 1 for extent in op.shape) < 2:
        return None
    inner = math.prod(op.shape[op.axis + 1 :])
    return inner if inner > 1 else op.shape[op.axis]


def join_positions(draft: "KernelDraft", op: Positions) -> int:
    """The positions along an axis as a full value."""
    if place_kind(draft, op) == FULL:
        return draft.add(Position(FULL, int64))
    place = boundary(op.shape, draft.columns)
    steps = [draft.number(n) for n in (math.prod(op.shape[op.axis + 1 : place]),
                                       op.shape[op.axis])]  # fmt: skip
    row = draft.add(Position(ROW, int64, tuple(steps)))
    return draft.add(Spread(FULL, int64, (row,)))
