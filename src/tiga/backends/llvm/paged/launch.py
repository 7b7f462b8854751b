"""Launch a row program's kernels on a page."""

import ctypes
from bisect import bisect
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from threading import Lock
from typing import Any

import numpy as np

from tiga.backends.llvm.edges import Lengths
from tiga.backends.llvm.launcher import Launch, launch
from tiga.backends.llvm.paged.scatters import Sums, group_bounds
from tiga.backends.llvm.paged.tables import Tables
from tiga.backends.llvm.paged.team import Team
from tiga.backends.llvm.scatters import SCATTER_GROUPS
from tiga.backends.llvm.steps import RowStep, Variant
from tiga.backends.llvm.tasks import Counts, Function, Over
from tiga.errors import UnsupportedByBackend
from tiga.paging.page import Page
from tiga.paging.span import LongRow
from tiga.relations.walk import HUB_CHUNK, HUB_DEGREE, plan_rows
from tiga.trace.node import Node

PARTS_PER_THREAD = 16
"""Parts that a page's rows are cut in where no sum over rows depends on it."""


@dataclass
class Pieces:
    """Partial sums of a step, in whatever order pages come: of each page its first row, the sums
    of `tasks` and those of split rows."""

    known: dict[Node, list["Piece"]] = field(default_factory=dict)

    def add(self, node: Node, first: int, block: np.ndarray, tasks: int) -> None:
        self.known.setdefault(node, []).append(Piece(first, block[:tasks], block[tasks:]))

    def tasks(self, node: Node) -> int:
        """How many tasks there were."""
        return sum(len(piece.tasks) for piece in self.known[node])

    def whole(self, node: Node) -> np.ndarray:
        """In the order of rows: those of tasks, then those of split rows."""
        pieces = sorted(self.known[node], key=lambda piece: piece.first)
        if len(pieces) == 1 and not len(pieces[0].split):
            return pieces[0].tasks
        return np.concatenate([*(p.tasks for p in pieces), *(p.split for p in pieces)])


@dataclass(frozen=True)
class Piece:
    """The partial sums of one page."""

    first: int
    tasks: np.ndarray
    split: np.ndarray


@dataclass(frozen=True)
class Split:
    """The chunks of long rows, in the order of the kernel's slots."""

    hub_rows: np.ndarray
    hub_ptr: np.ndarray
    chunk_row: np.ndarray
    chunk_lo: np.ndarray
    chunk_hi: np.ndarray
    chunk_hub: np.ndarray

    @property
    def addresses(self) -> dict[Any, int]:
        """Of each array, by the slot of its name."""
        return {field.name: getattr(self, field.name).ctypes.data for field in fields(self)}

    @staticmethod
    def of(page: Page) -> "Split":
        """Those of a page that holds the rows whole."""
        plan, first = plan_rows(page.row_ptr), page.rows[0]
        hub = np.repeat(np.arange(len(plan.hub_rows)), np.diff(plan.hub_ptr)).astype(np.int64)
        return Split(plan.hub_rows + first, plan.hub_ptr, plan.chunk_row + first, plan.chunk_lo,
                     plan.chunk_hi, hub)  # fmt: skip

    @staticmethod
    def of_rows(rows: np.ndarray, low: np.ndarray, high: np.ndarray) -> "Split":
        """The chunks of rows whose edges are at [low, high)."""
        counts = -(-(high - low) // HUB_CHUNK)
        hub = np.repeat(np.arange(len(rows)), counts)
        ends = np.concatenate(([0], np.cumsum(counts)))
        starts = low[hub] + (np.arange(len(hub)) - ends[hub]) * HUB_CHUNK
        return Split(rows, ends, rows[hub], starts, np.minimum(starts + HUB_CHUNK, high[hub]), hub)

    @staticmethod
    def of_row(row: int, low: int, high: int, chunks: int) -> "Split":
        """The chunks of one row whose edges are at [low, high); the row has `chunks` in all."""
        starts = np.arange(low, max(high, low + 1), HUB_CHUNK, dtype=np.int64)
        ends = np.minimum(starts + HUB_CHUNK, high)
        rows = np.full(len(starts), row, np.int64)
        return Split(np.array([row]), np.array([0, chunks]), rows, starts, ends,
                     np.zeros(len(starts), np.int64))  # fmt: skip


NO_SPLIT = Split(*(np.empty(0, np.int64) for _ in fields(Split)))


@dataclass(frozen=True)
class Launcher:
    """Runs one step's kernels; `addresses` are those of global values, `pieces` collects partial
    sums, `sums` those at the other ends, `tables` large ones by an index."""

    step: RowStep
    bits: int
    team: Team
    addresses: Mapping[Node, int]
    pieces: Pieces
    sums: Sums | None = None
    tables: Tables | None = None
    _compiling: Any = field(default_factory=Lock, repr=False)

    def variant(self, hub_degree: int = 0, most: int = 0) -> Variant:
        """The kernels for rows of at most so many edges, compiled once for all threads."""
        with self._compiling:
            return self.step.variant(self.bits, hub_degree, Lengths.of(most))

    def page(self, page: Page, tasks: np.ndarray) -> None:
        """All kernels on a page; `tasks` are boundaries of rows."""
        program, count = self.step.program, len(tasks) - 1
        if self.sums is not None:
            self._scatter(page, tasks, self.sums)
            return
        if self.tables is not None:
            self._fill(page, self.tables)
            return
        light = page.span.gap > 0
        split = Split.of(page) if page.max_degree > HUB_DEGREE and not light else NO_SPLIT
        hubs, chunks = len(split.hub_rows), len(split.chunk_row)
        sums = {n: states_of(n, count + hubs) for n in program.totals}
        sums |= {n: states_of(n, count + chunks) for n in program.outer_sums}
        states = self.states(hubs, chunks)
        named = {("partial", n): block.ctypes.data for n, block in sums.items()}
        named |= {name: block.ctypes.data for name, block in states.items()}
        counts = Counts(count, hubs, chunks)
        table = self.table(page, tasks, split, counts, named)
        variant = self.variant(HUB_DEGREE if hubs or light else 0, page.max_degree)
        pointer = ctypes.addressof(table)
        self.team.run(
            Launch(address, pointer, counts.of(over))
            for address, over in variant.kernels
            if over is not Over.ALL  # the sums of all pages are added once
        )
        for node, block in sums.items():
            self.pieces.add(node, page.rows[0], block, count)

    def _scatter(self, page: Page, tasks: np.ndarray, sums: Sums) -> None:
        """A page of tasks of one group: to the kernel, a quarter of all tasks."""
        if page.max_degree > HUB_DEGREE:
            raise UnsupportedByBackend(
                f"this program adds to sources from a walk over destinations (a gradient of a "
                f"scan); with a node of more than {HUB_DEGREE} edges it does not run on pages. "
                "Use `graph.in_memory()`."
            )
        program, count = self.step.program, len(tasks) - 1
        totals = {n: states_of(n, count) for n in (*program.totals, *program.outer_sums)}
        named: dict[Any, int] = {("partial", n): b.ctypes.data for n, b in totals.items()}
        bounds = group_bounds(sums.tasks)
        named |= sums.slots(bisect(bounds, page.span.first) - 1)
        named["num_others"] = sums.others
        counts = Counts(SCATTER_GROUPS * count)
        table = self.table(page, tasks, NO_SPLIT, counts, named)
        address = self.variant(0, page.max_degree).address("rows")
        launch(address, ctypes.addressof(table), 1, 1)
        for node, block in totals.items():
            self.pieces.add(node, page.rows[0], block, count)

    def _fill(self, page: Page, tables: Tables) -> None:
        """A page of rows that add to tables, one after the other."""
        if page.max_degree > HUB_DEGREE:
            raise UnsupportedByBackend(
                f"this program adds to a table by an index of its edges (the gradient of a large "
                f"table); with a row of more than {HUB_DEGREE} edges it does not run on pages. Use "
                "`graph.in_memory()`."
            )
        rows = np.array(page.rows, np.int64)
        named = tables.slots(page.span.first)
        table = self.table(page, rows, NO_SPLIT, Counts(1), named)
        address = self.variant(0, page.max_degree).address("rows")
        launch(address, ctypes.addressof(table), 1, 1)

    def states(self, hubs: int, chunks: int) -> dict[tuple[str, Node], np.ndarray]:
        """What is kept of split rows between kernels, by slot."""
        counts = {"chunk": chunks, "hub": hubs, "carry": chunks}
        named = (name for name in self.step.slots.names if isinstance(name, tuple))
        states: list[Any] = [name for name in named if name[0] in counts]
        return {name: states_of(name[1], counts[name[0]]) for name in states}

    def table(
        self, page: Page, tasks: np.ndarray, split: Split, counts: Counts,
        states: Mapping[Any, int],
    ) -> ctypes.Array:  # fmt: skip
        """The arguments of the kernels for a page."""
        walks = self.step.program.relation is not None
        return self.step.slots.table({
            **self.addresses,
            **{n: at for n, at in page.addresses.items() if at},
            "row_ptr": page.row_ptr_address if walks else 0,
            "index": page.index.ctypes.data,
            "edge_id": 0 if page.edge_id is None else page.edge_id.ctypes.data,
            "task_ptr": tasks.ctypes.data,
            "num_rows": page.rows[1],
            "num_edges": page.span.edges,
            "max_degree": page.max_degree,
            **split.addresses,
            **counts.slots,
            **{("degree", *key): at for key, at in page.degrees.items()},
            **states,
        })  # fmt: skip

    def totals(self) -> None:
        """Add the pieces of all pages, as the whole graph's would be."""
        program, slots, pieces = self.step.program, self.step.slots, self.pieces
        for node, block in self.tables.blocks.items() if self.tables is not None else ():
            pieces.add(node, 0, block, len(block))
        if not slots.pieces:
            return
        sums = {n: pieces.whole(n) for n in slots.pieces if n in pieces.known}
        tasks = max((pieces.tasks(n) for n in sums), default=0)
        hubs = max((len(sums[n]) - tasks for n in program.totals if n in sums), default=0)
        chunks = max((len(sums[n]) - tasks for n in program.outer_sums if n in sums), default=0)
        named: dict[Any, int] = {**Counts(tasks, hubs, chunks).slots, **self.addresses}
        named |= {("partial", n): block.ctypes.data for n, block in sums.items()}
        table = slots.table(named)
        launch(self.variant().address("totals"), ctypes.addressof(table), 1, 1)


@dataclass
class RowInParts:
    """A row whose edges do not fit a page: its chunks' states wait for those of the next pages.

    The same kernels on the same chunks as for a row in memory, so the same bits.
    """

    launcher: Launcher
    long: LongRow

    def __post_init__(self) -> None:
        step, chunks = self.launcher.step, self.long.chunks
        self.states = self.launcher.states(1, chunks)
        self.sums = {n: states_of(n, 1) for n in step.program.totals}
        self.sums |= {n: states_of(n, chunks) for n in step.program.outer_sums}
        for node, block in self.sums.items():
            self.launcher.pieces.add(node, self.long.row, block, 0)

    @property
    def functions(self) -> tuple[Function, ...]:
        """Those over split rows and their chunks, in their order."""
        functions = self.launcher.variant(HUB_DEGREE).functions
        return tuple(one for one in functions if one.over in (Over.HUBS, Over.CHUNKS))

    def chunks(self, page: Page, kernel: str, first: int) -> None:
        """A kernel over the chunks of a page, of which `first` is the first one's number."""
        split = Split.of_row(self.long.row, 0, page.span.edges, self.long.chunks)
        self._launch(page, kernel, split, len(split.chunk_row), first)

    def whole(self, page: Page, kernel: str) -> None:
        """A kernel over the row: it combines the states of all chunks, or stores its values."""
        split = Split.of_row(self.long.row, 0, 0, self.long.chunks)
        self._launch(page, kernel, split, 1, 0)

    def _launch(self, page: Page, kernel: str, split: Split, count: int, first: int) -> None:
        """States by chunk are those from the first chunk on."""
        launcher, outer = self.launcher, self.launcher.step.program.outer_sums
        named: dict[Any, int] = {}
        for node, block in self.sums.items():
            named["partial", node] = block.ctypes.data + first * block.shape[1] * (node in outer)
        for name, block in self.states.items():
            skipped = 0 if name[0] == "hub" else first
            named[name] = block.ctypes.data + skipped * block.shape[1]
        tasks, counts = np.array(page.rows, np.int64), Counts(0, 1, self.long.chunks)
        table = launcher.table(page, tasks, split, counts, named)
        address = launcher.variant(HUB_DEGREE).address(kernel)
        launcher.team.run([Launch(address, ctypes.addressof(table), count)])


def states_of(node: Node, count: int) -> np.ndarray:
    """Partial results of a node, `[count, bytes]`."""
    return np.empty((count, node.type.size * node.type.dtype.compute.itemsize), np.uint8)


def even_tasks(rows: tuple[int, int], threads: int) -> np.ndarray:
    """Boundaries of parts of a page's rows, for rows that do not depend on one another."""
    low, high = rows
    count = max(1, min(high - low, PARTS_PER_THREAD * threads))
    return np.linspace(low, high, count + 1).astype(np.int64)
