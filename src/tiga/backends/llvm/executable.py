"""A plan compiled for the CPU, and bound to topologies."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import Any
from weakref import WeakKeyDictionary

from tiga.backends.llvm.binding import NOWHERE, Action, BoundPlan, Call, Launches, Product
from tiga.backends.llvm.engine import compile_module
from tiga.backends.llvm.library import Matmul, numpy_matmul
from tiga.backends.llvm.node_products import ProductStep, is_small
from tiga.backends.llvm.slots import Slots
from tiga.backends.llvm.stages import Stages
from tiga.backends.llvm.steps import Graph, JointStep, RowStep, Variant, joined_tasks, row_tasks
from tiga.passes.base import ScheduledPlan
from tiga.passes.buffers import Placement, place
from tiga.passes.join import pair
from tiga.passes.rows import LibraryCall, Plan, RowProgram
from tiga.relations.snapshot import Snapshot
from tiga.trace.node import Node
from tiga.types import GLOBAL, Relation, Space

__all__ = ["AnyStep", "Executable", "RowStep", "Variant", "joined_tasks", "prepare", "row_tasks"]

AnyStep = RowStep | ProductStep | LibraryCall
Launchable = AnyStep | JointStep


@dataclass(frozen=True)
class Places:
    """What the steps of a plan find on a topology: graphs, sizes, and positions of arrays."""

    graphs: Mapping[Relation, Graph]
    extents: Mapping[Space, int]
    positions: Mapping[Node, int]

    def bind(self, step: Launchable) -> Action:
        """A step on this topology."""
        if isinstance(step, JointStep):
            return self._joint(step)
        if isinstance(step, RowStep):
            bound = step.bind(self.graphs, self.extents)
            slots = (bound.fixed, self._positions(step))
            return Launches((slots,), bound.states, bound.kernels, bound.tasks)
        if isinstance(step, LibraryCall):
            arrays = {n: self.positions[n] for n in (*step.node.inputs, step.node)}
            return Call(step.node, arrays, self.extents)
        a, b = step.node.inputs
        vectors = self.extents[a.type.space] * a.type.size // a.type.shape[-1]
        left, right, out = (self.positions[n] for n in (a, b, step.node))
        return Product(step, (left, right, out), vectors)

    def _joint(self, step: JointStep) -> Launches:
        bound = step.bind(self.graphs, self.extents)
        first = (bound.first.fixed, self._positions(step.first))
        second = (bound.second, self._positions(step.second))
        return Launches((first, second), (), bound.first.kernels, bound.first.tasks)

    def _positions(self, step: RowStep) -> tuple[int, ...]:
        return tuple(self.positions.get(n, NOWHERE) for n in step.slots.nodes)


@dataclass
class Executable:
    """A plan compiled for the CPU. Kernels are compiled when a graph first needs them.

    `joint` are its steps with those that run together as one, on graphs that allow it. `extents`
    are those of the last run, `placed` where its values between steps were, and `pages` what it
    planned for a graph in a file, for `explain`. `bound` is what was worked out for topologies, by
    the inputs that may be written over.
    """

    scheduled: ScheduledPlan
    relations: tuple[Relation, ...]
    steps: tuple[AnyStep, ...]
    joint: tuple[Launchable, ...]
    extents: Mapping[Space, int] | None = None
    pages: Any = None
    placed: Placement | None = None
    placements: dict[tuple[tuple[int, ...], bool], Placement] = field(default_factory=dict)
    bound: WeakKeyDictionary[Snapshot, dict[tuple[int, ...], BoundPlan]] = field(
        default_factory=WeakKeyDictionary
    )

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
        plan = self.plan_on(graphs, extents, tuple(unneeded))
        plan.run(inputs, outputs, threads, matmul)

    def plan_on(
        self,
        graphs: Sequence[Graph],
        extents: Mapping[Space, int] | None,
        unneeded: tuple[int, ...] = (),
    ) -> BoundPlan:
        """The plan on graphs: kept for a snapshot, which stays as it is, as long as that lives."""
        plan = self._bound_to(graphs, extents, unneeded)
        self.extents, self.placed = plan.extents, plan.placed
        return plan

    def _bound_to(
        self,
        graphs: Sequence[Graph],
        extents: Mapping[Space, int] | None,
        unneeded: tuple[int, ...],
    ) -> BoundPlan:
        free = {s: n for s, n in (extents or {}).items() if s not in self.related}
        if len(graphs) != 1 or free or not isinstance(graphs[0], Snapshot):
            return self._bind(graphs, free, unneeded)
        known = self.bound.setdefault(graphs[0], {})
        found = known.get(unneeded)
        if found is None:
            found = known[unneeded] = self._bind(graphs, {}, unneeded)
        return found

    @cached_property
    def related(self) -> frozenset[Space]:
        """The spaces whose sizes the relations fix."""
        ends = ((r.src, r.dst, r.edge) for r in self.relations)
        return frozenset((GLOBAL, *chain.from_iterable(ends)))

    def _bind(
        self, graphs: Sequence[Graph], extents: Mapping[Space, int], unneeded: tuple[int, ...]
    ) -> BoundPlan:
        sizes = {GLOBAL: 1, **extents}
        for relation, graph in zip(self.relations, graphs, strict=True):
            sizes[relation.src], sizes[relation.dst] = graph.num_src, graph.num_dst
            sizes[relation.edge] = graph.num_edges
        positions: dict[Node, int] = {}
        copies = []
        for i, node in enumerate((*self.plan.inputs, *self.plan.outputs)):
            if positions.setdefault(node, i) != i:
                copies.append((positions[node], i, sizes[node.type.space] * node.type.row_bytes))
        bound = dict(zip(self.relations, graphs, strict=True))
        together = all(s.fits(bound) for s in self.joint if isinstance(s, JointStep))
        first, scratch = len(self.plan.inputs) + len(self.plan.outputs), list[int]()
        placed = self.placement(unneeded, together)
        for node, host in placed.hosts.items():
            if node is host:
                positions[node] = first + len(scratch)
                scratch.append(sizes[node.type.space] * node.type.row_bytes)
            else:
                positions[node] = positions[host]
        at = Places(bound, sizes, positions)
        actions = tuple(at.bind(step) for step in (self.joint if together else self.steps))
        return BoundPlan(sizes, placed, tuple(scratch), actions, tuple(copies))


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
