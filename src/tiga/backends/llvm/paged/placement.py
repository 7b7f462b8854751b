"""Where the arrays of a run over a graph in a file lie: in memory while they fit, else in the
scope's spill file."""

from collections.abc import Callable, Mapping

import numpy as np

from tiga.knobs import current
from tiga.paging.pipeline import READERS
from tiga.paging.plan import LONGEST, Limits
from tiga.paging.results import fitting, spilled, spilled_array
from tiga.runtime.arena import HUGE, Arena, in_huge_pages
from tiga.runtime.pages import MemoryRows, Rows, Traffic
from tiga.runtime.scope import Scope, active, fallback
from tiga.trace.node import Node

COMPUTED = 8
"""Pages that are computed at a time, at most, each by a thread of its own or several."""

SHARE = 2
"""Outputs and values between steps stay in memory as far as they take up to one part in so many of
what the budget leaves; pages get the rest."""


class Placement:
    """Outputs and values between steps of one run on `threads` threads."""

    def __init__(
        self, traffic: Traffic, sizes: Mapping[Node, int], spill: bool, threads: int, held: int = 0
    ) -> None:
        """`spill`: nothing stays in memory. `held`: bytes that will be live by then, beside those
        that are now."""
        scope = active()
        self.scope: Scope = fallback() if scope is None else scope
        self.traffic = traffic
        budget = self.scope.host.budget
        left = None if budget is None else max(0, budget - self.scope.host.live - held)
        room = 0 if spill else sum(sizes.values()) if left is None else left // SHARE
        self.resident = fitting(sizes, room)
        stored = sum(sizes[node] for node in self.resident)
        bound = current().memory_bound if left is None else left - stored
        ahead = READERS + min(threads, COMPUTED)
        self.limits = Limits(
            bound, self.scope.depth(ahead), self.scope.page_rows, threads, longest=LONGEST,
            readers=ahead,
        )  # fmt: skip

    def arena(self, nbytes: int) -> Arena:
        """Memory of pages: where it takes long to ask for, that of a run before."""
        if not self.scope.keeps(nbytes):
            return Arena(nbytes)
        whole = self.scope.memory((nbytes + HUGE,), np.dtype(np.uint8))
        return Arena(nbytes, in_huge_pages(whole))

    def charge(self, nbytes: int) -> Callable[[], None]:
        """Count the memory of pages; what is returned takes that back."""
        if active() is None:
            return lambda: None
        ticket = self.scope.charge(nbytes, "pages of a graph in a file")
        return lambda: self.scope.host.release(ticket)

    def output(self, node: Node, count: int) -> tuple[np.ndarray, Rows]:
        """An array for an output over entities, and where its rows are stored."""
        shape, dtype = (count, *node.type.shape), node.type.dtype.numpy
        if node not in self.resident and count * node.type.row_bytes:
            return spilled_array(self.scope, self.traffic, shape, dtype)
        array = self.scope.memory(shape, dtype)
        if active() is not None:
            self.scope.adopt(array, f"an output of shape {shape}")
        return array, MemoryRows(array)

    def between(self, node: Node, count: int) -> Rows:
        """Rows for a value that one step stores for later ones."""
        row_bytes = node.type.row_bytes
        if node not in self.resident and count * row_bytes:
            return spilled(self.scope, self.traffic, count, row_bytes)
        array = np.empty((count, row_bytes), np.uint8)
        if active() is not None:
            self.scope.adopt(array, f"a value between steps, {count} rows")
        return MemoryRows(array)
