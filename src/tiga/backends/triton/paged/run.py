"""Run a plan over a graph in a file on a GPU: the kernels of the graph in memory, page by page.

Pages are read into pinned memory ahead of compute, copied on a stream of their own, and computed
in order; results that do not stay on the device are copied back and written behind. What a row
gives depends on its own edges alone, so the results have the same bits as in memory.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tiga.backends.triton.executable import Executable
from tiga.backends.triton.launch import RowStep
from tiga.backends.triton.paged.facts import WalkFacts
from tiga.backends.triton.paged.kept import Keeper, StepPages
from tiga.backends.triton.paged.launch import Place, StepKernels
from tiga.backends.triton.paged.link import Link, PairedArena
from tiga.backends.triton.paged.lists import plain_list
from tiga.backends.triton.paged.memory import DeviceRows
from tiga.backends.triton.paged.steps import Steps
from tiga.backends.triton.paged.sums import Launcher, Sums
from tiga.backends.triton.paged.walk import Loaded, Scratch, WalkPages
from tiga.backends.triton.record import library_of
from tiga.errors import OutOfBudget
from tiga.paging.page import WORD
from tiga.paging.pipeline import Arenas, Helpers, Job, Pipeline, never
from tiga.paging.plan import Limits
from tiga.paging.span import PagePlan, Span, Spans, step_name
from tiga.paging.stage import PagedGraph, Stage
from tiga.passes.rows import LibraryCall
from tiga.runtime.floor import Floor, helped_by
from tiga.runtime.pages import Rows, copy_rows
from tiga.runtime.platform import Platform
from tiga.trace.node import Node
from tiga.types import GLOBAL, Relation, Space

PAGES = "memory of pages"
"""What it is kept by."""


@dataclass
class StepMemory:
    """Scratch of the device that lives as long as a step."""

    platform: Platform
    held: dict[int, Any] = field(default_factory=dict)

    def take(self, nbytes: int) -> int:
        block = self.platform.arena(max(nbytes, 1))
        address = self.platform.address(block)
        self.held[address] = block
        return address

    def clear(self, address: int, nbytes: int) -> None:
        self.platform.zero(self.held[address], 0, nbytes)


@dataclass
class PagedRun:
    """One execution: `arrays` has global values as arrays of the platform, `steps` the rest."""

    steps: Steps
    link: Link
    arrays: Mapping[Node, Any]
    pipeline: Pipeline
    charge: Callable[[int], Callable[[], None]]
    plan: PagePlan
    keeper: Keeper
    floor: Floor = field(default_factory=Floor)

    def execute(self, step: RowStep | LibraryCall) -> None:
        if isinstance(step, LibraryCall):
            operands = [self._whole(n) for n in (*step.node.inputs, step.node)]
            library_of(operands[-1])(step.node, operands[:-1], operands[-1])
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

    def _walk(self, step: RowStep) -> None:
        kernels, planner, spans = self.steps.walk(step)
        self.pipeline.one_by_one = planner.stage.stores_by_number
        with self._memory(step_name(step), spans) as memory:
            scratch = Scratch(memory.take)
            scratch.add(kernels.kept_states())
            with _summing(kernels, spans, memory) as launcher:
                key = self.steps.pages_key(kernels, planner.stage)
                kept = StepPages(self.keeper, key, self.link, self.steps.platform)
                self.keeper.forget(key, spans.pages)
                found = kept.among(spans.pages)
                self.plan.found([one.image.span for one in found], sum(one.nbytes for one in found))
                pages = WalkPages(planner, kernels, self.link, scratch, launcher, kept)
                self.pipeline.run(self._in_turn(pages.jobs(spans.pages)))

    def _rows(self, step: RowStep) -> None:
        kernels, stage, spans = self.steps.rows(step)
        self.pipeline.one_by_one = False
        with (
            self._memory(step_name(step), spans) as memory,
            _summing(kernels, spans, memory) as launcher,
        ):
            pages = RowPages(stage, kernels, self.link, launcher)
            self.pipeline.run(self._in_turn(map(pages.job, spans.pages)))

    def _in_turn(self, jobs: Iterable[Job]) -> Iterator[Job]:
        """Jobs of which one at a time has the floor."""

        def held(work: Callable[[Any], Any], given: Any) -> Any:
            with helped_by(self.link.movers), self.floor.held():
                return work(given)

        for job in jobs:
            smaller = partial(lambda job: self._in_turn(job.smaller()), job)
            yield Job(partial(held, job.read), partial(held, job.run), smaller, job.at_hand)

    @contextmanager
    def _memory(self, what: str, spans: Spans) -> Iterator[StepMemory]:
        """The memory of a step, charged for the body of a `with`."""
        self.plan.add(what, spans)
        self.pipeline.arenas.provide(spans, self.steps.device)
        self.keeper.provided(self.pipeline.arenas.held, self.steps.device - spans.resident)
        self.keeper.beside = self.pipeline.arenas.nbytes
        uncharge = self.charge(spans.resident)
        try:
            yield StepMemory(self.steps.platform)
        finally:
            uncharge()


@contextmanager
def _summing(kernels: StepKernels, spans: Spans, memory: StepMemory) -> Iterator[Launcher]:
    """What launches the kernels of pages, and adds totals if there are some."""
    if not kernels.program.has_sums:
        yield kernels
        return
    sums = Sums(kernels, spans.pages, memory)
    sums.prepare()
    yield sums
    sums.finish()


@dataclass(frozen=True)
class RowPages:
    """The jobs of rows without edges: kernels number a page's rows from 0 on."""

    stage: Stage
    kernels: StepKernels
    link: Link
    launcher: Launcher

    def job(self, span: Any) -> Job:
        """That of a page."""
        return Job(partial(self._read, span), self._run, never)

    def _read(self, span: Span, arena: Any) -> Loaded:
        arena.begin()
        page = self.stage.begun_without_edges(span, arena)
        page.inputs(self.stage.homes, arena)
        end, low, arrays = arena.used, span.rows[0], {}
        page.outputs(self.stage.homes, arena)
        for node, address in page.addresses.items():
            staged = arena.offset if node in page.staged else 0
            arrays[node] = address + low * self.stage.homes[node].row_bytes + staged
        degrees = {key: at + low * WORD + arena.offset for key, at in page.degrees.items()}
        place = Place(plain_list(span.rows[1] - low), arrays, degrees)
        mark = arena.send([arena.sent(0, end)]) if end else None
        return Loaded(page, place, arena, mark)

    def _run(self, loaded: Loaded) -> None:
        if loaded.mark is not None:
            self.link.follow(loaded.mark)
        self.launcher.launch(loaded.place)
        loaded.computed(self.link)


@dataclass(frozen=True)
class Paging:
    """What a run is made on: what moves bytes to the device, what earlier calls left, the graphs of
    its relations, sizes, how much memory pages may take, and with scratch of the device, what finds
    the facts of a walk, and what counts bytes of a tier as used (and gives back what takes them
    back)."""

    platform: Platform
    link: Link
    keeper: Keeper
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

    def arenas(self) -> Arenas:
        """The memory of pages: what an earlier call left, if there is room for it."""
        found: Arenas | None = self.keeper.take(PAGES)
        if found is not None:
            try:
                found.resume(self.pages_charge)
            except OutOfBudget:
                found.close()
            else:
                return found
        make = partial(PairedArena, link=self.link, platform=self.platform)
        return Arenas(self.pages_charge, make)

    def steps(self, homes: Mapping[Node, Rows], arrays: Mapping[Node, Any]) -> Steps:
        """What cuts steps into pages."""
        addresses = {node: self.platform.address(array) for node, array in arrays.items()}
        return Steps(
            self.platform, self.graphs, {GLOBAL: 1, **self.extents}, homes, addresses, self.limits,
            self.device, self.facts, self.keeper.page_bytes,
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
    platform, link, limits = paging.platform, paging.link, paging.limits
    arenas = paging.arenas()
    with Helpers(limits.readers, limits.writers) as helpers:
        pipeline = Pipeline(arenas, limits.depth, helpers)
        steps, charge = paging.steps(homes, arrays), partial(paging.charge, "device")
        run = PagedRun(steps, link, arrays, pipeline, charge, plan, paging.keeper)
        try:
            for step in executable.steps:
                run.execute(step)
            for known, node, value in repeated:  # an input, or the same value as another output
                _copy(known[node], value, node, platform)
        except BaseException:
            link.settle()
            arenas.close()
            raise
        link.settle()
        _rest(arenas)
        arenas.leave()
        bytes_of = dict.fromkeys(("host-pinned", "device"), arenas.nbytes)
        paging.keeper.park(PAGES, arenas, bytes_of, arenas.close)


def _rest(arenas: Arenas) -> None:
    """Let arenas hold nothing but their own memory: all copies are done."""
    for _ in range(arenas.held.count):
        arena: Any = arenas.free.get()
        arena.source = None
        arenas.free.put(arena)


def _copy(source: Any, target: Any, node: Node, platform: Platform) -> None:
    if node.type.space == GLOBAL:
        platform.copy(target, source)
        return
    copy_rows(source, target)
