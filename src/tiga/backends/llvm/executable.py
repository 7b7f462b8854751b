"""Run a plan: bind arrays to kernels' slots and launch step by step."""

import ctypes
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tiga.backends.llvm.engine import compile_module
from tiga.backends.llvm.launcher import Launch, launch, launch_sequence, sequence_records
from tiga.backends.llvm.library import Matmul, call_library, numpy_matmul
from tiga.backends.llvm.node_products import ProductStep, is_small
from tiga.backends.llvm.slots import Slots
from tiga.backends.llvm.stages import Stages
from tiga.backends.llvm.steps import (
    Bound,
    Graph,
    JointStep,
    RowStep,
    Variant,
    joined_tasks,
    row_tasks,
)
from tiga.passes.base import ScheduledPlan
from tiga.passes.buffers import Placement, place
from tiga.passes.join import pair
from tiga.passes.rows import LibraryCall, Plan, RowProgram
from tiga.trace.node import Node
from tiga.types import GLOBAL, Relation, Space

__all__ = ["AnyStep", "Executable", "RowStep", "Variant", "joined_tasks", "prepare", "row_tasks"]

AnyStep = RowStep | ProductStep | LibraryCall
Launchable = AnyStep | JointStep


@dataclass
class Run:
    """One execution: the address of every value, and scratch that lives as long as it runs."""

    graphs: Mapping[Relation, Graph]
    extents: Mapping[Space, int]
    addresses: dict[Node, int]
    threads: int
    matmul: Matmul
    scratch: list[np.ndarray] = field(default_factory=list)

    def allocate(self, nbytes: int, zeroed: bool = False) -> int:
        """The address of `nbytes` of scratch."""
        block = (np.zeros if zeroed else np.empty)(max(nbytes, 1), np.uint8)
        self.scratch.append(block)
        return block.ctypes.data

    def execute(self, step: Launchable) -> None:
        if isinstance(step, JointStep):
            self._joint(step)
        elif isinstance(step, LibraryCall):
            call_library(step.node, self.addresses, self.extents, self.matmul)
        elif isinstance(step, ProductStep):
            self._product(step)
        elif step.program.relation is None:
            self._rows(step)
        else:
            self._walk(step)

    def _product(self, step: ProductStep) -> None:
        a, b = step.node.inputs
        vectors = self.extents[a.type.space] * a.type.size // a.type.shape[-1]
        left, right, out = (self.addresses[n] for n in (a, b, step.node))
        step.run(left, right, out, vectors, self.threads, self.allocate)

    def _rows(self, step: RowStep) -> None:
        self._launch(step, step.bind_rows(self.graphs, self.extents[step.program.space]))

    def _walk(self, step: RowStep) -> None:
        relation, side = step.program.relation, step.program.side
        assert relation is not None
        walk = self.graphs[relation].walk(side)
        bound = step.bound.get(walk)
        if bound is None:
            bound = step.bind(walk, self.graphs, self.extents[step.program.other_space])
        self._launch(step, bound)

    def _joint(self, step: JointStep) -> None:
        bound, at = step.bind(self.graphs, self.extents), self.addresses
        slots = [*bound.first.fixed, *[at.get(n, 0) for n in step.first.slots.nodes]]
        slots += [*bound.second, *[at.get(n, 0) for n in step.second.slots.nodes]]
        table = array("q", slots)
        ((kernel, tasks),) = bound.first.kernels
        launch(kernel, table.buffer_info()[0], tasks, self.threads)

    def _launch(self, step: RowStep, bound: Bound) -> None:
        slots = [*bound.fixed, *[self.addresses[n] for n in step.slots.nodes]]
        slots += [self.allocate(nbytes, zeroed) for nbytes, zeroed in bound.states]
        table = array("q", slots)
        pointer, _ = table.buffer_info()
        kernels = bound.kernels
        if len(kernels) == 1:
            launch(kernels[0][0], pointer, kernels[0][1], self.threads)
            return
        launches = [Launch(address, pointer, count) for address, count in kernels]
        launch_sequence(sequence_records(launches), len(launches), self.threads)


@dataclass
class Executable:
    """A plan compiled for the CPU. Kernels are compiled when a graph first needs them.

    `joint` are its steps with those that run together as one, on graphs that allow it. `extents`
    are those of the last run, `placed` where its values between steps were, and `pages` what it
    planned for a graph in a file, for `explain`.
    """

    scheduled: ScheduledPlan
    relations: tuple[Relation, ...]
    steps: tuple[AnyStep, ...]
    joint: tuple[Launchable, ...]
    extents: Mapping[Space, int] | None = None
    pages: Any = None
    placed: Placement | None = None
    placements: dict[tuple[tuple[int, ...], bool], Placement] = field(default_factory=dict)

    @property
    def plan(self) -> Plan:
        return self.scheduled.plan

    def placement(self, unneeded: tuple[int, ...], together: bool) -> Placement:
        """Whose memory the values between steps take; see `run`."""
        found = self.placements.get((unneeded, together))
        if found is None:
            inputs = [self.plan.inputs[i] for i in unneeded]
            found = self.placements[unneeded, together] = place(self.scheduled, inputs, together)
        return found

    @property
    def kernels(self) -> tuple["RowStep", ...]:
        """The steps that are kernels."""
        return tuple(step for step in self.steps if isinstance(step, RowStep))

    @property
    def own_products(self) -> frozenset[Node]:
        """Products of node values that are done by kernels, not by a library."""
        return frozenset(step.node for step in self.steps if isinstance(step, ProductStep))

    def module_text(self) -> str:
        """The kernels in upstream dialects, before they are lowered to LLVM."""
        return "\n".join(str(module) for module in self._modules())

    def llvm_ir(self) -> str:
        """The kernels as LLVM IR, before LLVM's own optimisation."""
        libraries = (compile_module(module, keep_llvm_ir=True) for module in self._modules())
        return "\n".join(library.llvm_ir() or "" for library in libraries)

    def _modules(self) -> Iterator[Any]:
        """The kernels for a graph of 32-bit indices without split rows."""
        for step in self.joint:
            if isinstance(step, (RowStep, JointStep)):
                yield step.module(32)[0]

    @property
    def variants(self) -> int:
        """How many schedule variants of its kernels are compiled."""
        joint = [len(step.variants) for step in self.joint if isinstance(step, JointStep)]
        return sum(joint) + sum(len(step.variants) for step in self.kernels)

    def run(
        self,
        graphs: Sequence[Graph],
        inputs: Sequence[int],
        outputs: Sequence[int],
        threads: int,
        extents: Mapping[Space, int] | None = None,
        matmul: Matmul = numpy_matmul,
        unneeded: tuple[int, ...] = (),
    ) -> None:
        """Compute the outputs.

        Args:
            graphs: one per relation of the program, in order.
            inputs, outputs: addresses of contiguous arrays, row-major with the entity axis first.
            threads: at most so many threads; results do not depend on it.
            extents: sizes of spaces that no relation of the program fixes.
            matmul: the library product to use.
            unneeded: positions of inputs, arrays, that may be written over.
        """
        sizes = {GLOBAL: 1, **(extents or {})}
        for relation, graph in zip(self.relations, graphs, strict=True):
            sizes[relation.src], sizes[relation.dst] = graph.num_src, graph.num_dst
            sizes[relation.edge] = graph.num_edges
        addresses = dict(zip(self.plan.inputs, inputs, strict=True))
        repeated = []
        for node, address in zip(self.plan.outputs, outputs, strict=True):
            if addresses.setdefault(node, address) != address:
                repeated.append((node, address))
        bound = dict(zip(self.relations, graphs, strict=True))
        run = Run(bound, sizes, addresses, threads, matmul)
        together = all(s.fits(bound) for s in self.joint if isinstance(s, JointStep))
        self.placed = self.placement(unneeded, together)
        for node, host in self.placed.hosts.items():
            if node is host:
                addresses[node] = run.allocate(sizes[node.type.space] * node.type.row_bytes)
            else:
                addresses[node] = addresses[host]
        for step in self.joint if together else self.steps:
            run.execute(step)
        for node, address in repeated:  # an input, or the same value as another output
            nbytes = sizes[node.type.space] * node.type.row_bytes
            ctypes.memmove(address, addresses[node], nbytes)
        self.extents = sizes


def prepare(
    scheduled: ScheduledPlan, relations: tuple[Relation, ...], stages: Stages | None = None
) -> Executable:
    """The executable of a scheduled plan; kernels are not compiled yet."""
    stages = Stages() if stages is None else stages
    steps: list[AnyStep] = []
    schedules = dict(scheduled.schedules)
    for number, step in enumerate(scheduled.plan.steps):
        if isinstance(step, RowProgram):
            steps.append(RowStep(step, schedules[step], Slots(step), number, stages))
        else:
            steps.append(ProductStep(step.node) if is_small(step.node) else step)
    return Executable(scheduled, relations, tuple(steps), tuple(_joint(scheduled.plan, steps)))


def _joint(plan: Plan, steps: Sequence[AnyStep]) -> Iterator[Launchable]:
    """The steps, with those that run together as one."""
    rest = iter(enumerate(steps))
    for number, step in rest:
        if not (isinstance(step, RowStep) and step.schedule.joins_next):
            yield step
            continue
        both, (_, following) = pair(plan, number), next(rest)
        assert both is not None
        assert isinstance(following, RowStep)
        yield JointStep(step, following, both.kept)
