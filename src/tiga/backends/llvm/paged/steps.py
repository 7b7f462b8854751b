"""How each step of a plan goes through pages: what a run follows, and what can be told of one
before it, as nothing but sizes and places of arrays (and of the graph, its row pointers and a
sample of its indices) is looked at."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from tiga.backends.llvm.executable import Executable
from tiga.backends.llvm.library import numpy_matmul
from tiga.backends.llvm.node_products import ProductStep
from tiga.backends.llvm.paged.division import division_of
from tiga.backends.llvm.paged.products import Products
from tiga.backends.llvm.paged.scatters import sums_bytes
from tiga.backends.llvm.paged.tables import tables_bytes
from tiga.backends.llvm.paged.team import Team
from tiga.backends.llvm.steps import joined_tasks, row_tasks
from tiga.paging.plan import Limits, Planner, RowBytes, Way, arenas_of, plan_walk, row_spans
from tiga.paging.span import PagePlan, Spans, step_name
from tiga.paging.stage import PagedGraph, Stage
from tiga.paging.tile_plan import advice_on, plan_tiles
from tiga.paging.tiles import Tiling, goes_by_tiles
from tiga.passes.roles import roles_of
from tiga.passes.rows import PAGED, LibraryCall, RowProgram
from tiga.passes.schedule import Schedule
from tiga.runtime.pages import Rows
from tiga.trace.node import Node
from tiga.types import Relation, Space

MOST_PLANS = 8
"""Plans of a walk that a graph keeps, for budgets that leave different amounts of memory."""


@dataclass(frozen=True)
class Steps:
    """The pages of steps over graphs, whose arrays over entities lie in `homes`."""

    graphs: Mapping[Relation, PagedGraph]
    extents: Mapping[Space, int]
    homes: Mapping[Node, Rows]
    limits: Limits

    def walk(self, program: RowProgram, schedule: Schedule) -> tuple[Planner, Spans | Tiling]:
        """Those of a walk; its blocks and tiles, where these move less.

        Raises:
            OutOfBudget: a page, or the sums at the other ends, do not fit.
        """
        assert program.relation is not None
        if not program.fills_tables:
            program.refuse_large_sums(PAGED)
        graph = self.graphs[program.relation]
        walk = graph.walks[program.side]
        if program.outer_sums and not program.fills_tables:
            whole = walk
            walk = graph.keep(
                ("joined walk", program.side), lambda: whole.joined(joined_tasks(whole.tasks[:, 0]))
            )
        stage = Stage(program, roles_of(program), graph, walk, self.homes)
        sums = sums_bytes(program, stage.others, self.limits.nbytes)
        sums += tables_bytes(program, len(walk.tasks) - 1, self.limits.nbytes)
        limits = self.limits.of_cached() if _is_cached(stage) else self.limits
        limits = replace(limits, nbytes=limits.nbytes - sums)
        way, tiling = self._planned(stage, limits, schedule)
        planner = way.planner(stage, limits, division_of(program, len(walk.tasks) - 1))
        if stage.is_uniform:
            tiling = None  # pages read one row of the other ends
        if tiling is not None and walk.ascends:
            return planner, tiling
        spans = replace(way.spans, beside=sums, stored=stage.file_bytes)
        return planner, replace(spans, advice=advice_on(tiling) if tiling is not None else "")

    def _planned(
        self, stage: Stage, limits: Limits, schedule: Schedule
    ) -> tuple[Way, Tiling | None]:
        """The cheapest way through a walk, and by tiles if that is cheaper, were the other ends in
        order; calls on the same graph with the same memory find it once."""
        program, homes = stage.program, stage.homes
        known = stage.graph.keep(("pages", program), dict)
        places = [(n, homes[n]) for n in (*program.reads, *program.writes) if n in homes]
        key = limits, *((n, home.in_file, bool(home.address)) for n, home in places)
        division, way = division_of(program, len(stage.walk.tasks) - 1), known.get(key)
        if way is None:
            if len(known) >= MOST_PLANS:
                known.clear()
            found, tiling = plan_walk(stage, limits, division), None
            if schedule.lanes == "features" and goes_by_tiles(program):
                tiling = plan_tiles(stage, limits, found.spans)
            way = known[key] = found, tiling
        return way

    def rows(self, program: RowProgram) -> tuple[Stage, np.ndarray, Spans]:
        """Those of rows without edges, and the tasks of which they are made."""
        extent, roles = self.extents[program.space], roles_of(program)
        graph: Any = next(iter(self.graphs.values()), None)
        walk: Any = None
        stage = Stage(program, roles, graph, walk, self.homes)
        tasks, arenas, row = row_tasks(extent), arenas_of(stage, self.limits), RowBytes.of(stage)
        spans = row_spans(tasks, row, self.limits, arenas)
        return stage, tasks, replace(spans, stored=extent * row.read)


def _is_cached(stage: Stage) -> bool:
    """Whether the page cache has what a walk reads: its indices, and the largest array."""
    reads = (*stage.roles.rows, *stage.roles.others, *stage.roles.edges)
    files = [home for home in (stage.homes[n] for n in reads) if home.in_file]
    largest = max(files, key=lambda home: home.count * home.row_bytes, default=stage.walk.index)
    return bool(stage.walk.index.is_cached and getattr(largest, "is_cached", True))


def name_of(step: Any) -> str:
    """What a step is called in plans."""
    return "product" if isinstance(step, ProductStep) else step_name(step)


@dataclass(frozen=True)
class Forecast:
    """What a run would do: `homes` has every array over entities of the executable's plan."""

    executable: Executable
    steps: Steps

    @cached_property
    def plan(self) -> PagePlan:
        """The plan of pages.

        Raises:
            OutOfBudget: as the run would.
        """
        plan = PagePlan(self.steps.limits.nbytes)
        for step in self.executable.steps:
            plan.add(name_of(step), self._spans(step))
        return plan

    def _spans(self, step: Any) -> Spans | Tiling:
        if isinstance(step, ProductStep | LibraryCall):
            found = Products(
                self.steps.extents, {}, self.steps.homes, self.steps.limits, Team(1), numpy_matmul
            )
            return found.of(step)
        if step.program.relation is None:
            return self.steps.rows(step.program)[2]
        return self.steps.walk(step.program, step.schedule)[1]
