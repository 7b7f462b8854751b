"""Kernels that find near points by bins: they count the neighbours of each point, or store them."""

from collections.abc import Callable
from functools import partial

from torch_mlir import ir
from torch_mlir.dialects import arith

from tiga.backends.llvm.frame import Frame, Values, each, for_each, number, only_if
from tiga.backends.llvm.lanes import Lanes, where
from tiga.backends.llvm.task_function import task_function

AXES = 3
POINTS_PER_TASK = 64

SLOTS = (
    "position", "ordered", "order", "system", "bin", "starts", "cells", "bins", "periodic",
    "offsets", "num_offsets", "num_points", "most", "wraps", "row_ptr", "src", "shift",
)  # fmt: skip
"""Addresses and numbers. `ordered` are the positions bin after bin, of the points `order`; the
points of bin b are there from `starts[b]` to `starts[b + 1]`. `bin` has a place for each axis, of
`bins` along it; `periodic` has a flag for each system and axis. `most` is the square of the
cutoff, `wraps` how far points were moved into the cell."""

Triple = tuple[Lanes, Lanes, Lanes]
Pair = Callable[[Lanes, Lanes, Triple, Lanes], Lanes]
"""What is done with a pair: the source, how many near ones came before, the source's image, and
whether they are near. The number after it."""


def _triple(load: Callable[[Lanes], Lanes], row: Lanes) -> Triple:
    first = row * AXES
    return load(first), load(first + 1), load(first + 2)


def _divided(a: Lanes, b: Lanes) -> Lanes:
    return Lanes(arith.floordivsi(a.value, b.value))


def _target(
    frame: Frame, periodic: Triple, place: Triple, offset: Lanes
) -> tuple[Lanes, Lanes, Triple]:
    """The bin at an offset from a place, as a number within a system, whether there is one, and
    the image that it is of."""
    bins = frame.words("bins")
    key, exists, image = number(0), number(0).compare("eq", 0), []
    for axis, step in enumerate(_triple(frame.words("offsets").load, offset)):
        count, at = bins.load(number(axis)), place[axis] + step
        turns = where(periodic[axis].compare("ne", 0), _divided(at, count), 0)
        at = at - turns * count
        exists = exists & (at >= 0) & (at < count)
        key = key * count + at
        image.append(turns)
    return key, exists, (image[0], image[1], image[2])


def _moved(frame: Frame, system: Lanes, image: Triple) -> Triple:
    """How far an image is from what it is of."""
    turns = [Lanes(arith.sitofp(ir.F64Type.get(), turn.value)) for turn in image]
    rows = [_triple(frame.reals("cells"), system * AXES + axis) for axis in range(AXES)]
    found = [
        turns[0] * rows[0][k] + turns[1] * rows[1][k] + turns[2] * rows[2][k] for k in range(AXES)
    ]
    return found[0], found[1], found[2]


def _bins_of_a_system(frame: Frame) -> Lanes:
    total = number(1)
    for axis in range(AXES):
        total = total * frame.words("bins").load(number(axis))
    return total


def _squared_distance(here: Triple, there: Triple, moved: Triple) -> Lanes:
    # Both directions of a pair are rounded alike: the difference of positions changes its sign with
    # them, and so does what is added.
    x, y, z = ((there[k] - here[k]) + moved[k] for k in range(AXES))
    return x * x + y * y + z * z


def _neighbours(frame: Frame, point: Lanes, start: Lanes, visit: Pair) -> Lanes:
    """`visit` for each pair of a point with one that may be near; the number after the last."""
    starts, order = frame.words("starts"), frame.words("order")
    here = _triple(frame.reals("position"), point)
    place = _triple(frame.words("bin").load, point)
    system = frame.words("system").load(point)
    periodic = _triple(frame.words("periodic").load, system)
    total = _bins_of_a_system(frame)

    def from_bin(offset: Lanes, found: Lanes) -> Values:
        key, exists, image = _target(frame, periodic, place, offset)
        key = where(exists, system * total + key, 0)
        moved = _moved(frame, system, image)
        own = (image[0] | image[1] | image[2]).compare("eq", 0)

        def pair(at: Lanes, found: Lanes) -> Values:
            distance = _squared_distance(here, _triple(frame.reals("ordered"), at), moved)
            other = order.load(at)
            itself = own & other.compare("eq", point)
            is_near = (distance <= frame.real("most")) & ~itself
            return (visit(other, found, image, is_near),)

        first = starts.load(key)
        end = where(exists, starts.load(key + 1), first)
        return each(first, end, (found,), pair)

    (found,) = each(number(0), frame.number("num_offsets"), (start,), from_bin)
    return found


def _count(frame: Frame, point: Lanes) -> None:
    def visit(other: Lanes, found: Lanes, image: Triple, is_near: Lanes) -> Lanes:
        return found + where(is_near, number(1), 0)

    found = _neighbours(frame, point, number(0), visit)
    frame.words("row_ptr").store(found, point + 1)


def _store(frame: Frame, point: Lanes) -> None:
    src, shift, wraps = (frame.words(name) for name in ("src", "shift", "wraps"))

    def visit(other: Lanes, found: Lanes, image: Triple, is_near: Lanes) -> Lanes:
        def store() -> None:
            src.store(other, found)
            here, there = _triple(wraps.load, point), _triple(wraps.load, other)
            for k in range(AXES):
                shift.store(image[k] + here[k] - there[k], found * AXES + k)

        only_if(is_near, store)
        return found + where(is_near, number(1), 0)

    _neighbours(frame, point, frame.words("row_ptr").load(point), visit)


def add_kernels() -> None:
    """Add `void count(ptr table, i64 lo, i64 hi)` and `store` to the module at the insertion
    point; tasks are `POINTS_PER_TASK` points each."""
    for name, body in (("count", _count), ("store", _store)):
        task_function(name, partial(_tasks, body))


def _tasks(body: Callable[[Frame, Lanes], None], table: ir.Value) -> Callable[[ir.Value], None]:
    frame = Frame(table, SLOTS)

    def task(this: ir.Value) -> None:
        first = Lanes(this) * POINTS_PER_TASK
        last = Lanes(arith.minsi((first + POINTS_PER_TASK).value, frame.number("num_points").value))
        for_each(first, last, lambda point: body(frame, point))

    return task
