"""A plan compiled for the CPU, and bound to topologies."""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import Any

from tiga.backends.llvm.arrangement import AnyStep, Arrangement, Launchable, arrange
from tiga.backends.llvm.binding import BoundPlan
from tiga.backends.llvm.engine import Library, compile_module
from tiga.backends.llvm.library import Matmul, numpy_matmul
from tiga.backends.llvm.machine_code import generate_side_by_side
from tiga.backends.llvm.node_products import ProductStep, is_small
from tiga.backends.llvm.slots import Slots
from tiga.backends.llvm.sorts import SORTER
from tiga.backends.llvm.stages import Stages
from tiga.backends.llvm.steps import Graph, JointStep, RowStep, kind_of
from tiga.passes.base import ScheduledPlan
from tiga.passes.buffers import Placement, place
from tiga.passes.pairs import pair
from tiga.passes.rows import Plan, RowProgram
from tiga.relations.snapshot import Snapshot
from tiga.relations.sorting import offer
from tiga.trace.node import Node
from tiga.types import GLOBAL, Relation, Space


@dataclass
class Executable:
    """A plan compiled for the CPU. Kernels are compiled when a graph first needs them.

    `joint` are its steps with those that run together as one, on graphs that allow it. `extents`
    are those of the last run, `placed` where its values between steps were, and `pages` what it
    planned for a graph in a file, for `explain`. `arranged` is what is known of runs on any
    topology, by the inputs that may be written over and whether steps run together; snapshots keep
    what was worked out for them under `key`. `generated` has the kinds of graphs for which kernels
    are compiled.
    """

    scheduled: ScheduledPlan
    relations: tuple[Relation, ...]
    steps: tuple[AnyStep, ...]
    joint: tuple[Launchable, ...]
    extents: Mapping[Space, int] | None = None
    pages: Any = None
    placed: Placement | None = None
    arranged: dict[tuple[tuple[int, ...], bool], Arrangement] = field(default_factory=dict)
    key: object = field(default_factory=object)
    generated: set[tuple[Hashable, ...]] = field(default_factory=set)

    @property
    def plan(self) -> Plan:
        return self.scheduled.plan

    def placement(self, unneeded: tuple[int, ...], together: bool) -> Placement:
        """Whose memory the values between steps take; see `run`."""
        return self.arrangement(unneeded, together).placed

    def arrangement(self, unneeded: tuple[int, ...], together: bool) -> Arrangement:
        """Where the arrays of a run are, and how its steps are bound."""
        found = self.arranged.get((unneeded, together))
        if found is None:
            inputs = [self.plan.inputs[i] for i in unneeded]
            placed = place(self.scheduled, inputs, together)
            steps = self.joint if together else self.steps
            found = self.arranged[unneeded, together] = arrange(self.plan, placed, steps)
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

    def told_of_code(self) -> list[str]:
        """Whether an earlier process wrote the code of its kernels, in a line if one did."""
        steps = (*self.steps, *self.joint)  # some are both: their libraries count once
        libraries = {library for step in steps for library in known_libraries(step)}
        found = sum(library.from_disk for library in libraries)
        return [f"code of {found} of {len(libraries)} kernels from disk"] if found else []

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
        """The plan on graphs: a snapshot, which stays as it is, keeps it."""
        plan = self._bound_to(graphs, extents, unneeded)
        self.extents, self.placed = plan.extents, plan.placed
        return plan

    def _bound_to(
        self,
        graphs: Sequence[Graph],
        extents: Mapping[Space, int] | None,
        unneeded: tuple[int, ...],
    ) -> BoundPlan:
        free = {s: n for s, n in extents.items() if s not in self.related} if extents else {}
        topology = graphs[0] if len(graphs) == 1 and not free else None
        if not isinstance(topology, Snapshot):
            return self._bind(graphs, free, unneeded)
        key = (self.key, unneeded)
        found: BoundPlan | None = topology.plans.get(key)
        if found is None:
            found = topology.keep_plan(key, self._bind(graphs, free, unneeded))
        return found

    @cached_property
    def related(self) -> frozenset[Space]:
        """The spaces whose sizes the relations fix."""
        ends = ((r.src, r.dst, r.edge) for r in self.relations)
        return frozenset((GLOBAL, *chain.from_iterable(ends)))

    @cached_property
    def pairs(self) -> tuple[JointStep, ...]:
        """The steps that run together where the graphs allow it."""
        return tuple(step for step in self.joint if isinstance(step, JointStep))

    def _bind(
        self, graphs: Sequence[Graph], extents: Mapping[Space, int], unneeded: tuple[int, ...]
    ) -> BoundPlan:
        sizes, bound = {GLOBAL: 1, **extents}, dict[Relation, Graph]()
        for relation, graph in zip(self.relations, graphs, strict=True):
            sizes[relation.src], sizes[relation.dst] = graph.num_src, graph.num_dst
            sizes[relation.edge] = graph.num_edges
            bound[relation] = graph
        together = all(pair.fits(bound) for pair in self.pairs)
        self._generate(bound, together)
        return self.arrangement(unneeded, together).on(bound, sizes)

    def _generate(self, bound: Mapping[Relation, Graph], together: bool) -> None:
        """Compile side by side what graphs like these need, when the first of them is met."""
        kind = (together, *(kind_of(bound[r].walk(side)) for r, side in self.walks))
        if kind not in self.generated:
            steps = self.joint if together else self.steps
            generate_side_by_side(filter(None, (library_on(step, bound) for step in steps)))
            self.generated.add(kind)

    @cached_property
    def walks(self) -> tuple[tuple[Relation, str], ...]:
        """The orientations of relations that kernels walk."""
        steps = (step.program for step in self.kernels)
        return tuple(dict.fromkeys((p.relation, p.side) for p in steps if p.relation is not None))


def library_on(step: Launchable, graphs: Mapping[Relation, Graph]) -> Library | None:
    """The code of a step on a topology, which may be yet to be generated; a library's calls have
    none."""
    if isinstance(step, RowStep | JointStep):
        return step.variant_on(graphs).library
    return step.library if isinstance(step, ProductStep) else None


def known_libraries(step: Launchable) -> list[Library]:
    """The code of a step that is there so far."""
    if isinstance(step, RowStep | JointStep):
        return [variant.library for variant in step.variants.values()]
    if isinstance(step, ProductStep) and "library" in vars(step):
        return [step.library]
    return []


def prepare(
    scheduled: ScheduledPlan, relations: tuple[Relation, ...], stages: Stages | None = None
) -> Executable:
    """The executable of a scheduled plan; kernels are not compiled yet. From here on graphs are
    sorted by compiled kernels as well."""
    offer(SORTER)
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
