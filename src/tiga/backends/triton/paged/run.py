"""Run a plan over a graph in a file on a GPU: the kernels of the graph in memory, page by page.

Pages are read into pinned memory ahead of compute, copied on a stream of their own, and computed
in order; results that do not stay on the device are copied back and written behind. What a row
gives depends on its own edges alone, so the results have the same bits as in memory.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tiga.backends.triton.executable import Executable
from tiga.backends.triton.launch import RowStep
from tiga.backends.triton.library import call_library
from tiga.backends.triton.paged.facts import WalkFacts
from tiga.backends.triton.paged.launch import Place, StepKernels
from tiga.backends.triton.paged.link import Link, PairedArena, link_of
from tiga.backends.triton.paged.lists import plain_list
from tiga.backends.triton.paged.memory import DeviceRows
from tiga.backends.triton.paged.steps import Steps
from tiga.backends.triton.paged.walk import Loaded, Scratch, WalkPages
from tiga.paging.pipeline import Arenas, Helpers, Job, Pipeline, never
from tiga.paging.plan import Limits
from tiga.paging.span import PagePlan, Span, Spans, step_name
from tiga.paging.stage import WORD, PagedGraph, Stage
from tiga.passes.rows import LibraryCall
from tiga.runtime.pages import Rows, copy_rows
from tiga.runtime.platform import Platform
from tiga.trace.node import Node
from tiga.types import GLOBAL, DType, Relation, Space


@dataclass
class PagedRun:
    """One execution: `arrays` has global values as arrays of the platform, `steps` the rest."""

    steps: Steps
    link: Link
    arrays: Mapping[Node, Any]
    pipeline: Pipeline
    charge: Callable[[int], Callable[[], None]]
    plan: PagePlan
    held: list[Any] = field(default_factory=list)

    @property
    def platform(self) -> Platform:
        return self.steps.platform

    def execute(self, step: RowStep | LibraryCall) -> None:
        if isinstance(step, LibraryCall):
            operands = [self._whole(n) for n in (*step.node.inputs, step.node)]
            call_library(step.node, operands[:-1], operands[-1])
        elif step.program.relation is None:
            self._rows(step)
        else:
            self._walk(step)

    def _whole(self, node: Node) -> Any:
        """A value as an array of the platform, for what takes no pages."""
        if node in self.arrays:
            return self.arrays[node]
        home = self.steps.homes[node]
        assert isinstance(home, DeviceRows), f"{node!r} is not on the device"
        return home.view(node.type.size, node.type.dtype)

    def _allocate(self, nbytes: int) -> int:
        """The address of scratch that lives as long as the step."""
        self.held.append(self.platform.arena(max(nbytes, 1)))
        return self.platform.address(self.held[-1])

    def _walk(self, step: RowStep) -> None:
        kernels, planner, spans = self.steps.walk(step)
        scratch = Scratch(self._allocate)
        pages = WalkPages(planner, kernels, self.link, scratch, self._totals(kernels))
        self.pipeline.one_by_one = bool(planner.stage.collectable)
        self._paged(step_name(step), spans, lambda: scratch.add(kernels.kept_states()),
                    pages.jobs(spans.pages))  # fmt: skip

    def _rows(self, step: RowStep) -> None:
        kernels, stage, spans = self.steps.rows(step)
        pages = RowPages(stage, kernels, self.link, self._totals(kernels))
        self.pipeline.one_by_one = False
        self._paged(step_name(step), spans, _nothing, map(pages.job, spans.pages))

    def _totals(self, kernels: StepKernels) -> Callable[[Place], None]:
        """What launches the kernels of a page, and adds totals if there are some."""
        if not kernels.program.has_sums:
            return kernels.launch
        return partial(self._summed, kernels)

    def _summed(self, kernels: StepKernels, place: Place) -> None:
        pieces = {}
        for state, count, dtype in kernels.pieces_states(place.work):
            pieces[state] = self._cleared(count, dtype)
        place = place.with_states(pieces)
        kernels.launch(place)
        kernels.totals(place)

    def _cleared(self, count: int, dtype: DType) -> int:
        address, nbytes = self._allocate(count * dtype.itemsize), count * dtype.itemsize
        self.platform.zero(self.held[-1], 0, nbytes)
        return address

    def _paged(
        self, what: str, spans: Spans, prepare: Callable[[], None], jobs: Iterable[Job]
    ) -> None:
        self.plan.add(what, spans)
        self.pipeline.arenas.provide(spans, self.steps.device)
        uncharge = self.charge(spans.resident)
        try:
            prepare()
            self.pipeline.run(jobs)
        finally:
            self.held.clear()
            uncharge()


@dataclass(frozen=True)
class RowPages:
    """The jobs of rows without edges: kernels number a page's rows from 0 on."""

    stage: Stage
    kernels: StepKernels
    link: Link
    launch: Callable[[Place], None]

    def job(self, span: Any) -> Job:
        """That of a page."""
        return Job(partial(self._read, span), self._run, never)

    def _read(self, span: Span, arena: Any) -> Loaded:
        arena.begin()
        page = self.stage.without_edges(span, arena)
        low, arrays = span.rows[0], {}
        for node, address in page.addresses.items():
            home = self.stage.homes[node]
            arrays[node] = address + low * home.row_bytes + (0 if home.address else arena.offset)
        degrees = {key: at + low * WORD + arena.offset for key, at in page.degrees.items()}
        place = Place(plain_list(span.rows[1] - low), arrays, degrees)
        return Loaded(page, place, arena, arena.send(page.results))

    def _run(self, loaded: Loaded) -> None:
        self.link.follow(loaded.mark)
        self.launch(loaded.place)
        loaded.computed(self.link)


def _nothing() -> None:
    """Nothing is to be prepared."""


@dataclass(frozen=True)
class Paging:
    """What a run is made on: the graphs of its relations, sizes, how much memory pages may take,
    and with scratch of the device, what finds the facts of a walk, and what counts bytes of a tier
    as used (and gives back what takes them back)."""

    platform: Platform
    graphs: Mapping[Relation, PagedGraph]
    extents: Mapping[Space, int]
    limits: Limits
    device: int
    facts: Callable[[PagedGraph, str], WalkFacts]
    charge: Callable[[str, int], Callable[[], None]]

    def pages_charge(self, nbytes: int) -> Callable[[], None]:
        """Count the memory of pages, which is pinned and on the device."""
        back = self.charge("host-pinned", nbytes)
        try:
            also = self.charge("device", nbytes)
        except BaseException:
            back()
            raise
        return lambda: (back(), also())[0]

    def steps(self, homes: Mapping[Node, Rows], arrays: Mapping[Node, Any]) -> Steps:
        """What cuts steps into pages."""
        addresses = {node: self.platform.address(array) for node, array in arrays.items()}
        return Steps(
            self.platform, self.graphs, {GLOBAL: 1, **self.extents}, homes, addresses, self.limits,
            self.device, self.facts,
        )  # fmt: skip


def run_paged(
    executable: Executable,
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    between: Mapping[Node, Any],
    paging: Paging,
    plan: PagePlan,
) -> None:
    """Compute the outputs; `plan` is told what is read and held.

    `inputs`, `outputs` and `between` (values that steps leave for others) are rows for values over
    entities, arrays of the platform for global ones.

    Raises:
        OutOfBudget: a page of a single row does not fit.
        UnsupportedByBackend: the program holds something that needs all of a set in memory.
        Damaged: the file holds what cannot be.
    """
    arrays: dict[Node, Any] = {}
    homes: dict[Node, Rows] = {}
    repeated = []
    values = [*zip(executable.plan.inputs, inputs, strict=True)]
    values += [*zip(executable.plan.outputs, outputs, strict=True), *between.items()]
    for node, value in values:
        known: dict[Node, Any] = arrays if node.type.space == GLOBAL else homes
        if known.setdefault(node, value) is not value:
            repeated.append((known, node, value))
    platform = paging.platform
    link = link_of(platform)
    make = partial(PairedArena, link=link, platform=platform)
    arenas = Arenas(paging.pages_charge, make)
    limits = paging.limits
    with Helpers(limits.readers, limits.writers) as helpers:
        pipeline = Pipeline(arenas, limits.depth, helpers)
        steps, charge = paging.steps(homes, arrays), partial(paging.charge, "device")
        run = PagedRun(steps, link, arrays, pipeline, charge, plan)
        try:
            for step in executable.steps:
                run.execute(step)
            for known, node, value in repeated:  # an input, or the same value as another output
                _copy(known[node], value, node)
        finally:
            link.settle()
            arenas.close()


def _copy(source: Any, target: Any, node: Node) -> None:
    if node.type.space == GLOBAL:
        target.copy_(source)
        return
    copy_rows(source, target)
