"""Sorting a long vector some of it at a time: sorted runs in files, merged block by block."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tiga.frontends.tensor.mapped_results import mapped_rows
from tiga.ops.tensor_index import ArgSort, TakeAlong
from tiga.runtime.pages import FileRows
from tiga.runtime.scope import Scope
from tiga.trace.node import Node

SHARE = 8
"""Blocks of runs take one part in so many of the budget: sorting what they hold takes copies."""

LEAST_BLOCK = 64
"""Elements of a run that are merged at a time, at least."""


def sorted_vector(node: Node) -> Node | None:
    """The vector that a node sorts, or tells the order of; None for others."""
    x = node.inputs[0] if node.inputs else None
    if x is None or len(x.type.shape) != 1:
        return None
    order = node.inputs[1] if isinstance(node.op, TakeAlong) else node
    return x if isinstance(order.op, ArgSort) and order.inputs[0] is x else None


def descends(node: Node) -> bool:
    """Whether the largest comes first."""
    order = node.inputs[1] if isinstance(node.op, TakeAlong) else node
    assert isinstance(order.op, ArgSort)
    return bool(order.op.descending)


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
