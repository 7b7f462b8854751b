"""Values that are another way to read memory: slices, permutations, padding.

A window says where the elements of a value lie in the memory of another one, so a kernel reads
them there: nothing is moved. Outside of its bounds a window has zeros.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tiga.ops.feature import Broadcast, Permute, Reshape
from tiga.ops.tensor_index import linear_positions
from tiga.ops.tensor_views import Slice, Unslice
from tiga.passes.tensor_fusable import KNOWN
from tiga.passes.tensor_spec import FULL, Frame, Load
from tiga.passes.tensor_strides import boundary, coalesced, with_rank
from tiga.trace.node import Node
from tiga.types import Shape

if TYPE_CHECKING:
    from tiga.passes.tensor_draft import KernelDraft

STEPS = (0, 1, -1, 2)
"""Steps between columns that kernels read as runs of memory; a copy is faster than others."""


@dataclass(frozen=True)
class Bound:
    """Along an axis only positions from `low` to below `high` are in memory."""

    axis: int
    low: int
    high: int


@dataclass(frozen=True)
class Window:
    """Where the elements of a value of `shape` lie in the memory of `base`: the first at `start`,
    neighbours along each axis `steps` apart."""

    base: Node
    shape: Shape
    start: int
    steps: Shape
    bounds: tuple[Bound, ...] = ()

    @cached_property
    def columns(self) -> int | None:
        """The columns that reading it asks for; None if any number will do."""
        shape = self.shape
        if reading(self, math.prod(shape), True) is not None:
            return None
        widths = [math.prod(shape[place:]) for place in range(1, len(shape))]
        fitting = (w for w in widths if w > 1 and reading(self, w, False) is not None)
        return next(fitting, None)


@dataclass(frozen=True)
class RowBound:
    """A bound on rows: a row's position along the axis is `row // inner % extent`, and neighbours
    along it are `step` elements of memory apart."""

    inner: int
    extent: int
    low: int
    high: int
    step: int


@dataclass(frozen=True)
class Reading:
    """How a kernel reads a window: strides over the rows, the step along columns (0: none), and
    what of rows and columns is there."""

    strides: tuple[tuple[int, int], ...]
    step: int
    rows: tuple[RowBound, ...] = ()
    columns: tuple[int, int] | None = None


def window_of(node: Node, known: Mapping[Node, Window]) -> Window | None:
    """A value as a window, if it is one; `known` has those of other values."""
    rule = _RULES.get(type(node.op))
    if rule is None or not node.type.size or not node.inputs[0].type.size:
        return None
    (x,) = node.inputs
    inner = known.get(x)
    if inner is None:
        if not isinstance(node.op, (Slice, Permute, Unslice)) or x.op.origin in KNOWN:
            return None
        inner = Window(x, x.type.shape, 0, linear_positions(x.type.shape))
    return rule(node.op, inner, node.type.shape)


def _slice(op: Slice, x: Window, shape: Shape) -> Window | None:
    axis = op.axis
    start = x.start + op.start * x.steps[axis]
    steps = (*x.steps[:axis], op.step * x.steps[axis], *x.steps[axis + 1 :])
    bounds = []
    for bound in x.bounds:
        if bound.axis != axis:
            bounds.append(bound)
        elif op.step != 1:
            return None
        else:
            bounds.append(Bound(axis, bound.low - op.start, bound.high - op.start))
    return _bounded(Window(x.base, shape, start, steps), bounds)


def _permute(op: Permute, x: Window, shape: Shape) -> Window | None:
    steps = tuple(x.steps[axis] for axis in op.axes)
    bounds = [replace(b, axis=op.axes.index(b.axis)) for b in x.bounds]
    return _bounded(Window(x.base, shape, x.start, steps), bounds)


def _broadcast(op: Broadcast, x: Window, shape: Shape) -> Window | None:
    lead = len(shape) - len(x.shape)
    steps = tuple(
        0 if a != b else step
        for a, b, step in zip(with_rank(x.shape, len(shape)), shape, (*(0,) * lead, *x.steps),
                              strict=True)
    )  # fmt: skip
    if any(x.shape[b.axis] != shape[b.axis + lead] for b in x.bounds):
        return None
    bounds = [replace(b, axis=b.axis + lead) for b in x.bounds]
    return _bounded(Window(x.base, shape, x.start, steps), bounds)


def _unslice(op: Unslice, x: Window, shape: Shape) -> Window | None:
    if op.step != 1:
        return None
    start = x.start - op.start * x.steps[op.axis]
    own = Bound(op.axis, op.start, op.start + x.shape[op.axis])
    bounds = [replace(b, low=b.low + op.start, high=b.high + op.start) if b.axis == op.axis else b
              for b in x.bounds]  # fmt: skip
    if not any(b.axis == op.axis for b in x.bounds):
        bounds.append(own)
    return _bounded(Window(x.base, shape, start, x.steps), bounds)


def _reshape(op: Reshape, x: Window, shape: Shape) -> Window | None:
    """Axes may be joined where they lie one after the other, and parted again."""
    steps: list[int] = []
    bounds: list[Bound] = []
    for old, new in _matched(x.shape, shape):
        large = [axis for axis in old if x.shape[axis] != 1]
        limits = [b for b in x.bounds if b.axis in old]
        kept = [axis for axis in new if shape[axis] != 1]
        if limits and not (len(large) == len(kept) == 1 and limits[0].axis == large[0]):
            return None
        runs = coalesced([(x.shape[axis], x.steps[axis]) for axis in reversed(large)])
        if len(runs) > 1:
            return None
        step = runs[0][1] if runs else 0
        found = []
        for axis in reversed(new):
            found.append(step)
            step *= shape[axis]
        steps += reversed(found)
        bounds += [replace(b, axis=kept[0]) for b in limits]
    return _bounded(Window(x.base, shape, x.start, tuple(steps)), bounds)


def _matched(old: Shape, new: Shape) -> Iterator[tuple[list[int], list[int]]]:
    """Runs of axes of two shapes that hold the same elements, as short as can be."""
    i = j = 0
    while i < len(old) or j < len(new):
        first, second = i, j
        i, j = _run_ends(old, new, i, j)
        yield [*range(first, i)], [*range(second, j)]


def _run_ends(old: Shape, new: Shape, i: int, j: int) -> tuple[int, int]:
    """Where the shortest runs of axes from i and j on end that hold as many elements."""
    start, a, b = (i, j), 1, 1
    while a != b or (i, j) == start:
        if i < len(old) and (a <= b or j == len(new)):
            a, i = a * old[i], i + 1
        elif j < len(new):
            b, j = b * new[j], j + 1
    return i, j


_RULES: dict[type, Callable[[Any, Window, Shape], Window | None]] = {
    Slice: _slice, Permute: _permute, Broadcast: _broadcast, Unslice: _unslice, Reshape: _reshape,
}  # fmt: skip


def _bounded(window: Window, bounds: list[Bound]) -> Window | None:
    """A window with those of the bounds that leave something out; None if nothing is left."""
    shape = window.shape
    cut = [Bound(b.axis, max(b.low, 0), min(b.high, shape[b.axis])) for b in bounds]
    if any(b.low >= b.high for b in cut):
        return None
    real = (b for b in cut if (b.low, b.high) != (0, shape[b.axis]))
    return replace(window, bounds=tuple(real))


# how kernels read them


def reading(window: Window, columns: int, flat: bool) -> Reading | None:
    """How a kernel with so many columns reads a window; None if it cannot."""
    shape, steps = window.shape, window.steps
    place = 0 if flat else boundary(shape, columns)
    if place is None:
        return None
    inner = [axis for axis in range(place, len(shape)) if shape[axis] != 1]
    runs = coalesced([(shape[axis], steps[axis]) for axis in reversed(inner)])
    if len(runs) > 1:
        return None
    step = runs[0][1] if runs else 0
    limits = [b for b in window.bounds if b.axis in inner]
    if step not in STEPS or (limits and len(inner) > 1):
        return None
    rows = [(shape[axis], steps[axis]) for axis in reversed(range(place))]
    bounds = tuple(
        RowBound(math.prod(shape[b.axis + 1 : place]), shape[b.axis], b.low, b.high, steps[b.axis])
        for b in window.bounds if b.axis < place
    )  # fmt: skip
    column = (limits[0].low, limits[0].high) if limits else None
    return Reading(coalesced(rows), step, bounds, column)


def load_window(draft: "KernelDraft", node: Node) -> int:
    """Add the load of a window that a kernel can read."""
    window = draft.windows[node]
    form = reading(window, draft.columns, draft.flat)
    assert form is not None
    numbers = []
    for row in form.rows:
        known = (row.inner, row.extent, row.low, row.high, row.step)
        numbers += [draft.number(n) for n in known]
    if form.columns is not None:
        numbers += [draft.number(n) for n in form.columns]
    bounds = (*form.rows, form.columns)
    array = draft.array_of(window.base, form.strides, window.start, bounds)
    frame = Frame(form.step, len(form.rows), form.columns is not None)
    made = Load(FULL, node.type.dtype, tuple(numbers), array=array, dims=len(form.strides),
                moves=form.step != 0, window=frame)  # fmt: skip
    return draft.add(made)
