"""Launch a row program's kernels on a page."""

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from tiga.backends.llvm.executable import RowStep, Variant
from tiga.backends.llvm.launcher import Launch, launch, launch_sequence, sequence_records
from tiga.backends.llvm.paged_span import LongRow
from tiga.backends.llvm.paged_stage import Page
from tiga.relations.walk import HUB_CHUNK, HUB_DEGREE, plan_rows
from tiga.trace.node import Node

PARTS_PER_THREAD = 16
"""Parts that a page's rows are cut in where no sum over rows depends on it."""


@dataclass
class Pieces:
    """Partial sums of a step, page after page: those of tasks, then those of split rows."""

    tasks: dict[Node, list[np.ndarray]] = field(default_factory=dict)
    split: dict[Node, list[np.ndarray]] = field(default_factory=dict)

    def add(self, node: Node, block: np.ndarray, tasks: int) -> None:
        self.tasks.setdefault(node, []).append(block[:tasks])
        self.split.setdefault(node, []).append(block[tasks:])

    def whole(self, node: Node) -> np.ndarray:
        return np.concatenate([*self.tasks[node], *self.split[node]])


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
    def addresses(self) -> list[int]:
        arrays = (self.hub_rows, self.hub_ptr, self.chunk_row, self.chunk_lo, self.chunk_hi,
                  self.chunk_hub)  # fmt: skip
        return [array.ctypes.data for array in arrays]

    @staticmethod
    def of(page: Page) -> "Split":
        """Those of a page that holds the rows whole."""
        plan, first = plan_rows(page.row_ptr), page.rows[0]
        hub = np.repeat(np.arange(len(plan.hub_rows)), np.diff(plan.hub_ptr)).astype(np.int64)
        return Split(plan.hub_rows + first, plan.hub_ptr, plan.chunk_row + first, plan.chunk_lo,
                     plan.chunk_hi, hub)  # fmt: skip

    @staticmethod
    def of_row(row: int, low: int, high: int, chunks: int) -> "Split":
        """The chunks of one row whose edges are at [low, high); the row has `chunks` in all."""
        starts = np.arange(low, max(high, low + 1), HUB_CHUNK, dtype=np.int64)
        ends = np.minimum(starts + HUB_CHUNK, high)
        rows = np.full(len(starts), row, np.int64)
        return Split(np.array([row]), np.array([0, chunks]), rows, starts, ends,
                     np.zeros(len(starts), np.int64))  # fmt: skip


@dataclass(frozen=True)
class Launcher:
    """Runs one step's kernels; `addresses` are those of global values, `pieces` collects partial
    sums."""

    step: RowStep
    bits: int
    threads: int
    addresses: Mapping[Node, int]
    pieces: Pieces

    def page(self, page: Page, tasks: np.ndarray) -> None:
        """All kernels on a page; `tasks` are boundaries of rows."""
        program, count = self.step.program, len(tasks) - 1
        light = page.span.gap > 0
        splits = not program.scans and page.max_degree > HUB_DEGREE
        split = Split.of(page) if splits and not light else None
        hubs, chunks = (len(split.hub_rows), len(split.chunk_row)) if split else (0, 0)
        sums = {n: _states(n, count + hubs) for n in program.totals}
        sums |= {n: _states(n, count + chunks) for n in program.outer_sums}
        states = [_states(n, chunks) for n in self.step.slots.reductions]
        states += [_states(n, hubs) for n in self.step.slots.reductions]
        variant = self.step.variant(self.bits, HUB_DEGREE if hubs or light else 0)
        at = [block.ctypes.data for block in (*sums.values(), *states)]
        table = self._table(page, tasks, split, (count, hubs, chunks), at)
        self._launch(variant, table, {"rows": count, "finish": hubs}, chunks, hubs)
        for node, block in sums.items():
            self.pieces.add(node, block, count)

    def _table(
        self,
        page: Page,
        tasks: np.ndarray,
        split: Split | None,
        counts: tuple[int, int, int],
        states: list[int],
    ) -> ctypes.Array:
        walks = self.step.program.relation is not None
        edge_id = 0 if page.edge_id is None else page.edge_id.ctypes.data
        values = [page.row_ptr_address if walks else 0, page.index.ctypes.data, edge_id]
        values += [tasks.ctypes.data, *(split.addresses if split else [0] * 6)]
        values += [page.rows[1], page.span.edges, *counts, 0, page.max_degree]
        values += [page.degrees.get(key, 0) for key in self.step.slots.degrees]
        values += [page.addresses.get(n) or self.addresses.get(n, 0)
                   for n in self.step.slots.nodes]  # fmt: skip
        values += states
        return (ctypes.c_int64 * len(values))(*values)

    def _launch(
        self, variant: Variant, table: ctypes.Array, counts: Mapping[str, int], chunks: int,
        hubs: int,
    ) -> None:  # fmt: skip
        pointer = ctypes.addressof(table)
        launches = [
            Launch(variant.address(n), pointer, counts.get(n, chunks if n[0] == "c" else hubs))
            for n in variant.functions
            if n != "totals"
        ]
        launch_sequence(sequence_records(launches), len(launches), self.threads)

    def totals(self) -> None:
        """Add the pieces of all pages, as the whole graph's would be."""
        program, slots, pieces = self.step.program, self.step.slots, self.pieces
        if not slots.pieces:
            return
        sums = {n: pieces.whole(n) for n in slots.pieces if n in pieces.tasks}
        tasks = max((sum(map(len, pieces.tasks[n])) for n in sums), default=0)
        hubs = max((len(sums[n]) - tasks for n in program.totals if n in sums), default=0)
        chunks = max((len(sums[n]) - tasks for n in program.outer_sums if n in sums), default=0)
        values = [0] * 10 + [0, 0, tasks, hubs, chunks, 0, 0]
        values += [0] * len(slots.degrees)
        values += [self.addresses.get(n, 0) for n in slots.nodes]
        values += [sums[n].ctypes.data if n in sums else 0 for n in slots.pieces]
        values += [0] * (2 * len(slots.reductions))
        table = (ctypes.c_int64 * len(values))(*values)
        address = self.step.variant(self.bits, 0).address("totals")
        launch(address, ctypes.addressof(table), 1, 1)


@dataclass
class RowInParts:
    """A row whose edges do not fit a page: its chunks' states wait for those of the next pages.

    The same kernels on the same chunks as for a row in memory, so the same bits.
    """

    launcher: Launcher
    long: LongRow

    def __post_init__(self) -> None:
        step, chunks = self.launcher.step, self.long.chunks
        self.chunk_states = [_states(n, chunks) for n in step.slots.reductions]
        self.row_states = [_states(n, 1) for n in step.slots.reductions]
        self.sums = {n: _states(n, 1) for n in step.program.totals}
        self.sums |= {n: _states(n, chunks) for n in step.program.outer_sums}

    def chunks(self, page: Page, phase: int, first: int) -> None:
        """One phase over the chunks of a page, of which `first` is the first one's number."""
        split = Split.of_row(self.long.row, 0, page.span.edges, self.long.chunks)
        self._launch(page, f"chunks{phase}", split, len(split.chunk_row), first)

    def combine(self, page: Page, phase: int) -> None:
        """Combine the states of all chunks, in their order."""
        split = Split.of_row(self.long.row, 0, 0, self.long.chunks)
        self._launch(page, f"hubs{phase}", split, 1, 0)

    def finish(self, page: Page) -> None:
        """Store the row's values."""
        split = Split.of_row(self.long.row, 0, 0, self.long.chunks)
        self._launch(page, "finish", split, 1, 0)
        for node, block in self.sums.items():
            self.launcher.pieces.add(node, block, 0)

    def _launch(self, page: Page, name: str, split: Split, count: int, first: int) -> None:
        launcher, outer = self.launcher, self.launcher.step.program.outer_sums
        at = [b.ctypes.data + first * b.shape[1] * (n in outer) for n, b in self.sums.items()]
        at += [b.ctypes.data + first * b.shape[1] for b in self.chunk_states]
        at += [b.ctypes.data for b in self.row_states]
        tasks = np.array(page.rows, np.int64)
        table = launcher._table(page, tasks, split, (0, 1, self.long.chunks), at)
        variant = launcher.step.variant(launcher.bits, HUB_DEGREE)
        records = sequence_records([Launch(variant.address(name), ctypes.addressof(table), count)])
        launch_sequence(records, 1, launcher.threads)


def _states(node: Node, count: int) -> np.ndarray:
    """Partial results of a node, `[count, bytes]`."""
    return np.empty((count, node.type.size * node.type.dtype.compute.itemsize), np.uint8)


def even_tasks(rows: tuple[int, int], threads: int) -> np.ndarray:
    """Boundaries of parts of a page's rows, for rows that do not depend on one another."""
    low, high = rows
    count = max(1, min(high - low, PARTS_PER_THREAD * threads))
    return np.linspace(low, high, count + 1).astype(np.int64)
