"""Run a plan over a graph in a file: the same kernels on the same tasks, a page of them at a time.

A page holds whole tasks of the walk's fixed decomposition. The kernels number rows, states of split
rows and partial sums as they would on the whole graph, so the results have the same bits.
"""

import ctypes
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tiga.backends.llvm.executable import (
    Executable,
    ProductStep,
    RowStep,
    Variant,
    joined_tasks,
    row_tasks,
)
from tiga.backends.llvm.launcher import Launch, launch, launch_sequence, sequence_records
from tiga.backends.llvm.library import Matmul, numpy_matmul
from tiga.backends.llvm.paged_plan import Limits, PagePlan, Span, plan_walk, row_spans
from tiga.backends.llvm.paged_products import Products
from tiga.backends.llvm.paged_stage import Page, PagedGraph, Stage
from tiga.errors import UnsupportedByBackend
from tiga.passes.roles import roles_of
from tiga.passes.rows import LibraryCall
from tiga.relations.walk import HUB_DEGREE, plan_rows
from tiga.runtime.pages import Rows
from tiga.runtime.queue import Stream
from tiga.trace.node import Node
from tiga.types import GLOBAL, Relation, Space

Allocate = Callable[[int, int], Rows]
"""`allocate(count, row_bytes)`: rows for a value that one step stores for later ones."""


@dataclass(frozen=True)
class Paging:
    """How much memory pages may take, how many are read ahead, and where values between steps
    go."""

    limits: Limits
    depth: int
    allocate: Allocate


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


@dataclass
class PagedRun:
    """One execution: global values by address, arrays over entities by where their rows lie."""

    graphs: Mapping[Relation, PagedGraph]
    extents: Mapping[Space, int]
    addresses: dict[Node, int]
    homes: dict[Node, Rows]
    threads: int
    matmul: Matmul
    paging: Paging
    plan: PagePlan = field(default_factory=PagePlan)
    scratch: list[np.ndarray] = field(default_factory=list)

    @property
    def products(self) -> Products:
        """What computes dense products."""
        return Products(
            self.extents, self.addresses, self.homes, self.paging.limits.page_bytes,
            self.threads, self.matmul,
        )  # fmt: skip

    def allocate(self, nbytes: int) -> int:
        """The address of scratch that lives as long as the run."""
        block = np.empty(max(nbytes, 1), np.uint8)
        self.scratch.append(block)
        return block.ctypes.data

    def execute(self, step: Any) -> None:
        if isinstance(step, ProductStep):
            self.products.product(step)
        elif isinstance(step, LibraryCall):
            self.products.library(step.node)
        elif step.program.relation is None:
            self._rows(step)
        else:
            self._walk(step)

    # walks

    def _walk(self, step: RowStep) -> None:
        program = step.program
        if program.scatters:
            raise UnsupportedByBackend(
                "this program adds to sources from a walk over destinations (a gradient of a "
                "scan), which needs every source in memory; use `graph.in_memory()`."
            )
        assert program.relation is not None
        graph = self.graphs[program.relation]
        walk = graph.walks[program.side]
        if program.outer_sums:
            walk = walk.joined(joined_tasks(walk.tasks[:, 0]))
        stage = Stage(program, roles_of(program), graph, walk, self.homes)
        spans = plan_walk(stage, self.paging.limits)
        self.plan.add(f"walk, rows = {program.side}", spans, self.paging.depth + 1)
        bits, pieces = walk.dtype.itemsize * 8, Pieces()
        for page in prefetched(stage.read, spans, self.paging.depth):
            self._launch(step, page, bits, pieces)
            for finish in page.finish:
                finish()
            page.release()
        self._totals(step, bits, pieces)

    def _rows(self, step: RowStep) -> None:
        program, extent = step.program, self.extents[step.program.space]
        roles, tasks = roles_of(program), row_tasks(extent)
        staged = [n for n in (*roles.rows, *program.stores) if n.type.space != GLOBAL]
        row_bytes = sum(self.homes[n].row_bytes for n in staged if not self.homes[n].address)
        pieces, limits = Pieces(), self.paging.limits
        for first, last in row_spans(tasks, row_bytes, limits):
            page = _plain_page(tasks, first, last)
            graph = next(iter(self.graphs.values()), None)
            stage = Stage(program, roles, graph, None, self.homes)  # type: ignore[arg-type]
            stage._rows(page)
            self._launch(step, page, 32, pieces)
            for finish in page.finish:
                finish()
        self._totals(step, 32, pieces)

    def _launch(self, step: RowStep, page: Page, bits: int, pieces: Pieces) -> None:
        program, tasks = step.program, page.last - page.first
        walks = program.relation is not None
        split = _split(page) if walks and not program.scans else None
        hubs, chunks = (len(split.hub_rows), len(split.chunk_row)) if split else (0, 0)
        variant = step.variant(bits, HUB_DEGREE if hubs else 0)
        edge_id = 0 if page.edge_id is None else page.edge_id.ctypes.data
        at = page.row_ptr_address if walks else 0
        values = [at, page.index.ctypes.data, edge_id, page.tasks.ctypes.data]
        values += [array.ctypes.data for array in split.arrays] if split else [0] * 6
        degree = int(np.diff(page.row_ptr).max(initial=0))
        edges = page.edges[1] - page.edges[0]
        values += [page.rows[1], edges, tasks, hubs, chunks, 0, degree]
        values += [page.degrees.get(key, 0) for key in step.slots.degrees]
        values += [page.addresses.get(n) or self.addresses.get(n, 0) for n in step.slots.nodes]
        sums = {n: _states(n, tasks + hubs) for n in program.totals}
        sums |= {n: _states(n, tasks + chunks) for n in program.outer_sums}
        values += [sums[n].ctypes.data for n in step.slots.pieces]
        states = [_states(n, chunks) for n in step.slots.reductions]
        states += [_states(n, hubs) for n in step.slots.reductions]
        values += [s.ctypes.data for s in states] if hubs and program.phases else []
        table = (ctypes.c_int64 * len(values))(*values)
        self._launch_all(variant, ctypes.addressof(table), tasks, hubs, chunks)
        for node, block in sums.items():
            pieces.add(node, block, tasks)

    def _launch_all(self, variant: Variant, table: int, tasks: int, hubs: int, chunks: int) -> None:
        counts = {"rows": tasks, "finish": hubs}
        launches = [
            Launch(variant.address(n), table, counts.get(n, chunks if n[0] == "c" else hubs))
            for n in variant.functions
            if n != "totals"
        ]
        launch_sequence(sequence_records(launches), len(launches), self.threads)

    def _totals(self, step: RowStep, bits: int, pieces: Pieces) -> None:
        """Add the pieces of all pages, as the whole graph's would be."""
        program = step.program
        if not step.slots.pieces:
            return
        sums = {n: pieces.whole(n) for n in step.slots.pieces if n in pieces.tasks}
        tasks = max((sum(map(len, pieces.tasks[n])) for n in sums), default=0)
        hubs = max((len(sums[n]) - tasks for n in program.totals if n in sums), default=0)
        chunks = max((len(sums[n]) - tasks for n in program.outer_sums if n in sums), default=0)
        values = [0] * 10 + [0, 0, tasks, hubs, chunks, 0, 0]
        values += [0] * len(step.slots.degrees)
        values += [self.addresses.get(n, 0) for n in step.slots.nodes]
        values += [sums[n].ctypes.data if n in sums else 0 for n in step.slots.pieces]
        values += [0] * (2 * len(step.slots.reductions))
        table = (ctypes.c_int64 * len(values))(*values)
        launch(step.variant(bits, 0).address("totals"), ctypes.addressof(table), 1, 1)


def _states(node: Node, count: int) -> np.ndarray:
    """Partial results of a node, `[count, bytes]`."""
    return np.empty((count, node.type.size * node.type.dtype.compute.itemsize), np.uint8)


def _plain_page(tasks: np.ndarray, first: int, last: int) -> Page:
    rows = int(tasks[first]), int(tasks[last])
    own = np.ascontiguousarray(tasks[first : last + 1])
    none = np.zeros(1, np.int64)
    return Page(first, last, rows, (0, 0), none, own, none, None)


@dataclass(frozen=True)
class Split:
    """The chunks of a page's longest rows, in the order of the kernel's slots."""

    hub_rows: np.ndarray
    hub_ptr: np.ndarray
    chunk_row: np.ndarray
    chunk_lo: np.ndarray
    chunk_hi: np.ndarray
    chunk_hub: np.ndarray

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        return (self.hub_rows, self.hub_ptr, self.chunk_row, self.chunk_lo, self.chunk_hi,
                self.chunk_hub)  # fmt: skip


def _split(page: Page) -> Split | None:
    if not len(page.row_ptr) or int(np.diff(page.row_ptr).max(initial=0)) <= HUB_DEGREE:
        return None
    plan, first = plan_rows(page.row_ptr), page.rows[0]
    hub = np.repeat(np.arange(len(plan.hub_rows)), np.diff(plan.hub_ptr)).astype(np.int64)
    return Split(
        plan.hub_rows + first, plan.hub_ptr, plan.chunk_row + first, plan.chunk_lo, plan.chunk_hi,
        hub,
    )  # fmt: skip


def prefetched(
    read: Callable[[int, int], Page], spans: Sequence[Span], depth: int
) -> Iterator[Page]:
    """The pages in order; `depth` of them are read ahead on a thread of their own."""
    if not depth:
        yield from (read(span.first, span.last) for span in spans)
        return
    waiting: deque[tuple[Any, list[Page]]] = deque()
    left = iter(spans)

    def start(stream: Stream) -> None:
        span = next(left, None)
        if span is not None:
            box: list[Page] = []
            first, last = span.first, span.last
            waiting.append((stream.submit(lambda: box.append(read(first, last))), box))

    with Stream("tiga-pages") as stream:
        for _ in range(depth):
            start(stream)
        while waiting:
            event, box = waiting.popleft()
            event.wait()
            start(stream)
            yield box.pop()


def run_paged(
    executable: Executable,
    graphs: Sequence[PagedGraph],
    inputs: Sequence["Rows | int"],
    outputs: Sequence["Rows | int"],
    threads: int,
    extents: Mapping[Space, int],
    paging: Paging,
    matmul: Matmul = numpy_matmul,
) -> PagePlan:
    """Compute the outputs; what was read and held.

    `inputs` and `outputs` are rows for values over entities, addresses for global ones. The rest
    is as for `Executable.run`.

    Raises:
        OutOfBudget: a page of a single task does not fit.
        UnsupportedByBackend: the program holds something that needs all of a set in memory.
    """
    sizes = {GLOBAL: 1, **extents}
    addresses: dict[Node, int] = {}
    homes: dict[Node, Rows] = {}
    repeated = []
    values = [*zip(executable.plan.inputs, inputs, strict=True)]
    values += zip(executable.plan.outputs, outputs, strict=True)
    for node, value in values:
        known: dict[Node, Any] = addresses if node.type.space == GLOBAL else homes
        if known.setdefault(node, value) != value:
            repeated.append((node, value))
    bound = dict(zip(executable.relations, graphs, strict=False))
    run = PagedRun(bound, sizes, addresses, homes, threads, matmul, paging)
    for node in executable.plan.intermediates:
        if node.type.space == GLOBAL:
            addresses[node] = run.allocate(node.type.row_bytes)
        else:
            homes[node] = paging.allocate(sizes[node.type.space], node.type.row_bytes)
    for step in executable.steps:
        run.execute(step)
    for node, value in repeated:  # an input, or the same value as another output
        _copy(node, value, run)
    executable.extents, executable.pages = sizes, run.plan
    return run.plan


def _copy(node: Node, value: Any, run: PagedRun) -> None:
    if node.type.space == GLOBAL:
        if value != run.addresses[node]:
            ctypes.memmove(value, run.addresses[node], node.type.row_bytes)
        return
    home = run.homes[node]
    step = max(1, run.paging.limits.page_bytes // max(1, home.row_bytes))
    for low in range(0, home.count, step):
        value.write(low, home.read(low, min(low + step, home.count)))


__all__ = ["Limits", "PagePlan", "Paging", "run_paged"]
