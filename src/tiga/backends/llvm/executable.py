"""Run a plan: bind arrays to kernels' slots and launch step by step."""

import ctypes
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, NamedTuple, Protocol
from weakref import WeakKeyDictionary

import numpy as np
from torch_mlir import ir

from tiga.backends.llvm.engine import Library, compile_module
from tiga.backends.llvm.kernel import Kernels
from tiga.backends.llvm.launcher import Launch, launch, launch_sequence, sequence_records
from tiga.backends.llvm.library import Matmul, call_library, numpy_matmul
from tiga.backends.llvm.node_products import MAX_TASKS, ROWS_PER_TASK, ProductStep, is_small
from tiga.backends.llvm.scatters import SCATTER_GROUPS, SCATTER_ROWS
from tiga.backends.llvm.slots import HUB_SLOTS, WALK_SLOTS, Slots
from tiga.backends.llvm.stages import Stages
from tiga.passes.base import ScheduledPlan
from tiga.passes.buffers import Placement, place
from tiga.passes.rows import LibraryCall, Plan, RowProgram
from tiga.passes.schedule import Schedule
from tiga.relations.walk import HUB_DEGREE
from tiga.trace.node import Node
from tiga.types import GLOBAL, Relation, Space


class Walk(Protocol):
    """What kernels need of one orientation of a relation."""

    num_rows: int
    num_edges: int
    num_tasks: int
    num_chunks: int
    max_degree: int
    hub_rows: np.ndarray
    task_ptr: np.ndarray
    index: np.ndarray
    addresses: Mapping[str, int]


class Graph(Protocol):
    """What a run needs of a relation."""

    num_src: int
    num_dst: int
    num_edges: int

    def walk(self, side: str) -> Walk: ...


SUMMING_TASKS = 128
"""Tasks of a walk that adds up matrices: each has a matrix of its own."""


def joined_tasks(task_ptr: np.ndarray) -> np.ndarray:
    """The boundaries of at most `SUMMING_TASKS` tasks, each of several given ones."""
    every = -(-(len(task_ptr) - 1) // SUMMING_TASKS)
    return task_ptr if every <= 1 else np.append(task_ptr[:-1:every], task_ptr[-1])


@lru_cache(maxsize=256)
def row_tasks(num_rows: int) -> np.ndarray:
    """Row boundaries of the tasks over rows without edges: fixed by their number."""
    size = max(ROWS_PER_TASK, -(-num_rows // MAX_TASKS))
    return np.minimum(np.arange(0, num_rows + size, size, dtype=np.int64), num_rows)


@dataclass(frozen=True)
class Variant:
    """The kernels of a row program for one index width, with or without split rows."""

    library: Library
    functions: tuple[str, ...]

    def address(self, name: str) -> int:
        return self.library.address(f"step_{name}")


class Counts(NamedTuple):
    """Into how many pieces a walk is cut, and how many nodes are at its other end."""

    tasks: int
    hubs: int = 0
    chunks: int = 0
    others: int = 0


@dataclass(frozen=True)
class Bound:
    """A row program on one walk: everything about a launch but where arrays are.

    `fixed` are the first slots; `states` the bytes of partial results, and whether they start at
    zero; `kernels` addresses and numbers of tasks; `tasks` an array whose address is a slot.
    """

    fixed: tuple[int, ...]
    states: tuple[tuple[int, bool], ...]
    kernels: tuple[tuple[int, int], ...]
    tasks: np.ndarray


def _state_bytes(node: Node, pieces: int) -> int:
    return pieces * node.type.size * node.type.dtype.compute.itemsize


@dataclass
class RowStep:
    """A row program with its schedule and the variants compiled so far.

    `number` is its place in the plan; `stages` says how variants are compiled, `bound` what was
    worked out for each walk.
    """

    program: RowProgram
    schedule: Schedule
    slots: Slots
    number: int = 0
    stages: Stages = field(default_factory=Stages)
    variants: dict[tuple[int, int], Variant] = field(default_factory=dict)
    bound: WeakKeyDictionary[Walk, "Bound"] = field(default_factory=WeakKeyDictionary)

    def variant(self, index_bits: int, hub_degree: int) -> Variant:
        key = (index_bits, hub_degree)
        if key not in self.variants:
            self.variants[key] = self._compile(index_bits, hub_degree)
        return self.variants[key]

    def bind_rows(self, graphs: Mapping[Relation, Graph], extent: int) -> "Bound":
        """The program over so many rows without edges."""
        tasks = row_tasks(extent)
        walk = [0, 0, 0, tasks.ctypes.data]
        sizes = [extent, 0, len(tasks) - 1, 0, 0, 0, 0]
        fixed = [*walk, *(0 for _ in HUB_SLOTS), *sizes, *self._degrees(graphs)]
        return self._bound(self.variant(32, 0), fixed, Counts(len(tasks) - 1), tasks)

    def bind(self, walk: Walk, graphs: Mapping[Relation, Graph], others: int) -> "Bound":
        """The program on a walk; kept as long as the walk lives."""
        program = self.program
        hubs, chunks = len(walk.hub_rows), walk.num_chunks
        bits = walk.index.dtype.itemsize * 8
        variant = self.variant(bits, HUB_DEGREE if hubs else 0)
        at, task_ptr = dict(walk.addresses), walk.task_ptr
        if program.outer_sums:
            task_ptr = joined_tasks(task_ptr)
            at["task_ptr"] = task_ptr.ctypes.data
        counts = Counts(len(task_ptr) - 1, hubs, chunks, others)
        sizes = [walk.num_rows, walk.num_edges, counts.tasks, hubs, chunks, others]
        most = min(walk.max_degree, HUB_DEGREE)  # edges that a loop takes without a stop
        fixed = [at[n] for n in (*WALK_SLOTS, *HUB_SLOTS)] + [*sizes, most]
        fixed += self._degrees(graphs)
        bound = self._bound(variant, fixed, counts, task_ptr)
        if all(relation == program.relation for relation, _ in self.slots.degrees):
            self.bound[walk] = bound
        return bound

    def _degrees(self, graphs: Mapping[Relation, Graph]) -> list[int]:
        ends = [graphs[relation].walk(side) for relation, side in self.slots.degrees]
        return [end.addresses["row_ptr"] for end in ends]

    def _bound(self, variant: Variant, fixed: list[int], counts: "Counts", tasks: Any) -> "Bound":
        kernels = [(variant.address(n), self._count(n, counts)) for n in variant.functions]
        return Bound(tuple(fixed), tuple(self._states(counts)), tuple(kernels), tasks)

    def _count(self, function: str, counts: "Counts") -> int:
        """How many tasks a kernel of the program has."""
        known = {
            "rows": SCATTER_GROUPS if self.program.scatters else counts.tasks,
            "totals": 1,
            "scatters": -(-counts.others // SCATTER_ROWS),
        }
        pieces = {"chunk": counts.chunks, "group": SCATTER_GROUPS}
        return known.get(function, pieces.get(function[:5], counts.hubs))

    def _states(self, counts: "Counts") -> Iterator[tuple[int, bool]]:
        """Bytes of each array of partial results, and whether it starts at zero."""
        program, reductions = self.program, self.slots.reductions
        pieces = [(n, counts.tasks + counts.hubs) for n in program.totals]
        pieces += [(n, counts.tasks + counts.chunks) for n in program.outer_sums]
        yield from ((_state_bytes(n, count), False) for n, count in pieces)
        groups = SCATTER_GROUPS * counts.others
        yield from ((_state_bytes(n, groups), True) for n in program.scatters)
        if counts.hubs:
            yield from ((_state_bytes(n, counts.chunks), False) for n in reductions)
            yield from ((_state_bytes(n, counts.hubs), False) for n in reductions)
            each = {"chunk": counts.chunks, "hub": counts.hubs, "carry": counts.chunks}
            yield from ((_state_bytes(n, each[kind]), False) for kind, n in self.slots.scan_states)

    def module(self, index_bits: int, hub_degree: int) -> tuple[ir.Module, tuple[str, ...]]:
        """The kernels as a module of upstream dialects, in a context of its own."""
        with ir.Context(), ir.Location.unknown():
            module = ir.Module.create()
            kernels = Kernels(self.program, self.schedule, index_bits, hub_degree)
            with ir.InsertionPoint(module.body):
                names = kernels.emit("step")
        return module, names

    def _compile(self, index_bits: int, hub_degree: int) -> Variant:
        module, names = self.module(index_bits, hub_degree)
        split = "-split" if hub_degree else ""
        dump = self.stages.dump(f"kernel{self.number}-i{index_bits}{split}")
        library = compile_module(module, verify=self.stages.verify, dump=dump)
        return Variant(library, names)


AnyStep = RowStep | ProductStep | LibraryCall


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

    def execute(self, step: "AnyStep") -> None:
        if isinstance(step, LibraryCall):
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

    `extents` are those of the last run, and `pages` what it planned for a graph in a file, for
    `explain`.
    """

    scheduled: ScheduledPlan
    relations: tuple[Relation, ...]
    steps: tuple[AnyStep, ...]
    extents: Mapping[Space, int] | None = None
    pages: Any = None

    @property
    def plan(self) -> Plan:
        return self.scheduled.plan

    @cached_property
    def placement(self) -> Placement:
        """Whose memory the values between steps take."""
        return place(self.scheduled)

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
        return "\n".join(str(step.module(32, 0)[0]) for step in self.kernels)

    def llvm_ir(self) -> str:
        """The kernels as LLVM IR, before LLVM's own optimisation."""
        modules = (step.module(32, 0)[0] for step in self.kernels)
        libraries = (compile_module(module, keep_llvm_ir=True) for module in modules)
        return "\n".join(library.llvm_ir() or "" for library in libraries)

    @property
    def variants(self) -> int:
        """How many schedule variants of its kernels are compiled."""
        return sum(len(step.variants) for step in self.kernels)

    def run(
        self,
        graphs: Sequence[Graph],
        inputs: Sequence[int],
        outputs: Sequence[int],
        threads: int,
        extents: Mapping[Space, int] | None = None,
        matmul: Matmul = numpy_matmul,
    ) -> None:
        """Compute the outputs.

        Args:
            graphs: one per relation of the program, in order.
            inputs, outputs: addresses of contiguous arrays, row-major with the entity axis first.
            threads: at most so many threads; results do not depend on it.
            extents: sizes of spaces that no relation of the program fixes.
            matmul: the library product to use.
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
        for node, host in self.placement.hosts.items():
            if node is host:
                addresses[node] = run.allocate(sizes[node.type.space] * node.type.row_bytes)
            else:
                addresses[node] = addresses[host]
        for step in self.steps:
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
    return Executable(scheduled, relations, tuple(steps))
