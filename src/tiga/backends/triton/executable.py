"""Run a plan on a GPU, step by step."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any
from weakref import WeakKeyDictionary

from tiga.backends.triton.autotune import tune
from tiga.backends.triton.choice import Choose
from tiga.backends.triton.choice import choose as choose_by_cost
from tiga.backends.triton.compiled import ALIGNMENT
from tiga.backends.triton.exactness import ordered_sums
from tiga.backends.triton.index_sums import index_sums_apart, sums_of_edges
from tiga.backends.triton.launch import RowStep
from tiga.backends.triton.matrix_views import with_matrices_in_place
from tiga.backends.triton.pipeline import planned
from tiga.backends.triton.preparation import Run
from tiga.backends.triton.record import Frame, Record, Recorder, Wiring, is_aligned
from tiga.backends.triton.row_products import with_row_products
from tiga.backends.triton.scatters import without_scatters
from tiga.backends.triton.split import split
from tiga.backends.triton.table_sums import sums_in_registers
from tiga.backends.triton.topology import NO_EDGES
from tiga.backends.triton.writer import KernelSource
from tiga.errors import Unfusable
from tiga.knobs import read
from tiga.passes.rows import PAGED, LibraryCall, Plan, RowProgram, Step
from tiga.relations import Graph
from tiga.relations.snapshot import Snapshot
from tiga.runtime.platform import Platform, platform_of
from tiga.trace.node import Node
from tiga.trace.program import Program
from tiga.types import GLOBAL, Relation, Space

MOST_RECORDS = 64
"""Records without a topology are kept for so many numbers of rows."""


@dataclass(frozen=True)
class CopyAction:
    """Store a given array in another, by their numbers."""

    platform: Platform
    source: int
    target: int

    def __call__(self, frame: Frame) -> None:
        self.platform.copy(frame.given[self.target], frame.given[self.source])


@dataclass(frozen=True, eq=False)
class Executable:
    """A plan for NVIDIA GPUs. Kernels are compiled when a graph first needs them."""

    plan: Plan
    relations: tuple[Relation, ...]
    steps: tuple[RowStep | LibraryCall, ...]
    by_topology: "WeakKeyDictionary[Snapshot, dict[Any, Record]]" = field(
        default_factory=WeakKeyDictionary
    )
    by_extents: dict[Any, Record] = field(default_factory=dict)
    wirings: dict[Any, Wiring] = field(default_factory=dict)

    @cached_property
    def by_pages(self) -> "Executable":
        """What computes the same over a graph in a file, page by page.

        Raises:
            Unfusable: it sums edge values by an index of the edges.
        """
        self.require_pages()
        if not any(isinstance(step, RowProgram) and step.scatters for step in self.plan.steps):
            return self
        return _executable(without_scatters(self.plan), self.relations, choose_by_cost)

    def require_pages(self) -> None:
        """Raise Unfusable if no pages hold it."""
        for node in sums_of_edges(self.plan):
            place = f" ({node.where})" if node.where else ""
            raise Unfusable(f"the gradient of a table that edges index {PAGED}, on a GPU{place}")

    @property
    def has_run(self) -> bool:
        """Whether it was bound to anything yet."""
        return bool(self.by_topology or self.by_extents)

    def run(
        self,
        graphs: Sequence[Graph | Snapshot],
        inputs: Sequence[Any],
        outputs: Sequence[Any],
        extents: Mapping[Space, int] | None = None,
    ) -> None:
        """Compute the outputs on the current stream of their device.

        Args:
            graphs: one per relation of the program, in order.
            inputs, outputs: contiguous arrays of one platform, entity axis first.
            extents: sizes of spaces that no relation of the program fixes.
        """
        with platform_of((*outputs, *inputs)[0]).on():
            record, frame = self.bind(graphs, inputs, outputs, extents)
            record.play(frame)

    def bind(
        self,
        graphs: Sequence[Graph | Snapshot],
        inputs: Sequence[Any],
        outputs: Sequence[Any],
        extents: Mapping[Space, int] | None = None,
    ) -> tuple[Record, Frame]:
        """The launches of a run and the addresses they take; the device is the current one."""
        given = (*inputs, *outputs)
        platform = platform_of(given[-1])
        addresses = [platform.address(array) for array in given]
        aligned = None if is_aligned(addresses) else tuple(map(_is_aligned, addresses))
        topologies = [g.snapshot() if isinstance(g, Graph) else g for g in graphs]
        known = self._known(topologies)
        key = (platform, aligned, tuple(extents.values()) if extents else ())
        record = known.get(key)
        if record is None:
            run = self._run(topologies, platform, extents or {})
            record = known[key] = self._recorded(run, aligned, given, addresses)
        return record, record.bind(given, addresses, platform.stream())

    def _known(self, topologies: Sequence[Snapshot]) -> dict[Any, Record]:
        """Where the records of these topologies are kept: nowhere, if they are several."""
        if not topologies:
            if len(self.by_extents) > MOST_RECORDS:
                self.by_extents.clear()
            return self.by_extents
        first = topologies[0]
        if any(other is not first for other in topologies):
            return {}
        known = self.by_topology.get(first)
        return self.by_topology.setdefault(first, {}) if known is None else known

    def _recorded(
        self, run: Run, aligned: Any, given: Sequence[Any], addresses: Sequence[int]
    ) -> Record:
        """The record of a run; where measuring is asked for, with the fastest tiles."""
        make = partial(self._record, run, aligned)
        platform = run.platform
        if not (read("autotune") and platform.may_wait()):
            return make()

        def milliseconds(record: Record) -> float:
            frame = record.bind(given, addresses, platform.stream())
            return platform.milliseconds(partial(record.play, frame))

        return tune(self.steps, run, platform.description(), make, milliseconds)

    def _run(
        self, topologies: Sequence[Snapshot], platform: Platform, extents: Mapping[Space, int]
    ) -> Run:
        sizes = {GLOBAL: 1, **extents}
        for relation, topology in zip(self.relations, topologies, strict=True):
            sizes[relation.src], sizes[relation.dst] = topology.num_src, topology.num_dst
            sizes[relation.edge] = topology.num_edges
        bound = dict(zip(self.relations, topologies, strict=True))
        return Run(bound, sizes, platform)

    def _record(self, run: Run, aligned: Any) -> Record:
        given = (*self.plan.inputs, *self.plan.outputs)
        numbers: dict[Node, int] = {}
        copies = []
        for i, node in enumerate(given):
            if numbers.setdefault(node, i) != i:  # an input, or the same value as another output
                copies.append(CopyAction(run.platform, numbers[node], i))
        ways = aligned or (True,) * len(given)
        recorder = Recorder(run, numbers, len(given), ways, self.wirings)
        record = recorder.record(self.steps, self.plan.intermediates)
        return replace(record, actions=(*record.actions, *copies)) if copies else record

    def sources(self, mean_degree: int = 16, has_chunks: bool = True) -> Iterator[KernelSource]:
        """The kernels that serve a graph with rows of about so many edges."""
        for step in self.steps:
            if isinstance(step, RowStep):
                for _, source in step.sources(step.typical(mean_degree, has_chunks)):
                    yield source

    def code(self, mean_degree: int = 16) -> str:
        """The Triton source of the kernels that serve a graph of this mean degree."""
        parts = (f"# {s.name}: {s.tile}\n{s.text}" for s in self.sources(mean_degree))
        return "\n\n".join(parts)


def _is_aligned(address: int) -> bool:
    return address % ALIGNMENT == 0


def prepare(
    plan: Plan, relations: tuple[Relation, ...], choose: Choose = choose_by_cost
) -> Executable:
    """The executable of a plan; its kernels are written and compiled when they are needed.

    Raises:
        Unfusable: a value is too wide for any tile.
    """
    plan = with_matrices_in_place(with_row_products(split(index_sums_apart(plan))))
    return _executable(sums_in_registers(plan), relations, choose)


def _executable(plan: Plan, relations: tuple[Relation, ...], choose: Choose) -> Executable:
    ordered = ordered_sums(plan)
    steps = tuple(_step(s, ordered, i, choose) for i, s in enumerate(plan.steps))
    return Executable(plan, relations, steps)


def compile_program(program: Program, choose: Choose = choose_by_cost) -> Executable:
    """The executable of a program on NVIDIA GPUs. Needs no MLIR bindings."""
    return prepare(planned(program), program.relations, choose)


def _step(
    step: Step, ordered: frozenset[Node], number: int, choose: Choose
) -> RowStep | LibraryCall:
    if isinstance(step, LibraryCall):
        return step
    step.refuse_large_sums("on a GPU")
    choose(step, NO_EDGES)  # refuses what no tile holds
    return RowStep(step, ordered, number, choose)
