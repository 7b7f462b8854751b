"""Row programs made ready to launch: compiled for a kind of graph, and bound to its walks."""

from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Protocol

import numpy as np
from torch_mlir import ir

from tiga.backends.llvm.edges import Lengths
from tiga.backends.llvm.engine import Library, shared_library
from tiga.backends.llvm.joint import JointKernels
from tiga.backends.llvm.kernel import Kernels
from tiga.backends.llvm.node_products import MAX_TASKS, ROWS_PER_TASK
from tiga.backends.llvm.scatters import SCATTER_GROUPS
from tiga.backends.llvm.slots import Slots
from tiga.backends.llvm.stages import Stages
from tiga.backends.llvm.tasks import Counts, Function, Over
from tiga.ir.kernel_context import kernel_context
from tiga.ir.module import new_module
from tiga.passes.rows import RowProgram, adds_up
from tiga.passes.schedule import Schedule
from tiga.relations.walk import ARRAYS, HUB_DEGREE
from tiga.runtime.addresses import address
from tiga.trace.node import Node
from tiga.types import Relation, Space


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
    addresses: "array[int]"


class Graph(Protocol):
    """What a run needs of a relation."""

    num_src: int
    num_dst: int
    num_edges: int

    def walk(self, side: str) -> Walk: ...


ROW_PTR, TASK_PTR = ARRAYS.index("row_ptr"), ARRAYS.index("task_ptr")

SUMMING_TASKS = 128
"""Tasks of a walk that adds up matrices: each has a matrix of its own."""


def joined_tasks(task_ptr: np.ndarray, most: int = SUMMING_TASKS) -> np.ndarray:
    """The boundaries of at most `most` tasks, each of several given ones."""
    every = -(-(len(task_ptr) - 1) // most)
    return task_ptr if every <= 1 else np.append(task_ptr[:-1:every], task_ptr[-1])


@lru_cache(maxsize=256)
def row_tasks(num_rows: int) -> np.ndarray:
    """Row boundaries of the tasks over rows without edges: fixed by their number."""
    size = max(ROWS_PER_TASK, -(-num_rows // MAX_TASKS))
    return np.minimum(np.arange(0, num_rows + size, size, dtype=np.int64), num_rows)


def kind_of(walk: Walk) -> tuple[int, int, Lengths]:
    """What decides which variant a walk takes: the bits of an index, the degree from which rows are
    split, 0 if none are, and whether there are rows of several stretches of edges."""
    hub_degree = HUB_DEGREE if len(walk.hub_rows) else 0
    return 8 * walk.index.itemsize, hub_degree, Lengths.of(walk.max_degree)


@dataclass(frozen=True)
class Variant:
    """The kernels of a row program for one index width, with or without split and long rows."""

    library: Library
    functions: tuple[Function, ...]

    @cached_property
    def kernels(self) -> tuple[tuple[int, Over], ...]:
        """The addresses of the functions, and what they go over, in launch order."""
        return tuple((self.address(one.name), one.over) for one in self.functions)

    def address(self, name: str) -> int:
        return self.library.address(f"step_{name}")


@dataclass(eq=False)  # made for every step on every new graph
class BoundWalk:
    """A row program on one walk: everything about a launch but where arrays are.

    `fixed` are the first slots; `states` the bytes of partial results, and whether they start at
    zero; `kernels` addresses and numbers of tasks; `tasks` an array whose address is a slot.
    """

    fixed: "array[int]"
    states: Sequence[tuple[int, bool]]
    kernels: Sequence[tuple[int, int]]
    tasks: np.ndarray


_PIECES: dict[str, Callable[[Counts], int]] = {
    "total": lambda counts: counts.tasks + counts.hubs,
    "outer": lambda counts: counts.tasks + counts.chunks,
    "large": lambda counts: counts.tasks + SCATTER_GROUPS * bool(counts.hubs),
    "scatter": lambda counts: SCATTER_GROUPS * counts.others,
    "chunk": lambda counts: counts.chunks,
    "hub": lambda counts: counts.hubs,
    "carry": lambda counts: counts.chunks,
}
"""How many partial results there are of a kind."""


@dataclass(frozen=True)
class Partial:
    """Partial results of a value: so many bytes each, of a kind; whether they start at zero."""

    nbytes: int
    pieces: Callable[[Counts], int]
    zeroed: bool = False

    @staticmethod
    def of(node: Node, kind: str, zeroed: bool = False) -> "Partial":
        nbytes = node.type.size * node.type.dtype.compute.itemsize
        return Partial(nbytes, _PIECES[kind], zeroed)


@dataclass
class RowStep:
    """A row program with its schedule and the variants compiled so far.

    `number` is its place in the plan; `stages` says how variants are compiled. `tiled` is the same
    program where its walk goes tile by tile, if it ever did.
    """

    program: RowProgram
    schedule: Schedule
    slots: Slots
    number: int = 0
    stages: Stages = field(default_factory=Stages)
    variants: dict[tuple[int, int, Lengths], Variant] = field(default_factory=dict)
    tiled: "RowStep | None" = None

    def variant(
        self, index_bits: int, hub_degree: int = 0, lengths: Lengths = Lengths.SHORT
    ) -> Variant:
        key = (index_bits, hub_degree, lengths if self.has_stretches else Lengths.SHORT)
        found = self.variants.get(key)
        if found is None:
            # Another thread's may be in use by now, by address: it stays.
            found = self.variants.setdefault(key, self._compile(*key))
        return found

    @cached_property
    def has_stretches(self) -> bool:
        """Whether edges are added one by one, so that long rows are cut in stretches."""
        sums = any(map(adds_up, self.slots.reductions))
        return sums and self.schedule.lanes != "edges"

    def variant_on(self, graphs: Mapping[Relation, Graph]) -> Variant:
        """The variant for a topology."""
        if self.program.relation is None:
            return self.variant(32)
        return self.variant(*kind_of(graphs[self.program.relation].walk(self.program.side)))

    def bind(self, graphs: Mapping[Relation, Graph], extents: Mapping[Space, int]) -> "BoundWalk":
        """The program on a topology."""
        program = self.program
        if program.relation is None:
            return self._bind_rows(graphs, extents[program.space])
        walk = graphs[program.relation].walk(program.side)
        fixed, counts, tasks = self.place(walk, graphs, extents[program.other_space])
        return self._bound(self.variant_on(graphs), fixed, counts, tasks)

    def _bind_rows(self, graphs: Mapping[Relation, Graph], extent: int) -> "BoundWalk":
        """The program over so many rows without edges."""
        tasks = row_tasks(extent)
        fixed = array("q", bytes(8 * len(ARRAYS)))
        fixed[TASK_PTR] = address(tasks)
        fixed.extend((extent, 0, len(tasks) - 1, 0, 0, 0, 0))
        self._add_degrees(fixed, graphs)
        return self._bound(self.variant_on(graphs), fixed, Counts(len(tasks) - 1), tasks)

    def place(
        self, walk: Walk, graphs: Mapping[Relation, Graph], others: int
    ) -> tuple["array[int]", Counts, np.ndarray]:
        """The first slots on a walk, its pieces, and the boundaries of its tasks."""
        hubs, chunks = len(walk.hub_rows), walk.num_chunks
        fixed, task_ptr = walk.addresses[:], walk.task_ptr
        if self.most_tasks:
            task_ptr = joined_tasks(task_ptr, self.most_tasks)
            fixed[TASK_PTR] = address(task_ptr)
        tasks = len(task_ptr) - 1
        most = min(walk.max_degree, HUB_DEGREE)  # edges that a loop takes without a stop
        fixed.extend((walk.num_rows, walk.num_edges, tasks, hubs, chunks, others, most))
        self._add_degrees(fixed, graphs)
        return fixed, Counts(tasks, hubs, chunks, others), task_ptr

    @cached_property
    def most_tasks(self) -> int:
        """The most tasks where each has much of its own, 0 for any number: as for scatters, few
        pieces of what is large, whatever the threads."""
        if not self.program.outer_sums:
            return 0
        return SCATTER_GROUPS if self.program.large_sums else SUMMING_TASKS

    def _add_degrees(self, fixed: "array[int]", graphs: Mapping[Relation, Graph]) -> None:
        for relation, side in self.slots.degrees:
            fixed.append(graphs[relation].walk(side).addresses[ROW_PTR])

    def _bound(
        self, variant: Variant, fixed: "array[int]", counts: Counts, tasks: np.ndarray
    ) -> "BoundWalk":
        kernels = [(address, counts.of(over)) for address, over in variant.kernels]
        partials = self.partials + self.partials_of_hubs if counts.hubs else self.partials
        states = [(p.nbytes * p.pieces(counts), p.zeroed) for p in partials]
        return BoundWalk(fixed, states, kernels, tasks)

    @cached_property
    def partials(self) -> tuple[Partial, ...]:
        """The partial results of a run, in the order of their slots."""
        program = self.program
        large = {n: n in program.large_sums for n in program.outer_sums}
        return (
            *(Partial.of(n, "total") for n in program.totals),
            *(Partial.of(n, "large" if is_large else "outer", is_large)
              for n, is_large in large.items()),
            *(Partial.of(n, "scatter", True) for n in program.scatters),
        )  # fmt: skip

    @cached_property
    def partials_of_hubs(self) -> tuple[Partial, ...]:
        """Those that follow where rows are split."""
        kinds = [(kind, n) for kind in ("chunk", "hub") for n in self.slots.reductions]
        return tuple(Partial.of(n, kind) for kind, n in (*kinds, *self.slots.scan_states))

    def module(
        self, index_bits: int, hub_degree: int = 0, lengths: Lengths = Lengths.SHORT
    ) -> tuple[ir.Module, tuple[Function, ...]]:
        """The kernels as a module of upstream dialects, in a context of its own."""
        with new_module(kernel_context()) as module:
            functions = self.kernels(index_bits, hub_degree, lengths).emit("step")
        return module, functions

    def kernels(self, index_bits: int, hub_degree: int, lengths: Lengths) -> Kernels:
        """What emits the functions."""
        return Kernels(self.program, self.schedule, index_bits, hub_degree, lengths)

    @property
    def label(self) -> str:
        """What files of its stages are named after."""
        return f"kernel{self.number}"

    def _compile(self, index_bits: int, hub_degree: int, lengths: Lengths) -> Variant:
        module, functions = self.module(index_bits, hub_degree, lengths)
        kind = f"i{index_bits}{'-split' if hub_degree else ''}{lengths.value}"
        dump = self.stages.dump(f"{self.label}-{kind}")
        library = shared_library(module, verify=self.stages.verify, dump=dump)
        return Variant(library, functions)


@dataclass(eq=False)
class JointBound:
    """Two row programs on their walks: the first with their kernel, and the first slots of the
    second."""

    first: BoundWalk
    second: "array[int]"


@dataclass
class JointStep:
    """Two row programs over the same rows that run together; `kept` goes between them."""

    first: RowStep
    second: RowStep
    kept: tuple[Node, ...]
    variants: dict[tuple[int, Lengths], Variant] = field(default_factory=dict)

    def walks(self, graphs: Mapping[Relation, Graph]) -> tuple[Walk, Walk]:
        """The walks of the two."""
        programs = (self.first.program, self.second.program)
        first, second = (graphs[p.relation].walk(p.side) for p in programs if p.relation)
        return first, second

    def fits(self, graphs: Mapping[Relation, Graph]) -> bool:
        """Whether they can run together: split rows are finished by kernels of their own."""
        return not any(len(walk.hub_rows) for walk in self.walks(graphs))

    def bind(self, graphs: Mapping[Relation, Graph], extents: Mapping[Space, int]) -> "JointBound":
        """The two on their walks."""
        walk, other = self.walks(graphs)
        first, second = self.first.program, self.second.program
        fixed, counts, tasks = self.first.place(walk, graphs, extents[first.other_space])
        more, _, _ = self.second.place(other, graphs, extents[second.other_space])
        kernels = ((self.variant_on(graphs).address("rows"), counts.tasks),)
        return JointBound(BoundWalk(fixed, (), kernels, tasks), more)

    def variant_on(self, graphs: Mapping[Relation, Graph]) -> Variant:
        """The variant for a topology."""
        walks = self.walks(graphs)
        lengths = Lengths.of(max(walk.max_degree for walk in walks))
        return self.variant(8 * walks[0].index.itemsize, lengths)

    def variant(self, index_bits: int, lengths: Lengths = Lengths.SHORT) -> Variant:
        has_stretches = self.first.has_stretches or self.second.has_stretches
        key = (index_bits, lengths if has_stretches else Lengths.SHORT)
        if key not in self.variants:
            module, functions = self.module(*key)
            stages = self.first.stages
            kind = f"i{index_bits}{key[1].value}"
            dump = stages.dump(f"kernel{self.first.number}-{self.second.number}-{kind}")
            library = shared_library(module, verify=stages.verify, dump=dump)
            self.variants.setdefault(key, Variant(library, functions))
        return self.variants[key]

    def module(
        self, index_bits: int, lengths: Lengths = Lengths.SHORT
    ) -> tuple[ir.Module, tuple[Function, ...]]:
        """The kernel as a module of upstream dialects, in a context of its own."""
        kernels = [
            Kernels(step.program, step.schedule, index_bits, lengths=lengths)
            for step in (self.first, self.second)
        ]
        with new_module(kernel_context()) as module:
            functions = JointKernels(kernels[0], kernels[1], self.kept).emit("step")
        return module, functions
