"""Row programs made ready to launch: compiled for a kind of graph, and bound to its walks."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

import numpy as np
from torch_mlir import ir

from tiga.backends.llvm.engine import Library, compile_module
from tiga.backends.llvm.joint import JointKernels
from tiga.backends.llvm.kernel import Kernels
from tiga.backends.llvm.node_products import MAX_TASKS, ROWS_PER_TASK
from tiga.backends.llvm.scatters import SCATTER_GROUPS, SCATTER_ROWS
from tiga.backends.llvm.slots import HUB_SLOTS, WALK_SLOTS, Slots
from tiga.backends.llvm.stages import Stages
from tiga.ir.kernel_context import kernel_context
from tiga.passes.rows import RowProgram
from tiga.passes.schedule import Schedule
from tiga.relations.walk import HUB_DEGREE
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
    addresses: Mapping[str, int]


class Graph(Protocol):
    """What a run needs of a relation."""

    num_src: int
    num_dst: int
    num_edges: int

    def walk(self, side: str) -> Walk: ...


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

    `number` is its place in the plan; `stages` says how variants are compiled. `tiled` is the same
    program where its walk goes tile by tile, if it ever did.
    """

    program: RowProgram
    schedule: Schedule
    slots: Slots
    number: int = 0
    stages: Stages = field(default_factory=Stages)
    variants: dict[tuple[int, int], Variant] = field(default_factory=dict)
    tiled: "RowStep | None" = None

    def variant(self, index_bits: int, hub_degree: int) -> Variant:
        key = (index_bits, hub_degree)
        found = self.variants.get(key)
        if found is None:
            # Another thread's may be in use by now, by address: it stays.
            found = self.variants.setdefault(key, self._compile(index_bits, hub_degree))
        return found

    def bind(self, graphs: Mapping[Relation, Graph], extents: Mapping[Space, int]) -> "Bound":
        """The program on a topology."""
        if self.program.relation is None:
            return self._bind_rows(graphs, extents[self.program.space])
        walk = graphs[self.program.relation].walk(self.program.side)
        fixed, counts, tasks = self.place(walk, graphs, extents[self.program.other_space])
        bits = walk.index.dtype.itemsize * 8
        variant = self.variant(bits, HUB_DEGREE if counts.hubs else 0)
        return self._bound(variant, fixed, counts, tasks)

    def _bind_rows(self, graphs: Mapping[Relation, Graph], extent: int) -> "Bound":
        """The program over so many rows without edges."""
        tasks = row_tasks(extent)
        walk = [0, 0, 0, tasks.ctypes.data]
        sizes = [extent, 0, len(tasks) - 1, 0, 0, 0, 0]
        fixed = [*walk, *(0 for _ in HUB_SLOTS), *sizes, *self._degrees(graphs)]
        return self._bound(self.variant(32, 0), fixed, Counts(len(tasks) - 1), tasks)

    def place(
        self, walk: Walk, graphs: Mapping[Relation, Graph], others: int
    ) -> tuple[list[int], "Counts", np.ndarray]:
        """The first slots on a walk, its pieces, and the boundaries of its tasks."""
        program = self.program
        hubs, chunks = len(walk.hub_rows), walk.num_chunks
        at, task_ptr = dict(walk.addresses), walk.task_ptr
        if program.outer_sums:
            # As for scatters: few pieces of what is large, whatever the threads.
            task_ptr = joined_tasks(
                task_ptr, SCATTER_GROUPS if program.large_sums else SUMMING_TASKS
            )
            at["task_ptr"] = task_ptr.ctypes.data
        counts = Counts(len(task_ptr) - 1, hubs, chunks, others)
        sizes = [walk.num_rows, walk.num_edges, counts.tasks, hubs, chunks, others]
        most = min(walk.max_degree, HUB_DEGREE)  # edges that a loop takes without a stop
        fixed = [at[n] for n in (*WALK_SLOTS, *HUB_SLOTS)] + [*sizes, most]
        return fixed + self._degrees(graphs), counts, task_ptr

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
        for n in program.totals:
            yield _state_bytes(n, counts.tasks + counts.hubs), False
        for n in program.outer_sums:
            is_large = n in program.large_sums
            pieces = SCATTER_GROUPS * bool(counts.hubs) if is_large else counts.chunks
            yield _state_bytes(n, counts.tasks + pieces), is_large
        groups = SCATTER_GROUPS * counts.others
        yield from ((_state_bytes(n, groups), True) for n in program.scatters)
        if counts.hubs:
            yield from ((_state_bytes(n, counts.chunks), False) for n in reductions)
            yield from ((_state_bytes(n, counts.hubs), False) for n in reductions)
            each = {"chunk": counts.chunks, "hub": counts.hubs, "carry": counts.chunks}
            yield from ((_state_bytes(n, each[kind]), False) for kind, n in self.slots.scan_states)

    def module(self, index_bits: int, hub_degree: int = 0) -> tuple[ir.Module, tuple[str, ...]]:
        """The kernels as a module of upstream dialects, in a context of its own."""
        with kernel_context(), ir.Location.unknown():
            module = ir.Module.create()
            with ir.InsertionPoint(module.body):
                names = self.kernels(index_bits, hub_degree).emit("step")
        return module, names

    def kernels(self, index_bits: int, hub_degree: int) -> Kernels:
        """What emits the functions."""
        return Kernels(self.program, self.schedule, index_bits, hub_degree)

    @property
    def label(self) -> str:
        """What files of its stages are named after."""
        return f"kernel{self.number}"

    def _compile(self, index_bits: int, hub_degree: int) -> Variant:
        module, names = self.module(index_bits, hub_degree)
        split = "-split" if hub_degree else ""
        dump = self.stages.dump(f"{self.label}-i{index_bits}{split}")
        library = compile_module(module, verify=self.stages.verify, dump=dump)
        return Variant(library, names)


@dataclass(frozen=True)
class JointBound:
    """Two row programs on their walks: the first with their kernel, and the first slots of the
    second."""

    first: Bound
    second: tuple[int, ...]


@dataclass
class JointStep:
    """Two row programs over the same rows that run together; `kept` goes between them."""

    first: RowStep
    second: RowStep
    kept: tuple[Node, ...]
    variants: dict[int, Variant] = field(default_factory=dict)

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
        variant = self.variant(walk.index.dtype.itemsize * 8)
        kernels = ((variant.address("rows"), counts.tasks),)
        return JointBound(Bound(tuple(fixed), (), kernels, tasks), tuple(more))

    def variant(self, index_bits: int) -> Variant:
        if index_bits not in self.variants:
            module, names = self.module(index_bits)
            stages = self.first.stages
            dump = stages.dump(f"kernel{self.first.number}-{self.second.number}-i{index_bits}")
            library = compile_module(module, verify=stages.verify, dump=dump)
            self.variants.setdefault(index_bits, Variant(library, names))
        return self.variants[index_bits]

    def module(self, index_bits: int) -> tuple[ir.Module, tuple[str, ...]]:
        """The kernel as a module of upstream dialects, in a context of its own."""
        kernels = [Kernels(s.program, s.schedule, index_bits) for s in (self.first, self.second)]
        with kernel_context(), ir.Location.unknown():
            module = ir.Module.create()
            with ir.InsertionPoint(module.body):
                names = JointKernels(kernels[0], kernels[1], self.kept).emit("step")
        return module, names
