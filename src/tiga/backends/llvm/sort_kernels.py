"""Kernels that sort the edges of a relation by counting.

Edges are cut into blocks, one for each task, with counters of their own: a block counts its edges
row by row, the counts become the places where they go, and the block puts them there. Edges of a
row keep the order of blocks and that within them, so the result is the stable one, however many
blocks there are. The same walk over the rows that makes places of counts makes row pointers, cuts
rows into tasks (see `tiga.relations.walk`) and finds the longest row.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from torch_mlir import ir
from torch_mlir.dialects import arith

from tiga.backends.llvm.frame import Frame, Values, each, for_each, number, only_if
from tiga.backends.llvm.lanes import Lanes, resized_integer, where
from tiga.backends.llvm.memory import i64
from tiga.backends.llvm.task_function import task_function
from tiga.relations.walk import HUB_DEGREE, MAX_TASKS, TASK_WEIGHT

SLOTS = (
    "rows", "row_stride", "others", "other_stride", "num_edges", "num_others", "block",
    "num_rows", "num_blocks", "counts", "faults", "row_ptr", "index", "edge_id", "task_ptr",
    "facts", "bounds",
)  # fmt: skip
"""Addresses, strides in elements, and numbers, in one table.

`rows` and `others` name the ends of every edge, by the first of which they are sorted. Where edges
are given in the order of the other end, `others` are row pointers over these, and block b has the
edges of those from `bounds[b]` to `bounds[b + 1]`; otherwise blocks have `block` edges each.
"""

FAULTS = 2
"""Numbers for each block: edges with an end that does not exist, and edges whose row is less than
that of the edge before."""

FACTS = ("num_tasks", "max_degree", "num_hubs")


@dataclass(frozen=True)
class EdgeFrame(Frame):
    """The table of a kernel; `given` are the bits of `rows` and `others`, `kept` those of what is
    stored."""

    given: int = 64
    kept: int = 64

    def row(self, edge: Lanes) -> Lanes:
        return self.words("rows", self.given).load(edge * self.number("row_stride"))

    def other(self, edge: Lanes) -> Lanes:
        return self.words("others", self.given).load(edge * self.number("other_stride"))

    def block(self, this: Lanes) -> tuple[Lanes, Lanes]:
        """The first edge of a block, which has one, and the edge after its last."""
        first = this * self.number("block")
        return first, _least(first + self.number("block"), self.number("num_edges"))

    def advance(self, block: Lanes, row: Lanes) -> Lanes:
        """Add one to the block's counter of a row; what it was."""
        counts = self.words("counts", self.kept)
        at = block * self.number("num_rows") + row
        old = counts.load(at)
        counts.store(old + 1, at)
        return old

    def put(self, place: Lanes, other: Lanes, edge: Lanes) -> None:
        self.words("index", self.kept).store(other, place)
        self.words("edge_id", self.kept).store(edge, place)


def _least(a: Lanes, b: Lanes) -> Lanes:
    return Lanes(arith.minsi(a.value, b.value))


def _most(a: Lanes, b: Lanes) -> Lanes:
    return Lanes(arith.maxsi(a.value, b.value))


def _exists(node: Lanes, count: Lanes) -> Lanes:
    """Whether a node is in `0..count-1`: read as unsigned, negative ones are the largest."""
    return Lanes(arith.cmpi(arith.CmpIPredicate.ult, node.value, count.value))


def _as_number(truth: Lanes) -> Lanes:
    return resized_integer(truth, 64, signed=False)


def _count(frame: EdgeFrame, block: Lanes) -> None:
    """Count the edges of a block by row, and look for faults. What does not exist counts for row 0:
    nobody reads the counts then."""
    first, last = frame.block(block)
    num_rows, num_others = frame.number("num_rows"), frame.number("num_others")
    zero = number(0)

    def edge(at: Lanes, before: Lanes, wrong: Lanes, falls: Lanes) -> Values:
        row = frame.row(at)
        exists = _exists(row, num_rows)
        right = exists & _exists(frame.other(at), num_others)
        frame.advance(block, where(exists, row, 0))
        return row, wrong + _as_number(~right), falls + _as_number(row < before)

    start = frame.row(_most(first - 1, zero))
    _, wrong, falls = each(first, last, (start, zero, zero), edge)
    faults = frame.words("faults")
    faults.store(wrong, block * FAULTS)
    faults.store(falls, block * FAULTS + 1)


def _place(frame: EdgeFrame, block: Lanes) -> None:
    """Put the edges of a block where they go."""

    def edge(at: Lanes) -> None:
        frame.put(frame.advance(block, frame.row(at)), frame.other(at), at)

    for_each(*frame.block(block), edge)


def _copy(frame: EdgeFrame, block: Lanes) -> None:
    """Put the other ends where they are: edges are in order."""
    index = frame.words("index", frame.kept)
    for_each(*frame.block(block), lambda at: index.store(frame.other(at), at))


def _others_of(frame: EdgeFrame, block: Lanes) -> tuple[Lanes, Lanes]:
    """The other ends whose edges a block has."""
    bounds = frame.words("bounds")
    return bounds.load(block), bounds.load(block + 1)


def _count_ordered(frame: EdgeFrame, block: Lanes) -> None:
    """As `_count`, where edges are in the order of their other ends."""
    starts, rows = frame.words("others"), frame.words("rows", frame.kept)

    def edge(at: Lanes) -> None:
        frame.advance(block, rows.load(at))

    first, last = map(starts.load, _others_of(frame, block))
    for_each(first, last, edge)


def _place_ordered(frame: EdgeFrame, block: Lanes) -> None:
    """As `_place`, where edges are in the order of their other ends."""
    starts, rows = frame.words("others"), frame.words("rows", frame.kept)

    def other(node: Lanes) -> None:
        def edge(at: Lanes) -> None:
            frame.put(frame.advance(block, rows.load(at)), node, at)

        for_each(starts.load(node), starts.load(node + 1), edge)

    for_each(*_others_of(frame, block), other)


def _places(frame: EdgeFrame, _: Lanes) -> None:
    """Make places of all counts, row pointers, and a plan."""
    counts, starts = frame.words("counts", frame.kept), frame.words("row_ptr")
    num_rows, zero = frame.number("num_rows"), number(0)

    def row(at: Lanes, start: Lanes) -> Values:
        def block(this: Lanes, place: Lanes) -> Values:
            own = this * num_rows + at
            count = counts.load(own)
            counts.store(place, own)
            return (place + count,)

        (end,) = each(zero, frame.number("num_blocks"), (start,), block)
        starts.store(end, at + 1)
        return (end,)

    starts.store(zero, zero)
    each(zero, num_rows, (zero,), row)
    _plan(frame, zero)


def _plan(frame: EdgeFrame, _: Lanes) -> None:
    """Cut rows into tasks, and find out about their degrees."""
    starts, num_rows, zero = frame.words("row_ptr"), frame.number("num_rows"), number(0)

    def row(at: Lanes, longest: Lanes, hubs: Lanes, apart: Lanes) -> Values:
        degree = starts.load(at + 1) - starts.load(at)
        is_hub = degree > HUB_DEGREE
        more = where(is_hub, degree, 0)
        return _most(longest, degree), hubs + _as_number(is_hub), apart + more

    longest, hubs, apart = each(zero, num_rows, (zero,) * 3, row)
    tasks = _cut(frame, starts.load(num_rows) + num_rows - apart)
    for i, fact in enumerate((tasks, longest, hubs)):
        frame.words("facts").store(fact, number(i))


def _cut(frame: EdgeFrame, total: Lanes) -> Lanes:
    """Cut rows of this weight together into tasks; how many. Each ends with the row that reaches a
    multiple of the weight that it should have."""
    starts, bounds = frame.words("row_ptr"), frame.words("task_ptr")
    num_rows, zero = frame.number("num_rows"), number(0)
    share = Lanes(arith.ceildivsi(total.value, i64(MAX_TASKS)))
    target = _most(number(TASK_WEIGHT), share)

    def row(at: Lanes, tasks: Lanes, weight: Lanes, goal: Lanes, last: Lanes) -> Values:
        degree = starts.load(at + 1) - starts.load(at)
        weight = weight + 1 + where(degree > HUB_DEGREE, 0, degree)
        ends = (weight >= goal) & (goal < total)
        tasks = tasks + _as_number(ends)
        only_if(ends, lambda: bounds.store(at + 1, tasks))
        times = Lanes(arith.divui(weight.value, target.value))
        goal = where(ends, (times + 1) * target, goal)
        return tasks, weight, goal, where(ends, at + 1, last)

    bounds.store(zero, zero)
    several = where(total > target, num_rows, 0)
    tasks, _, _, last = each(zero, several, (zero, zero, target, zero), row)
    tasks = tasks + _as_number(last < num_rows)
    only_if(last < num_rows, lambda: bounds.store(num_rows, tasks))
    return tasks


def _sort(frame: EdgeFrame, block: Lanes) -> None:
    """All of it, of the only block."""
    faults = frame.words("faults")
    _count(frame, block)

    def place() -> None:
        _places(frame, block)
        in_order = faults.load(block + 1).compare("eq", 0)
        only_if(in_order, lambda: _copy(frame, block))
        only_if(~in_order, lambda: _place(frame, block))

    only_if(faults.load(block).compare("eq", 0), place)


def _sort_ordered(frame: EdgeFrame, block: Lanes) -> None:
    """As `_sort`, where edges are in the order of their other ends."""
    _count_ordered(frame, block)
    _places(frame, block)
    _place_ordered(frame, block)


Kernel = Callable[[EdgeFrame, Lanes], None]

GIVEN: dict[str, Kernel] = {
    "count": _count, "places": _places, "place": _place, "copy": _copy, "sort": _sort,
}  # fmt: skip
ORDERED: dict[str, Kernel] = {
    "count": _count_ordered, "places": _places, "place": _place_ordered, "sort": _sort_ordered,
    "plan": _plan,
}  # fmt: skip
"""The kernels for edges as they are given, and for edges in the order of their other ends. "sort"
does what the others do, for one block; "plan" takes row pointers that are there."""


def add_kernels(kernels: Mapping[str, Kernel], given: int, kept: int) -> None:
    """Add `void name(ptr table, i64 lo, i64 hi)` for each to the module at the insertion point."""

    def prepare(body: Kernel, table: ir.Value) -> Callable[[ir.Value], None]:
        frame = EdgeFrame(table, SLOTS, given=given, kept=kept)
        return lambda number: body(frame, Lanes(number))

    for name, body in kernels.items():
        task_function(name, partial(prepare, body))
