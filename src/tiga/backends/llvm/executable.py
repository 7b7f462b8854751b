"""Run a plan: bind arrays to kernels' slots and launch step by step."""

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Protocol

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
from tiga.passes.rows import LibraryCall, Plan, RowProgram, Step
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


@dataclass
class RowStep:
    """A row program with its schedule and the variants compiled so far.

    `number` is its place in the plan; `stages` says how variants are compiled.
    """

    program: RowProgram
    schedule: Schedule
    slots: Slots
    number: int = 0
    stages: Stages = field(default_factory=Stages)
    variants: dict[tuple[int, int], Variant] = field(default_factory=dict)

    def variant(self, index_bits: int, hub_degree: int) -> Variant:
        key = (index_bits, hub_degree)
        if key not in self.variants:
            self.variants[key] = self._compile(index_bits, hub_degree)
        return self.variants[key]

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
        extent = self.extents[step.program.space]
        tasks = row_tasks(extent)
        count = len(tasks) - 1
        walk = [0, 0, 0, tasks.ctypes.data]
        sizes = [extent, 0, count, 0, 0, 0, 0]
        self._launch(step, step.variant(32, 0), walk, [0] * len(HUB_SLOTS), sizes)

    def _walk(self, step: RowStep) -> None:
        program = step.program
        assert program.relation is not None
        walk = self.graphs[program.relation].walk(program.side)
        splits = not program.scans  # a scan goes through a row in order, however long it is
        hubs, chunks = (len(walk.hub_rows), walk.num_chunks) if splits else (0, 0)
        bits = walk.index.dtype.itemsize * 8
        variant = step.variant(bits, HUB_DEGREE if hubs else 0)
        at = dict(walk.addresses)
        tasks = walk.num_tasks
        if program.outer_sums:
            joined = joined_tasks(walk.task_ptr)
            self.scratch.append(joined)
            at["task_ptr"], tasks = joined.ctypes.data, len(joined) - 1
        sizes = [walk.num_rows, walk.num_edges, tasks, hubs, chunks]
        sizes += [self.extents[program.other_space], walk.max_degree]
        self._launch(step, variant, [at[n] for n in WALK_SLOTS], [at[n] for n in HUB_SLOTS], sizes)

    def _launch(
        self,
        step: RowStep,
        variant: Variant,
        walk: list[int],
        hub_slots: list[int],
        sizes: list[int],
    ) -> None:
        program = step.program
        _, _, tasks, hubs, chunks, others, _ = sizes
        values = [*walk, *hub_slots, *sizes]
        for relation, side in step.slots.degrees:
            values.append(self.graphs[relation].walk(side).addresses["row_ptr"])
        values += [self.addresses[n] for n in step.slots.nodes]
        values += [self._state(n, tasks + hubs) for n in program.totals]
        values += [self._state(n, tasks + chunks) for n in program.outer_sums]
        values += [self._state(n, SCATTER_GROUPS * others, True) for n in program.scatters]
        if hubs and program.phases:
            values += [self._state(n, chunks) for n in step.slots.reductions]
            values += [self._state(n, hubs) for n in step.slots.reductions]
        table = (ctypes.c_int64 * len(values))(*values)
        counts = {
            "rows": SCATTER_GROUPS if program.scatters else tasks,
            "totals": 1,
            "finish": hubs,
            "scatters": -(-others // SCATTER_ROWS),
        }
        pointer = ctypes.addressof(table)
        if len(variant.functions) == 1:
            launch(variant.address("rows"), pointer, tasks, self.threads)
            return
        launches = [
            Launch(variant.address(n), pointer, counts.get(n, chunks if n[0] == "c" else hubs))
            for n in variant.functions
        ]
        launch_sequence(sequence_records(launches), len(launches), self.threads)

    def _state(self, node: Node, pieces: int, zeroed: bool = False) -> int:
        nbytes = pieces * node.type.size * node.type.dtype.compute.itemsize
        return self.allocate(nbytes, zeroed)


@dataclass
class Executable:
    """A plan compiled for the CPU. Kernels are compiled when a graph first needs them.

    `extents` are those of the last run, and `pages` what it planned for a graph in a file, for
    `explain`.
    """

    plan: Plan
    relations: tuple[Relation, ...]
    steps: tuple[AnyStep, ...]
    extents: Mapping[Space, int] | None = None
    pages: Any = None

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
        for node in self.plan.intermediates:
            addresses[node] = run.allocate(sizes[node.type.space] * node.type.row_bytes)
        for step in self.steps:
            run.execute(step)
        for node, address in repeated:  # an input, or the same value as another output
            nbytes = sizes[node.type.space] * node.type.row_bytes
            ctypes.memmove(address, addresses[node], nbytes)
        self.extents = sizes


def prepare(
    plan: Plan,
    schedules: Mapping[Step, Schedule],
    relations: tuple[Relation, ...],
    stages: Stages | None = None,
) -> Executable:
    """The executable of a scheduled plan; kernels are not compiled yet."""
    stages = Stages() if stages is None else stages
    steps: list[AnyStep] = []
    for number, step in enumerate(plan.steps):
        if isinstance(step, RowProgram):
            steps.append(RowStep(step, schedules[step], Slots(step), number, stages))
        else:
            steps.append(ProductStep(step.node) if is_small(step.node) else step)
    return Executable(plan, relations, tuple(steps))
