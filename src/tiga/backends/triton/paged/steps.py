"""How each step of a plan goes through pages on a GPU: what a run follows, and what can be told of
one before it, as nothing but sizes and places of arrays (and of the graph, its row pointers and a
sample of its indices) is looked at."""

from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tiga.backends.triton.edge_tiles import EdgeTile
from tiga.backends.triton.executable import Executable
from tiga.backends.triton.launch import RowStep
from tiga.backends.triton.paged.facts import WalkFacts
from tiga.backends.triton.paged.launch import StepKernels, state_bytes
from tiga.backends.triton.paged.sums import sums_bytes
from tiga.backends.triton.paged.walk import division_of, list_bytes
from tiga.backends.triton.preparation import Run, Shape
from tiga.backends.triton.split_scans import splits
from tiga.backends.triton.topology import CHUNK, NO_EDGES
from tiga.errors import OutOfBudget, UnsupportedByBackend
from tiga.paging.plan import Limits, Planner, RowBytes, arenas_of, row_spans
from tiga.paging.span import LongRow, PagePlan, Span, Spans, step_name
from tiga.paging.stage import PagedGraph, Stage
from tiga.passes.roles import roles_of
from tiga.passes.rows import RowProgram
from tiga.runtime.platform import Platform
from tiga.trace.node import Node
from tiga.types import Relation, Space

ROWS = 1024
"""Rows without edges come in pages of a multiple of so many: their arrays stay aligned."""

MOST_PLANS = 8
"""Plans of one walk's pages are kept for so many different budgets and places of arrays."""

_NO_WALK: Any = None


@dataclass(frozen=True)
class Steps:
    """The pages of steps over graphs, whose arrays over entities lie in `homes` and whose global
    values are at `globals`. `limits` are those of pages, `device` the bytes that these and scratch
    may take of the device together; `facts` finds those of a walk. Pages take no
    more than `page_bytes` together, unless they have to, or sums depend on them."""

    platform: Platform
    graphs: Mapping[Relation, PagedGraph]
    extents: Mapping[Space, int]
    homes: Mapping[Node, Any]
    globals: Mapping[Node, int]
    limits: Limits
    device: int
    facts: Callable[[PagedGraph, str], WalkFacts]
    page_bytes: int

    def walk(self, step: RowStep) -> tuple[StepKernels, Planner, Spans]:
        """Those of a walk.

        Raises:
            OutOfBudget: a page does not fit, or what has to be in one.
        """
        program = step.program
        assert program.relation is not None
        _require_pages(program)
        graph = self.graphs[program.relation]
        walk, facts = graph.walks[program.side], self.facts(graph, program.side)
        kernels = self._kernels(step, facts, walk.dtype.itemsize)
        lists = list_bytes(kernels, walk.dtype.itemsize)
        roles = roles_of(program)
        stage = Stage(program, roles, graph, walk, self.homes, **lists)
        planner, spans = self._planned(kernels, stage)
        return kernels, planner, spans

    def _planned(self, kernels: StepKernels, stage: Stage) -> tuple[Planner, Spans]:
        """The cheapest pages; calls on the same graph with the same memory plan them once."""
        known = self.graphs[_relation(stage)].keep(
            ("GPU pages", stage.program, kernels.shape), dict
        )
        most = self.limits.nbytes
        if not kernels.program.has_sums:  # whose bits depend on the pages
            most = min(most, self.page_bytes)
        key = (self.limits, most, self.device, *self._places(stage))
        planner = Planner(stage, self.limits, division_of(kernels, len(stage.walk.tasks) - 1))
        found = known.get(key)
        if found is None:
            if len(known) >= MOST_PLANS:
                known.clear()
            found = known[key] = self._fitting(kernels, planner, most)
        limits, spans = found
        return replace(planner, limits=limits), spans

    def _fitting(self, kernels: StepKernels, planner: Planner, most: int) -> tuple[Limits, Spans]:
        """Pages that take so many bytes together, or as many as they may where that is too few."""
        try:
            return self._cut(kernels, planner, most)
        except OutOfBudget:
            if most == self.limits.nbytes:
                raise
        return self._cut(kernels, planner, self.limits.nbytes)

    def _places(self, stage: Stage) -> Iterator[Hashable]:
        """What pages depend on of where arrays lie."""
        for node in (*stage.program.reads, *stage.program.writes):
            home = self.homes.get(node)
            if home is not None:
                yield node, home.in_file, bool(home.address)

    def pages_key(self, kernels: StepKernels, stage: Stage) -> Hashable:
        """What tells the pages of a step from those of others that have the same rows."""
        lasting = [(n, self.homes[n].offset) for n in stage.program.reads if n in stage.lasting]
        places = tuple(self._places(stage))
        return stage.program, kernels.shape, places, tuple(lasting), stage.is_uniform

    def _cut(self, kernels: StepKernels, planner: Planner, most: int) -> tuple[Limits, Spans]:
        beside = kept = state_bytes(kernels.kept_states())
        for _ in range(2):  # long rows in parts, and sums, take memory that is known from pages
            limits = replace(self.limits, nbytes=max(0, min(most, self.device - beside)))
            cut = replace(planner, limits=limits)
            spans = (cut.at_once() if kernels.program.has_sums else None) or cut.plan()
            beside = kept + sum(_long_bytes(kernels, page) for page in spans.pages)
            beside += sums_bytes(kernels, spans.pages)
            if beside + spans.arenas * spans.arena_bytes <= self.device:
                break
        return limits, replace(spans, beside=beside, stored=planner.stage.file_bytes)

    def _kernels(self, step: RowStep, facts: WalkFacts | None, word: int = 4) -> StepKernels:
        tile = step.tile(facts.degrees if facts else NO_EDGES)
        run: Any = Run({}, self.extents, self.platform)
        chunks = facts is not None and facts.num_chunks > 0 and splits(step.program)
        chunks = chunks or isinstance(tile, EdgeTile)  # a row may cross tiles in some page
        shape = Shape(tile, 8 * word, step.is_wide(run), chunks)
        return StepKernels(step, self.platform, facts, shape, self.globals)

    def rows(self, step: RowStep) -> tuple[StepKernels, Stage, Spans]:
        """Those of rows without edges."""
        program = step.program
        extent, roles = self.extents[program.space], roles_of(program)
        graph: Any = next(iter(self.graphs.values()), None)
        stage = Stage(program, roles, graph, _NO_WALK, self.homes)
        row = RowBytes.of(stage)
        spans = Spans((row.span(0, 1, (0, extent)),), 1)
        if row.staged:
            arenas = arenas_of(stage, self.limits)
            spans = row_spans(_boundaries(extent), row, self.limits, arenas)
        kernels = self._kernels(step, None)
        beside = sums_bytes(kernels, spans.pages)
        return kernels, stage, replace(spans, stored=extent * row.read, beside=beside)


def _relation(stage: Stage) -> Relation:
    assert stage.program.relation is not None
    return stage.program.relation


def _require_pages(program: RowProgram) -> None:
    """Refuse what no page holds."""
    if program.scatters:
        raise UnsupportedByBackend(
            "this program adds to sources from a walk over destinations (a gradient of a fold in "
            "edge order), which does not run on pages of a GPU. Run it on the CPU, or use "
            "`graph.in_memory()`."
        )


def _long_bytes(kernels: StepKernels, page: Span | LongRow) -> int:
    """What the states of a row in several pages take beside them."""
    if isinstance(page, Span):
        return 0
    return state_bytes(kernels.row_states(-(-page.degree // CHUNK)))


def _boundaries(extent: int) -> np.ndarray:
    return np.append(np.arange(0, extent, ROWS), extent)


def forecast(executable: Executable, steps: Steps, plan: PagePlan) -> None:
    """Tell a plan what a run would read and hold.

    Raises:
        OutOfBudget, UnsupportedByBackend: as the run would.
    """
    for step in executable.steps:
        if isinstance(step, RowStep):
            find = steps.walk if step.program.relation is not None else steps.rows
            plan.add(step_name(step), find(step)[2])
