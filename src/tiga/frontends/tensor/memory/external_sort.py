"""Sorting what is long some of it at a time: a vector in sorted runs in files, merged block by
block; along the first of several axes column by column, put side by side in a file before."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tiga.frontends.tensor.memory.mapped_results import mapped_rows
from tiga.ops.tensor_index import ArgSort, TakeAlong
from tiga.runtime.pages import FileRows
from tiga.runtime.scope import Scope
from tiga.trace.node import Node

Store = Callable[[int, np.ndarray], None]
"""Takes elements, and the number of the first."""

Each = Callable[[Store], None]
"""Gives a vector part by part."""

SHARE = 8
"""Blocks of runs take one part in so many of the budget: sorting what they hold takes copies."""

LEAST_BLOCK = 64
"""Elements of a run that are merged at a time, at least."""


class Order(NamedTuple):
    """How a value is sorted along its first axis: the largest come first if it `descends`; `back`:
    positions are asked for."""

    of: Node
    descends: bool
    back: bool


def order_of(node: Node) -> Order | None:
    """What a node sorts along its first axis, or tells the order of; None for others."""
    order = node.inputs[1] if isinstance(node.op, TakeAlong) else node
    if not isinstance(order.op, ArgSort) or order.op.axis:
        return None
    (x,) = order.inputs
    back = node is order
    taken = back or (node.inputs[0] is x and not node.op.axis)
    return Order(x, bool(order.op.descending), back) if taken else None


@dataclass
class Runs:
    """Runs of a vector of `count` elements, each sorted, with where its elements were.

    Ties keep the order of runs, and within them that of elements.
    """

    scope: Scope
    count: int
    dtype: np.dtype

    def __post_init__(self) -> None:
        what = f"sorting {self.count} elements"
        self.values, self._values = self._file(self.dtype, what)
        self.places, self._places = self._file(np.dtype(np.int64), what)
        self.ends = [0]

    def _file(self, dtype: np.dtype, what: str) -> tuple[np.ndarray, FileRows]:
        return mapped_rows(self.scope, (self.count,), dtype, what)

    def add(self, values: np.ndarray, places: np.ndarray) -> None:
        """Sort the next elements to a run of their own."""
        order, start = np.argsort(values, kind="stable"), self.ends[-1]
        self._values.write(start, values[order])
        self._places.write(start, places[order])
        self.ends.append(start + len(values))

    def merged(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """All elements and their places in order, some at a time."""
        at, ends = np.array(self.ends[:-1]), np.array(self.ends[1:])
        each = self.dtype.itemsize + 8
        block = (self.scope.host.budget or 0) // SHARE // each // max(1, len(at))
        size = max(LEAST_BLOCK, block)
        while (left := np.flatnonzero(at < ends)).size:
            lasts = self.values[np.minimum(at[left] + size, ends[left]) - 1]
            least = int(np.argsort(lasts, kind="stable")[0])
            parts = []
            for number, run in enumerate(left.tolist()):
                part = self.values[at[run] : min(at[run] + size, ends[run])]
                # The run of the least has ties of it left, which come before those of later runs.
                side = "right" if number <= least else "left"
                taken = int(np.searchsorted(part, lasts[least], side=side))  # type: ignore[call-overload]
                parts.append(np.arange(at[run], at[run] + taken))
                at[run] += taken
            rows = np.concatenate(parts)
            values = self.values[rows]
            order = np.argsort(values, kind="stable")
            yield values[order], self.places[rows][order]


def sort_vector(runs: Runs, each: Each, store: Store, backwards: bool, back: bool) -> None:
    """Sort what `each` gives part by part, and store it from a position on; its order if `back`.
    Backwards, parts come from the last on: ties keep their order, what is no number is first."""
    step, done = -1 if backwards else 1, 0
    each(lambda low, part: runs.add(part[::step], np.arange(low, low + len(part))[::step]))
    for found in runs.merged():
        part = found[back]
        low = runs.count - done - len(part) if backwards else done
        store(low, np.ascontiguousarray(part[::step]))
        done += len(part)


@dataclass
class Columns:
    """The columns of a matrix of `count` rows, each sorted by itself: in a file, one after the
    other, so that rows are gone through twice whatever the budget."""

    scope: Scope
    count: int
    width: int
    dtype: np.dtype
    backwards: bool
    back: bool

    def __post_init__(self) -> None:
        what = f"sorting {self.width} columns of {self.count} elements"
        of = (self.width, self.count)
        self.values, _ = mapped_rows(self.scope, of, self.dtype, what)
        self.found = self.values
        if self.back:
            self.found, _ = mapped_rows(self.scope, of, np.dtype(np.int64), what)

    def add(self, low: int, part: np.ndarray) -> None:
        """Take rows from number `low` on."""
        self.values[:, low : low + len(part)] = part.reshape(len(part), self.width).T

    def sort(self) -> None:
        """Sort all columns: as many at a time as fit, or one that does not in runs."""
        room = (self.scope.host.budget or 0) // SHARE
        each = self.count * (2 * self.dtype.itemsize + 16)
        if each > room:
            for column in range(self.width):
                self._sort_long(column)
            return
        step = min(self.width, room // each)
        with self.scope.temporary(step * each, f"sorting {step} columns of {self.count} elements"):
            for low in range(0, self.width, step):
                self._sort_short(slice(low, low + step))

    def _sort_short(self, some: slice) -> None:
        values, step = np.array(self.values[some]), -1 if self.backwards else 1
        order = np.argsort(values[:, ::step], axis=1, kind="stable")[:, ::step]
        order = self.count - 1 - order if self.backwards else order
        self.found[some] = order if self.back else np.take_along_axis(values, order, 1)

    def _sort_long(self, column: int) -> None:
        line = self.values[column]
        room = (self.scope.host.budget or 0) // SHARE // SHARE // (self.dtype.itemsize + 8)
        step = max(LEAST_BLOCK, room)

        def each(take: Store) -> None:
            lows = range(0, self.count, step)
            for low in reversed(lows) if self.backwards else lows:
                take(low, line[low : low + step])

        def store(low: int, part: np.ndarray) -> None:
            self.found[column, low : low + len(part)] = part

        runs = Runs(self.scope, self.count, self.dtype)
        sort_vector(runs, each, store, self.backwards, self.back)

    def rows(self) -> Iterator[tuple[int, np.ndarray]]:
        """The sorted rows, some at a time, with the number of the first."""
        width = self.width * self.found.dtype.itemsize
        step = max(1, (self.scope.host.budget or 0) // SHARE // width)
        for low in range(0, self.count, step):
            yield low, np.ascontiguousarray(self.found[:, low : low + step].T)
