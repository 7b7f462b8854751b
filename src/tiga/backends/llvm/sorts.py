"""Sorting the edges of a relation with compiled kernels."""

from array import array
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from tiga.backends.llvm.engine import Library, compile_module
from tiga.backends.llvm.launcher import launch
from tiga.backends.llvm.sort_kernels import FACTS, FAULTS, GIVEN, ORDERED, add_kernels
from tiga.ir.kernel_context import kernel_context
from tiga.ir.module import new_module
from tiga.relations.csr import Csr
from tiga.relations.indices import index_dtype
from tiga.relations.walk import MAX_TASKS, TASK_WEIGHT, Decomposition, Walk, make_walk, plan_rows
from tiga.runtime.addresses import address
from tiga.runtime.parallel import thread_count

COMPILED_AFTER = 2**20
"""Edges that numpy sorts first, in which time the kernels can be compiled: a process that makes few
graphs compiles none."""

LEAST_EDGES = 2**14
"""What a graph counts for that has fewer: numpy takes as long."""

SERIAL_BELOW = 2**16
"""Fewer edges are one block: to wake other threads takes longer."""

COUNTERS = 4
"""More blocks than so many counters for an edge allow would take longer to join than they save."""


@lru_cache(maxsize=8)
def _library(ordered: bool, given: int, kept: int) -> Library:
    """The kernels for indices of so many bytes."""
    with new_module(kernel_context()) as module:
        add_kernels(ORDERED if ordered else GIVEN, 8 * given, 8 * kept)
    return compile_module(module)


def _blocks(num_edges: int, num_rows: int) -> int:
    """Into how many blocks edges are cut; each has one at least."""
    if num_edges < SERIAL_BELOW:
        return 1
    return max(1, min(thread_count(), COUNTERS * num_edges // max(num_rows, 1)))


@dataclass(eq=False)
class _Sort:
    """One sort: what it makes, and the table of its kernels."""

    library: Library
    blocks: int
    row_ptr: np.ndarray
    index: np.ndarray
    edge_id: np.ndarray
    task_ptr: np.ndarray
    counts: np.ndarray
    found: "array[int]"
    table: "array[int]"

    @staticmethod
    def of(
        library: Library,
        blocks: int,
        sizes: tuple[int, int, int],
        dtype: np.dtype,
        ends: tuple[int, int, int, int],
        bounds: int = 0,
        row_ptr: np.ndarray | None = None,
    ) -> "_Sort":
        """A sort of so many edges by so many rows, with so many other ends (`sizes`). `ends` are
        addresses and strides of rows and of other ends; `row_ptr` is given if it is there."""
        num_edges, num_rows, num_others = sizes
        row_ptr = np.empty(num_rows + 1, np.int64) if row_ptr is None else row_ptr
        tasks = min(MAX_TASKS, (num_rows + num_edges) // TASK_WEIGHT) + 2
        task_ptr = np.empty(tasks, np.int64)
        index, edge_id = np.empty(num_edges, dtype), np.empty(num_edges, dtype)
        counts = np.zeros(num_rows * blocks, dtype)
        found = array("q", bytes(8 * (len(FACTS) + FAULTS * blocks)))
        facts, _ = found.buffer_info()
        table = array("q", (
            *ends, num_edges, num_others, -(-num_edges // blocks), num_rows, blocks,
            address(counts), facts + 8 * len(FACTS), address(row_ptr), address(index),
            address(edge_id), address(task_ptr), facts, bounds,
        ))  # fmt: skip
        return _Sort(library, blocks, row_ptr, index, edge_id, task_ptr, counts, found, table)

    def run(self, kernel: str, tasks: int) -> None:
        pointer, _ = self.table.buffer_info()
        launch(self.library.address(kernel), pointer, tasks, self.blocks)

    @property
    def has_faults(self) -> bool:
        """Whether there is an edge with an end that does not exist."""
        return any(self.found[len(FACTS) :: FAULTS])

    @property
    def moves(self) -> bool:
        """Whether edges are not in order."""
        return any(self.found[len(FACTS) + 1 :: FAULTS])

    @property
    def plan(self) -> Decomposition:
        """How rows are cut."""
        tasks, most, hubs = self.found[: len(FACTS)]
        if hubs:
            return plan_rows(self.row_ptr)
        return Decomposition.without_hubs(self.task_ptr[: tasks + 1], most)


@dataclass
class CompiledSorter:
    """Sorts edges, once there were so many that compiling what does it was worth it; see
    `tiga.relations.sorting.Sorter`."""

    seen: int = 0

    def _leaves(self, num_edges: int) -> bool:
        """Whether it leaves these edges to others."""
        if self.seen >= COMPILED_AFTER:
            return False
        self.seen += max(num_edges, LEAST_EDGES)
        return self.seen < COMPILED_AFTER

    def by_destination(
        self, src: np.ndarray, dst: np.ndarray, num_src: int, num_dst: int
    ) -> Csr | None:
        num_edges, given = len(dst), dst.dtype
        if not num_edges or not num_dst or src.dtype != given or self._leaves(num_edges):
            return None
        dtype = index_dtype(num_src, num_dst, num_edges)
        library = _library(False, given.itemsize, dtype.itemsize)
        ends = (*_strided(dst), *_strided(src))
        blocks, sizes = _blocks(num_edges, num_dst), (num_edges, num_dst, num_src)
        sort = _Sort.of(library, blocks, sizes, dtype, ends)
        if blocks == 1:
            sort.run("sort", 1)
        else:
            _sort_blocks(sort)
        if sort.has_faults:
            return None
        order = sort.edge_id if sort.moves else None
        index = src if order is None and given == dtype else sort.index
        return Csr(num_src, num_dst, sort.row_ptr, index, order, sort.plan)

    def plan(self, row_ptr: np.ndarray) -> Decomposition | None:
        if self._leaves(len(row_ptr)):
            return None
        sizes, dtype = (int(row_ptr[-1]), len(row_ptr) - 1, 0), np.dtype(np.int32)
        library = _library(True, dtype.itemsize, dtype.itemsize)
        sort = _Sort.of(library, 1, sizes, dtype, (0, 1, 0, 1), row_ptr=row_ptr)
        sort.run("plan", 1)
        return sort.plan

    def by_source(self, csr: Csr) -> Walk | None:
        num_edges, dtype = csr.num_edges, csr.index_dtype
        if not num_edges or self._leaves(num_edges):
            return None
        blocks, sizes = _blocks(num_edges, csr.num_src), (num_edges, csr.num_src, csr.num_dst)
        bounds = _even_bounds(csr.row_ptr, blocks)
        library = _library(True, dtype.itemsize, dtype.itemsize)
        ends = (address(csr.sources), 1, address(csr.row_ptr), 1)
        sort = _Sort.of(library, blocks, sizes, dtype, ends, address(bounds))
        if blocks == 1:
            sort.run("sort", 1)
        else:
            for kernel, tasks in (("count", blocks), ("places", 1), ("place", blocks)):
                sort.run(kernel, tasks)
        return make_walk("src", sort.plan, sort.row_ptr, sort.index, sort.edge_id)


def _sort_blocks(sort: _Sort) -> None:
    """Sort edges as they are given, in several blocks."""
    sort.run("count", sort.blocks)
    if sort.has_faults:
        return
    sort.run("places", 1)
    sort.run("place" if sort.moves else "copy", sort.blocks)


def _even_bounds(row_ptr: np.ndarray, blocks: int) -> np.ndarray:
    """Bounds of ranges of rows with about as many edges each."""
    if blocks == 1:
        return np.array((0, len(row_ptr) - 1))
    wanted = np.arange(1, blocks) * (row_ptr[-1] // blocks)
    return np.array((0, *np.searchsorted(row_ptr, wanted), len(row_ptr) - 1))


def _strided(ends: np.ndarray) -> tuple[int, int]:
    """Where indices begin, and how many elements apart they are."""
    return address(ends), ends.strides[0] // ends.itemsize


SORTER = CompiledSorter()
"""The one of this process."""
