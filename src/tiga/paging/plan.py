"""Cut a walk into pages that fit a budget, and predict what they read."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from itertools import pairwise

import numpy as np

from tiga.errors import OutOfBudget
from tiga.paging.cost import SLACK, Prices, Reach, bytes_in_files, bytes_staged
from tiga.paging.page import WORD
from tiga.paging.pipeline import READERS, WRITERS
from tiga.paging.span import SEEK_COST, LongRow, Span, Spans
from tiga.paging.stage import Stage
from tiga.runtime.arena import slack
from tiga.runtime.tiers import size_text

TARGET = 16 * 2**20
"""Bytes of a page that is not made larger: its requests are as long as a disk needs them, the last
cache holds it, and memory is asked of the system for a few such pages only."""

LONGEST = 64 * 2**20
"""The same where that leaves so many pages that few are begun or ended alone: what is done once for
each takes as long as reading several MiB."""

PAGES = 64
"""A walk has so many pages at least, where they take more than `TARGET`."""

NEAR = 2 * 2**20
"""The same for each thread, of files in the page cache: what a core has copied from there is then
in its caches when it computes. More threads have longer pages, as pages are begun one after
another; two threads' worth at least."""

TASKS_PER_THREAD = 4
"""Tasks that a page has at least for each thread that computes it, where the budget allows and they
are fixed."""

FEWER = (4, 2, 1)
"""Pages at a time that are tried where more are too small to hold what they must. Beside one alone
nothing is read or written: it is chosen where two move `WORTH` times as much."""

WORTH = 1.2
"""Larger pages are chosen where smaller ones cost so much more."""


@dataclass(frozen=True)
class Limits:
    """Bytes that all pages in memory may take together, how many are read ahead, and the rows of
    one, if they are bounded too.

    `target` is what a page takes that is not made larger, up to `longest` in walks that move much;
    `advice` says how to allow more bytes. Up to `readers` pages are read at a time, and `writers`
    written.
    """

    nbytes: int
    depth: int
    page_rows: int | None = None
    threads: int = 1
    target: int = TARGET
    longest: int = 0
    advice: str = "memory={'host': ...} of tg.execution (or TIGA_MEMORY_BOUND)"
    readers: int = READERS
    writers: int = WRITERS

    def of_cached(self) -> "Limits":
        """Those of pages that are copied from the page cache: there is no disk to wait for, so
        there are as many as threads, beside one."""
        target = min(self.target, NEAR * max(2, self.threads))
        return replace(self, depth=min(self.depth, self.threads), target=target, longest=0)

    def page_bytes(self, moved: int) -> int:
        """Bytes of a page that is not made larger, where so many are moved in all."""
        return max(self.target, min(self.longest, moved // PAGES))


@dataclass(frozen=True)
class Division:
    """How a backend's kernels take a walk apart, whatever the pages.

    `splits`: the rows of a task may be in several pages. Rows of more than `degree` edges are
    computed in chunks of `chunk`, which are gone through `passes` times (0: never without all
    others). No page crosses one of the `bounds` of tasks; the edges that a page holds begin at a
    multiple of `lead`, though its rows' may begin later.
    """

    splits: bool
    degree: int
    chunk: int
    passes: int
    bounds: tuple[int, ...]
    lead: int = 1


@dataclass(frozen=True)
class Planner:
    """Cuts one walk."""

    stage: Stage
    limits: Limits
    division: Division
    collects: bool = False

    @cached_property
    def prices(self) -> Prices:
        return Prices(self.stage, self.collects)

    @cached_property
    def tasks(self) -> list[list[int]]:
        """First row, and ranges of indices and of edge numbers, of each task."""
        return self.stage.walk.tasks.tolist()

    @cached_property
    def edges(self) -> list[int]:
        """The edge position at which each task starts."""
        return self.stage.walk.task_edges.tolist()

    def plan(self) -> Spans:
        """The pages of the whole walk.

        Raises:
            OutOfBudget: one row, or what may not be split, does not fit.
        """
        whole, best = self.limits.nbytes, None
        arenas = arenas_of(self.stage, self.limits)
        choices = [(arenas, self.limits.page_bytes(self.least_cost))]
        choices += [(count, whole) for count in (arenas, *FEWER) if count <= arenas]
        for count, target in dict.fromkeys(choices):
            limit = whole // count
            found = self._try(count, limit, min(target, limit))
            if found and (best is None or WORTH * found.cost < best.cost):
                best = found
            if best and best.cost <= WORTH * self.least_cost:
                break
        return best or Spans(self._pages(whole, whole), 1)

    def at_once(self) -> Spans | None:
        """Everything in one page, if it fits."""
        found = self._try(1, self.limits.nbytes, self.limits.nbytes)
        return found if found and len(found.pages) == 1 else None

    @cached_property
    def least_cost(self) -> int:
        """Bytes moved if everything were one page."""
        reach = reduce(Reach.joined, self.prices.reaches, Reach())
        span = self._span(0, len(self.tasks) - 1, reach, False)
        return span.read + span.written + SEEK_COST * span.seeks

    def _try(self, arenas: int, limit: int, target: int) -> Spans | None:
        try:
            pages = self._pages(limit, target, arenas == 1)
        except OutOfBudget:
            return None
        return Spans(pages, max(1, min(arenas, len(pages))))

    def _pages(self, limit: int, target: int, alone: bool = True) -> tuple[Span | LongRow, ...]:
        """Those of all tasks; `alone` where one is in memory at a time."""
        return tuple(
            page
            for low, high in pairwise(self.division.bounds)
            for page in self.cut(low, high, limit, target, alone=alone)
        )

    def cut(
        self, first: int, last: int, limit: int, target: int, sure: bool = False, alone: bool = True
    ) -> Iterator[Span | LongRow]:
        """Pages over tasks [first, last); `sure` where rows are picked that may all be distinct."""
        threads = self.limits.threads if alone else 1
        least = 1 if self.division.splits else TASKS_PER_THREAD * threads
        while first < last:
            end, span = first, None
            reach = Reach()
            for task in range(first, last):
                reach = reach.joined(self.prices.reaches[task])
                longer = self._span(first, task + 1, reach, sure)
                if not self._fits(longer, limit):
                    break
                end, span = task + 1, longer
                if span.nbytes >= target and end - first >= least:
                    break
            if span is None:
                yield from self._within(first, limit)
                end = first + 1
            else:
                yield span
            first = end

    def smaller(self, span: Span) -> Iterator[Span | LongRow]:
        """The pages in place of one that names more distinct rows than was expected."""
        assert span.last - span.first > 1, "a page took more memory than was planned"
        return self.cut(span.first, span.last, span.nbytes, span.nbytes, sure=True)

    def _fits(self, span: Span, limit: int) -> bool:
        rows, most = span.rows[1] - span.rows[0], self.limits.page_rows
        divides = span.last - span.first > 1 or self.division.splits
        return span.nbytes <= limit and not (divides and rows > (most or rows))

    def _span(self, first: int, last: int, reach: Reach, sure: bool) -> Span:
        rows = self.tasks[first][0], self.tasks[last][0]
        span = self._leading(Span(first, last, rows, ((self.edges[first], self.edges[last]),)))
        return self.prices.of(span, reach, sure or last - first == 1)

    def _leading(self, span: Span) -> Span:
        """With the edges before its own that kernels go through along with them."""
        ((low, high),) = span.parts
        lead = low % self.division.lead if high > low else 0
        return replace(span, parts=((low - lead, high),), lead=lead) if lead else span

    # within a task

    def _within(self, task: int, limit: int) -> Iterator[Span | LongRow]:
        """One task in several pages."""
        low, high = self.tasks[task][0], self.tasks[task + 1][0]
        pointers = self.stage.walk.pointers(np.arange(low, high + 1))
        if self.division.splits:
            yield from self._halves(task, low, high, pointers, limit)
            return
        hubs = np.flatnonzero(np.diff(pointers) > self.division.degree)
        if not self.division.passes:
            hubs = hubs[:0]
        ends = (pointers[0], *(p for h in hubs for p in pointers[h : h + 2]), pointers[-1])
        parts = tuple((int(a), int(b)) for a, b in zip(ends[::2], ends[1::2], strict=True))
        light = Span(task, task + 1, (low, high), parts, gap=self.division.degree + 1)
        yield self._required(self._priced_within(light), limit)
        for hub in hubs.tolist():
            yield self._long_row(task, low + hub, pointers[hub : hub + 2].tolist(), limit)

    def _halves(
        self, task: int, low: int, high: int, pointers: np.ndarray, limit: int
    ) -> Iterator[Span | LongRow]:
        edges = int(pointers[0]), int(pointers[-1])
        span = self._priced_within(self._leading(Span(task, task + 1, (low, high), (edges,))))
        if self._fits(span, limit):
            yield span
        elif high - low > 1:
            middle = (low + high) // 2
            yield from self._halves(task, low, middle, pointers[: middle - low + 1], limit)
            yield from self._halves(task, middle, high, pointers[middle - low :], limit)
        elif edges[1] - edges[0] > self.division.degree and self.division.passes:
            yield self._long_row(task, low, list(edges), limit)
        else:
            self._required(span, limit)

    def _long_row(self, task: int, row: int, edges: list[int], limit: int) -> LongRow:
        """As many chunks in a page as fit."""
        (start, end), chunk = edges, self.division.chunk
        place = Span(task, task + 1, (row, row + 1), ((start, start),), cut=True)
        chunks = -(-(end - start) // chunk)

        def part(first: int, count: int) -> Span:
            ends = start + first * chunk, min(start + (first + count) * chunk, end)
            return self._priced_within(replace(place, parts=(ends,)))

        count = chunks
        while count > 1 and part(0, count).nbytes > limit:
            count = -(-count // 2)
        parts = tuple(
            self._required(part(first, count), limit) for first in range(0, chunks, count)
        )
        own = self.prices.of(place, Reach(), True)
        return LongRow(task, row, end - start, parts, own, self.division.passes, chunk)

    def _priced_within(self, span: Span) -> Span:
        return self.prices.of(span, self.prices.reaches[span.first], True)

    def _required(self, span: Span, limit: int) -> Span:
        if span.nbytes > limit:
            raise OutOfBudget(
                f"a page of this graph takes at least {span.nbytes} bytes "
                f"({size_text(span.nbytes)}), and the budget leaves {limit} for one "
                f"({size_text(limit)}). Raise {self.limits.advice}."
            )
        return span


@dataclass(frozen=True)
class Way:
    """The cheapest way through a walk: its pages, whether these leave values stored by number to be
    put in order after the walk (`collects`), and whether arrays that they would read again and
    again are read whole before (`holds`)."""

    spans: Spans
    collects: bool
    holds: bool

    def planner(self, stage: Stage, limits: Limits, division: Division) -> Planner:
        """What cut the pages, for a walk whose arrays lie in the same kinds of places."""
        if self.holds:
            limits = replace(limits, nbytes=limits.nbytes - _scattered_bytes(stage))
            stage = stage.holding(stage.scattered)
        return Planner(stage, limits, division, self.collects)


def plan_walk(stage: Stage, limits: Limits, division: Division) -> Way:
    """The cheapest way through a walk. Arrays that pages would read again and again, as numbers
    lead everywhere, are read whole before, where they fit.

    Raises:
        OutOfBudget: a page does not fit.
    """
    planner = Planner(stage, limits, division)
    spans = planner.plan()
    if stage.collectable and spans.cost > WORTH * planner.least_cost:
        planner, spans = _collecting(planner, spans)
    found, whole = Way(spans, planner.collects, holds=False), _scattered_bytes(stage)
    few = limits.nbytes - whole < TARGET
    if not whole or few or spans.cost <= WORTH * planner.least_cost:
        return found
    held = replace(found, holds=True).planner(stage, limits, division).plan()
    held = replace(held, whole=whole, kept=spans.kept, ordered=spans.ordered)
    return replace(found, spans=held, holds=True) if WORTH * held.cost < spans.cost else found


def _scattered_bytes(stage: Stage) -> int:
    """Bytes of the arrays that pages read by number."""
    return sum(stage.homes[n].count * stage.homes[n].row_bytes for n in stage.scattered)


def _collecting(planner: Planner, spans: Spans) -> tuple[Planner, Spans]:
    """The same, or what is cheaper: pages that leave values stored by number to be put in order
    after the walk. Not where rows go through in parts, which store theirs several times."""
    stage, kept = planner.stage, planner.prices.costs.kept
    collects = replace(planner, collects=True)
    edges, ordered = stage.walk.num_edges, planner.prices.costs.stores_numbers
    found = replace(collects.plan(), kept=edges * kept, ordered=edges * ordered)
    parts = any(isinstance(page, LongRow) for page in found.pages)
    return (collects, found) if not parts and WORTH * found.cost < spans.cost else (planner, spans)


def arenas_of(stage: Stage, limits: Limits) -> int:
    """Pages in memory at a time: the one that is computed, those that are read meanwhile, and
    those that are written where results go to a file."""
    written = (*stage.program.stores, *stage.edge_stores)
    writes = any(n in stage.homes and not stage.homes[n].address for n in written)
    return arenas_for(limits, stage.reads_files, writes)


def arenas_for(limits: Limits, reads: bool, writes: bool) -> int:
    """The same, where pages read files, and write some."""
    return 1 + min(limits.depth, limits.readers) * reads + limits.writers * writes


@dataclass(frozen=True)
class RowBytes:
    """What a row without edges takes in a page, in how many arrays, and what it moves from and to
    files."""

    staged: int
    read: int = 0
    written: int = 0
    arrays: int = 0

    @staticmethod
    def of(stage: Stage) -> "RowBytes":
        """Those of a program without edges."""
        roles, stores = stage.roles, stage.program.stores
        degrees = WORD * len(roles.row_degrees)
        staged = bytes_staged(stage.homes, (*roles.rows, *stores)) + degrees
        read, written = (bytes_in_files(stage.homes, n) for n in (roles.rows, stores))
        return RowBytes(staged, read + degrees, written, stage.arrays)

    def span(self, first: int, last: int, rows: tuple[int, int]) -> Span:
        """The page of some rows."""
        count = rows[1] - rows[0]
        nbytes = SLACK + (count + 1) * self.staged
        nbytes += slack(nbytes, self.arrays)
        return Span(first, last, rows, ((0, 0),), nbytes=nbytes,
                    read=count * self.read, written=count * self.written)  # fmt: skip

    def most(self, nbytes: int) -> int:
        """The rows of a page of so many bytes."""
        room = nbytes - SLACK - slack(nbytes, self.arrays)
        return max(0, room // max(1, self.staged) - 1)


def row_spans(tasks: np.ndarray, row: RowBytes, limits: Limits, arenas: int) -> Spans:
    """Pages over rows without edges; one at a time where tasks of several do not fit."""
    target = limits.page_bytes(int(tasks[-1]) * (row.read + row.written))
    found = Spans(_row_pages(tasks, row, min(target, limits.nbytes // arenas)), arenas)
    if found.arenas * found.arena_bytes <= limits.nbytes:
        return found
    return Spans(_row_pages(tasks, row, min(limits.target, limits.nbytes)), 1)


def _row_pages(tasks: np.ndarray, row: RowBytes, nbytes: int) -> tuple[Span, ...]:
    most, firsts, first = row.most(nbytes), [0], 0
    while first < len(tasks) - 1:
        last = int(np.searchsorted(tasks, tasks[first] + most, side="right")) - 1
        first = min(max(last, first + 1), len(tasks) - 1)
        firsts.append(first)
    return tuple(
        row.span(first, last, (int(tasks[first]), int(tasks[last])))
        for first, last in pairwise(firsts)
    )
