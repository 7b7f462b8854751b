"""Cut a walk into pages that fit a budget, and predict what they read."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

from tiga.backends.llvm.paged_stage import DENSE, SPREAD, WORD, Stage
from tiga.errors import OutOfBudget
from tiga.runtime.pages import SPARSE
from tiga.runtime.tiers import size_text
from tiga.trace.node import Node

PICK_BYTES = 24
"""Scratch per edge where the other ends are far apart and have to be sorted."""


@dataclass(frozen=True)
class Limits:
    """Bytes that one page may take, and rows, if they are bounded too."""

    page_bytes: int
    page_rows: int | None = None


@dataclass(frozen=True)
class Span:
    """Tasks [first, last) as one page: the bytes it takes, and those it reads and writes."""

    first: int
    last: int
    nbytes: int
    read: int
    written: int


@dataclass
class PagePlan:
    """What a run does with pages, per step: predicted before the first is read."""

    lines: list[str] = field(default_factory=list)
    pages: int = 0
    peak: int = 0
    read: int = 0
    written: int = 0

    def add(self, what: str, spans: list[Span], at_once: int) -> None:
        """Count the pages of one step, of which `at_once` are in memory at a time."""
        peak = at_once * max((span.nbytes for span in spans), default=0)
        read, written = sum(s.read for s in spans), sum(s.written for s in spans)
        self.pages += len(spans)
        self.peak = max(self.peak, peak)
        self.read, self.written = self.read + read, self.written + written
        self.lines.append(
            f"{what}: {len(spans)} pages, at most {size_text(peak)} in memory, reads "
            f"{size_text(read)}, writes {size_text(written)}"
        )

    def told(self) -> list[str]:
        """The plan in words."""
        return [
            f"at the last call, over a graph in a file: {self.pages} pages, at most "
            f"{size_text(self.peak)} of them in memory, reads {size_text(self.read)}, writes "
            f"{size_text(self.written)}",
            *(f"  {line}" for line in self.lines),
        ]


@dataclass(frozen=True)
class Costs:
    """Bytes per row, per edge and per row of the other end that a page stages; of those, what is
    read from files and written to them."""

    rows: int
    edges: int
    others: int
    read_rows: int
    read_edges: int
    read_others: int
    written_rows: int
    written_edges: int


def costs_of(stage: Stage) -> Costs:
    """What staging takes, array by array: those in memory that kernels address cost nothing."""

    def staged(nodes: Iterable[Node]) -> int:
        homes = (stage.homes[n] for n in nodes)
        return sum(home.row_bytes for home in homes if not home.address)

    def from_file(nodes: Iterable[Node]) -> int:
        homes = (stage.homes[n] for n in nodes)
        return sum(home.row_bytes for home in homes if home.in_file)

    roles, stores = stage.roles, stage.program.stores
    others = roles.others if stage.remaps else ()
    return Costs(
        rows=staged(roles.rows) + staged(stores),
        edges=staged(roles.edges) + staged(stage.edge_stores),
        others=sum(stage.homes[n].row_bytes for n in others),
        read_rows=from_file(roles.rows),
        read_edges=from_file(roles.edges),
        read_others=from_file(others),
        written_rows=from_file(stores),
        written_edges=from_file(stage.edge_stores),
    )


def plan_walk(stage: Stage, limits: Limits) -> list[Span]:
    """The pages of a walk, each of as many tasks as fit.

    Raises:
        OutOfBudget: a single task does not fit.
    """
    costs, tasks = costs_of(stage), stage.walk.tasks
    spans: list[Span] = []
    first = 0
    while first < len(tasks) - 1:
        span = _span(stage, costs, first, first + 1)
        _require_fit(span, limits)
        while span.last < len(tasks) - 1:
            longer = _span(stage, costs, first, span.last + 1)
            rows = int(tasks[longer.last, 0] - tasks[first, 0])
            if longer.nbytes > limits.page_bytes or rows > (limits.page_rows or rows):
                break
            span = longer
        spans.append(span)
        first = span.last
    return spans


def _require_fit(span: Span, limits: Limits) -> None:
    if span.nbytes > limits.page_bytes:
        raise OutOfBudget(
            f"a page of this graph takes at least {span.nbytes} bytes "
            f"({size_text(span.nbytes)}), and the budget leaves {limits.page_bytes} for one "
            f"({size_text(limits.page_bytes)}). Raise memory={{'host': ...}} of tg.execution (or "
            "TIGA_MEMORY_BOUND), or lower its prefetch_depth."
        )


def _span(stage: Stage, costs: Costs, first: int, last: int) -> Span:
    walk, word = stage.walk, stage.walk.dtype.itemsize
    rows = int(walk.tasks[last, 0] - walk.tasks[first, 0])
    edges = int(walk.task_edges[last] - walk.task_edges[first])
    window = _window(walk.tasks[first:last, 1:3])
    others = window if DENSE * window <= edges else _distinct(window, edges)
    held = rows * (WORD + costs.rows) + edges * (word + costs.edges) + others * costs.others
    read = rows * (WORD + costs.read_rows) + edges * word
    read += _taken(others, window) * costs.read_others
    if walk.edge_id is None or not stage.edge_arrays:
        read += edges * costs.read_edges
    else:
        numbers = _window(walk.tasks[first:last, 3:5])
        held += edges * word + _scratch(numbers, edges, word)
        read += edges * word + _taken(edges, numbers) * costs.read_edges
    if stage.remaps:
        held += _scratch(window, edges, word)
    written = rows * costs.written_rows + edges * costs.written_edges
    return Span(first, last, held, read, written)


def _scratch(window: int, edges: int, word: int) -> int:
    """What numbering the rows of a window anew takes for a while; see `paged_stage.pick`."""
    if window > SPREAD * edges:
        return edges * PICK_BYTES
    return edges * 2 * word + window * (1 + word + WORD)


def _window(ranges: np.ndarray) -> int:
    """How many numbers lie between the least and the greatest of the tasks'."""
    used = ranges[ranges[:, 1] > ranges[:, 0]]
    return int(used[:, 1].max() - used[:, 0].min()) if len(used) else 0


def _distinct(window: int, edges: int) -> int:
    """Distinct numbers that so many edges name in a window, if they were drawn at random."""
    if not window or not edges:
        return 0
    return min(edges, round(window * -np.expm1(-edges / window)))


def _taken(distinct: int, window: int) -> int:
    """Rows read for so many picked from a window."""
    return window if window <= SPARSE * distinct else distinct


def row_spans(tasks: np.ndarray, row_bytes: int, limits: Limits) -> Iterator[tuple[int, int]]:
    """Spans of tasks over rows without edges, of as many rows as fit; at least one task."""
    most = max(1, limits.page_bytes // max(1, row_bytes))
    first = 0
    while first < len(tasks) - 1:
        last = int(np.searchsorted(tasks, tasks[first] + most, side="right")) - 1
        last = min(max(last, first + 1), len(tasks) - 1)
        yield first, last
        first = last
