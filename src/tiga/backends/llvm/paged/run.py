"""Run a plan over a graph in a file: the same kernels on the same tasks, a page of them at a time.

A page holds whole tasks of the walk's fixed decomposition, or rows of which no sum depends on it.
The kernels number rows, states of split rows and partial sums as they would on the whole graph, so
the results have the same bits.
"""

import ctypes
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from tiga.backends.llvm.executable import Executable
from tiga.backends.llvm.library import Matmul, numpy_matmul
from tiga.backends.llvm.node_products import ProductStep
from tiga.backends.llvm.paged.launch import Launcher, Pieces, RowInParts, even_tasks
from tiga.backends.llvm.paged.products import Products
from tiga.backends.llvm.paged.scatters import Sums
from tiga.backends.llvm.paged.steps import Steps, name_of
from tiga.backends.llvm.paged.tables import Tables
from tiga.backends.llvm.paged.team import Team
from tiga.backends.llvm.paged.tile_kernels import tiled_step
from tiga.backends.llvm.paged.tiles import TiledWalk
from tiga.backends.llvm.steps import RowStep
from tiga.backends.llvm.tasks import Over
from tiga.paging.collected import Collected
from tiga.paging.lanes import Lanes
from tiga.paging.pipeline import Arenas, Helpers, Job, Pipeline, never
from tiga.paging.plan import Limits, Planner
from tiga.paging.span import LongRow, PagePlan, Span, Spans
from tiga.paging.stage import Page, PagedGraph, Stage
from tiga.paging.tile_stage import TileStage
from tiga.paging.tiles import Tiling
from tiga.paging.walk import WalkJobs
from tiga.passes.rows import LibraryCall
from tiga.relations.walk import HUB_CHUNK
from tiga.runtime.arena import Arena, give_back_free_memory
from tiga.runtime.pages import FileRows, Rows, copy_rows
from tiga.trace.node import Node
from tiga.types import GLOBAL, Relation, Space

Allocate = Callable[[Node, int], Rows]
"""`allocate(node, count)`: rows for a value that one step stores for later ones."""


@dataclass(frozen=True)
class Paging:
    """How much memory pages may take, where values between steps go, what counts bytes of pages as
    used (and gives back what takes them back), files for so many rows of so many bytes, and the
    memory of a page."""

    limits: Limits
    allocate: Allocate
    charge: Callable[[int], Callable[[], None]]
    keep: Callable[[int, int], Rows]
    arena: Callable[[int], Arena] = Arena


@dataclass
class PagedRun:
    """One execution: global values by address, arrays over entities by where their rows lie."""

    graphs: Mapping[Relation, PagedGraph]
    extents: Mapping[Space, int]
    addresses: dict[Node, int]
    homes: dict[Node, Rows]
    team: Team
    matmul: Matmul
    paging: Paging
    pipeline: Pipeline
    plan: PagePlan
    scratch: list[np.ndarray] = field(default_factory=list)

    @property
    def products(self) -> Products:
        """What computes dense products."""
        return Products(
            self.extents, self.addresses, self.homes, self.paging.limits, self.team, self.matmul
        )

    def allocate(self, nbytes: int) -> int:
        """The address of scratch that lives as long as the run."""
        block = np.empty(max(nbytes, 1), np.uint8)
        self.scratch.append(block)
        return block.ctypes.data

    def provide(self, nodes: Iterable[Node]) -> None:
        """Have places for values that one step stores for later ones."""
        for node in nodes:
            if node.type.space == GLOBAL:
                self.addresses[node] = self.allocate(node.type.row_bytes)
            else:
                self.homes[node] = self.paging.allocate(node, self.extents[node.type.space])

    @property
    def steps(self) -> Steps:
        """What cuts steps into pages."""
        return Steps(self.graphs, self.extents, self.homes, self.paging.limits)

    def execute(self, step: Any) -> None:
        if isinstance(step, ProductStep):
            self._product(step)
        elif isinstance(step, LibraryCall):
            self.plan.add(name_of(step), self.products.library_spans(step.node))
            self.products.library(step.node)
        elif step.program.relation is None:
            self._rows(step)
        else:
            self._walk(step)

    def _product(self, step: ProductStep) -> None:
        spans, cut = self.products.spans(step), self.products.cut(step)
        self.plan.add(name_of(step), spans)
        self.pipeline.arenas.provide(spans, self.paging.limits.nbytes)
        pieces = np.empty(cut.pieces_bytes, np.uint8)
        self._go(self.products.jobs(step, spans, pieces), spans)
        if step.sums:
            step.add(self.addresses[step.node], pieces.ctypes.data, cut.tasks)

    def _walk(self, step: RowStep) -> None:
        planner, spans = self.steps.walk(step.program, step.schedule)
        walk = planner.stage.walk
        self.plan.add(name_of(step), spans)
        if isinstance(spans, Tiling):
            self._tiles(step, planner, spans)
            return
        sums = None
        if step.program.scatters:
            sums = Sums.of(step, len(walk.tasks) - 1, planner.stage.others)
        bits = walk.dtype.itemsize * 8
        tables = Tables.of(step.program, len(walk.tasks) - 1)
        launcher = Launcher(step, bits, self.team, self.addresses, Pieces(), sums, tables)
        kept = self._collected(planner)
        self.pipeline.arenas.provide(spans, self.paging.limits.nbytes)
        with self._charged(spans.resident):
            homes = {**self.homes, **self._held(planner.stage), **kept}
            planner = replace(planner, stage=replace(planner.stage, homes=homes))
            jobs = WalkPages(planner, launcher).jobs(spans.pages)
            in_order = sums is not None or tables is not None
            self._go(jobs, spans, bool(planner.stage.collectable), in_order)
        for collected in kept.values():
            self.pipeline.arenas.borrow(collected.finish)
        launcher.totals()
        if sums is not None:
            sums.finish(step.variant(bits).address, self.homes, self.team.threads)

    def _tiles(self, step: RowStep, planner: Planner, tiling: Tiling) -> None:
        """A walk by blocks of rows and tiles of their other ends."""
        stage = replace(planner.stage, homes=self.homes)
        bits, step = stage.walk.dtype.itemsize * 8, tiled_step(step)
        launcher = Launcher(step, bits, self.team, self.addresses, Pieces())
        self.pipeline.arenas.provide(tiling, self.paging.limits.nbytes)
        splits = planner.division.splits
        with self._charged(tiling.resident):
            arena = self.paging.arena(tiling.resident)
            TiledWalk(TileStage(stage), tiling, launcher, self.pipeline, arena, splits).run()
        launcher.totals()

    def _collected(self, planner: Planner) -> dict[Node, Any]:
        """What keeps values that are stored by number, where the plan says so."""
        stage, found = planner.stage, dict[Node, Any]()
        for node in stage.collectable if planner.collects else ():
            home, dtype, edges = stage.homes[node], stage.walk.dtype, stage.walk.num_edges
            numbers = self.paging.keep(edges, dtype.itemsize)
            rows = self.paging.keep(edges, home.row_bytes)
            found[node] = Collected(home, dtype, numbers, rows)
        return found

    def _rows(self, step: RowStep) -> None:
        stage, tasks, spans = self.steps.rows(step.program)
        self.plan.add(name_of(step), spans)
        launcher = Launcher(step, 32, self.team, self.addresses, Pieces())

        def run(span: Span, page: Page) -> None:
            launcher.page(page, np.ascontiguousarray(tasks[span.first : span.last + 1]))

        pages = (span for span in spans.pages if isinstance(span, Span))
        jobs = (Job(partial(stage.without_edges, s), partial(run, s), never) for s in pages)
        self.pipeline.arenas.provide(spans, self.paging.limits.nbytes)
        self._go(jobs, spans)
        launcher.totals()

    def _go(
        self, jobs: Iterable[Job], spans: Spans, one_by_one: bool = False, in_order: bool = False
    ) -> None:
        """Do the pages of a step: side by side, unless they depend on one another."""
        in_order = in_order or any(isinstance(page, LongRow) for page in spans.pages)
        if in_order or spans.arenas == 1:
            self.pipeline.run(jobs)
            return
        Lanes(self.pipeline.arenas, one_by_one).run(jobs)

    def _held(self, stage: Stage) -> dict[Node, Any]:
        """Arrays in files that the plan has in memory, read."""
        homes = ((n, home) for n, home in self.homes.items() if isinstance(home, FileRows))
        threads = self.team.threads
        return {n: home.loaded(threads) for n, home in homes if not stage.homes[n].in_file}

    @contextmanager
    def _charged(self, nbytes: int) -> Iterator[None]:
        """Count bytes as used for the body of a `with`."""
        uncharge = self.paging.charge(nbytes)
        try:
            yield
        finally:
            uncharge()


@dataclass(frozen=True)
class WalkPages(WalkJobs):
    """The jobs of a walk on the CPU."""

    launcher: Launcher

    def _read(self, span: Span, arena: Arena) -> Page:
        return self.stage.read(span, arena)

    def _run(self, page: Page) -> None:
        span = page.span
        tasks = np.ascontiguousarray(self.stage.walk.tasks[span.first : span.last + 1, 0])
        if self.planner.division.splits:
            tasks = even_tasks(span.rows, self.launcher.team.threads)
        self.launcher.page(page, tasks)

    def _long_row(self, long: LongRow) -> Iterator[Job]:
        row = RowInParts(self.launcher, long)
        for function in row.functions:
            if function.over is Over.HUBS:
                yield self._end(long.end, partial(row.whole, kernel=function.name))
                continue
            first, stage = 0, self.stage.storing(function.stores)
            for part in long.parts:
                run = partial(row.chunks, kernel=function.name, first=first)
                yield Job(partial(stage.read, part), run, never)
                first += -(-part.edges // HUB_CHUNK)

    def _end(self, span: Span, run: Callable[[Page], None]) -> Job:
        """A job on a row without its edges."""
        return Job(partial(self.stage.without_edges, span), run, never)


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
        OutOfBudget: a page of a single row does not fit.
        UnsupportedByBackend: the program holds something that needs all of a set in memory.
    """
    sizes = {GLOBAL: 1, **extents}
    addresses, homes, repeated = _places(executable, inputs, outputs)
    bound = dict(zip(executable.relations, graphs, strict=False))
    arenas = Arenas(paging.charge, paging.arena)
    with Helpers() as helpers, Team(threads) as team:
        pipeline = Pipeline(arenas, paging.limits.depth, helpers)
        plan = PagePlan(paging.limits.nbytes)
        run = PagedRun(bound, sizes, addresses, homes, team, matmul, paging, pipeline, plan)
        run.provide(executable.plan.intermediates)
        try:
            for step in executable.steps:
                run.execute(step)
            for node, value in repeated:
                _copy(node, value, run)
        finally:
            arenas.close()
    give_back_free_memory()
    executable.extents, executable.pages = sizes, run.plan
    return run.plan


def _places(
    executable: Executable, inputs: Sequence["Rows | int"], outputs: Sequence["Rows | int"]
) -> tuple[dict[Node, int], dict[Node, Rows], list[tuple[Node, Any]]]:
    """Where values lie, global ones and others; and where outputs are copied to that are inputs, or
    the same values as other outputs."""
    addresses: dict[Node, int] = {}
    homes: dict[Node, Rows] = {}
    repeated = []
    values = [*zip(executable.plan.inputs, inputs, strict=True)]
    values += zip(executable.plan.outputs, outputs, strict=True)
    for node, value in values:
        known: dict[Node, Any] = addresses if node.type.space == GLOBAL else homes
        if known.setdefault(node, value) != value:
            repeated.append((node, value))
    return addresses, homes, repeated


def _copy(node: Node, value: Any, run: PagedRun) -> None:
    if node.type.space == GLOBAL:
        if value != run.addresses[node]:
            ctypes.memmove(value, run.addresses[node], node.type.row_bytes)
        return
    copy_rows(run.homes[node], value)


__all__ = ["Limits", "PagePlan", "Paging", "run_paged"]
