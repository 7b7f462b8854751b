"""How the rows and columns of whole-tensor kernels lie in shapes, and in the memory of values.

A kernel of so many columns takes the last axes of a shape for its columns, the others for rows.
"""

import math
from collections.abc import Sequence

from tiga.types import Shape


def boundary(shape: Shape, columns: int) -> int | None:
    """Where the axes of rows end and those of `columns` columns begin; None: nowhere."""
    total, place = 1, len(shape)
    while total < columns and place > 0:
        place -= 1
        total *= shape[place]
    return place if total == columns else None


def with_rank(shape: Shape, rank: int) -> Shape:
    """A shape with leading axes of extent 1."""
    return (1,) * (rank - len(shape)) + shape


def suffix(shape: Shape, axes: Shape) -> int | None:
    """The columns of a reduction over exactly the last axes; None for other axes."""
    place = len(shape)
    while place > 0 and (place - 1 in axes or shape[place - 1] == 1):
        place -= 1
    rest = [axis for axis in axes if axis < place and shape[axis] != 1]
    return None if rest else math.prod(shape[place:])


def prefix(shape: Shape, axes: Shape) -> int | None:
    """The columns of a reduction over exactly the first axes; None for other axes."""
    place = 0
    while place < len(shape) and (place in axes or shape[place] == 1):
        place += 1
    rest = [axis for axis in axes if axis >= place and shape[axis] != 1]
    return None if rest else math.prod(shape[place:])


def moving_columns(source: Shape, target: Shape) -> int:
    """Of a broadcast, how many columns at the end either all move or all repeat."""
    source = with_rank(source, len(target))
    place, moves = len(target), None
    while place > 0:
        extent = target[place - 1]
        here = None if extent == 1 else source[place - 1] == extent
        if here is not None and moves is not None and here != moves:
            break
        moves = here if moves is None else moves
        place -= 1
    return math.prod(target[place:])


def strides_of(
    source: Shape, target: Shape, columns: int
) -> tuple[tuple[tuple[int, int], ...], bool]:
    """Strides of a broadcast value over the rows of its target, from the last axis to the first
    and with neighbours joined; and whether it moves along columns."""
    rank = len(target)
    source = with_rank(source, rank)
    place = boundary(target, columns)
    assert place is not None
    moves = columns > 1 and math.prod(source[place:]) > 1
    step = math.prod(source[place:])
    axes = []
    for axis in reversed(range(place)):
        axes.append((target[axis], step if source[axis] == target[axis] else 0))
        step *= source[axis]
    return coalesced(axes), moves


def coalesced(axes: Sequence[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Extents and steps from the last axis to the first, neighbours joined where one step leads
    through both; none if nothing moves."""
    found: list[tuple[int, int]] = []
    for extent, step in axes:
        last = found[-1] if found else None
        if extent == 1:
            continue
        if last is not None and step == last[0] * last[1]:
            found[-1] = (last[0] * extent, last[1])
        else:
            found.append((extent, step))
    return tuple(found) if any(step for _, step in found) else ()


def fits(source: Shape, target: Shape, columns: int) -> bool:
    """Whether a kernel with so many columns can read `source` broadcast to `target`."""
    place = boundary(target, columns)
    if place is None:
        return False
    tail = with_rank(source, len(target))[place:]
    return tail == target[place:] or math.prod(tail) == 1
