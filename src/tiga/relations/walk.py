"""Walks: a relation seen from one side, cut into the pieces of work that kernels take."""

from array import array
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tiga.relations.csr import Csr
from tiga.runtime.addresses import address

HUB_DEGREE = 4096
"""Rows with more edges than this are split. Below it a row is a small part of any task."""

HUB_CHUNK = 2048
"""Edges in a chunk of a hub. Fixed, so that the order of every sum depends on the graph alone and
not on the number of threads; short, so that a chunk's partial sum keeps its accuracy (2·10^7 ones
sum to 2·10^7 in float32) and that one hub feeds all threads."""

STRETCH = 128
"""Edges of a row that are added in sequence, before their sum is added to that of those before."""

TASK_WEIGHT = 4096
"""Least weight (rows + edges) of a task: microseconds of work, far above the cost of taking one."""

MAX_TASKS = 512
"""Enough tasks to balance any number of threads, few enough for per-task partial results."""


ARRAYS = (
    "row_ptr", "index", "edge_id", "task_ptr", "hub_rows", "hub_ptr", "chunk_row", "chunk_lo",
    "chunk_hi", "chunk_hub",
)  # fmt: skip
"""The arrays of a walk that kernels read."""


@dataclass(eq=False)  # not frozen, which would triple the time to make one for a new graph
class Decomposition:
    """The fixed decomposition of a walk's work; see `Walk` for the arrays."""

    task_ptr: np.ndarray
    hub_rows: np.ndarray
    hub_ptr: np.ndarray
    chunk_row: np.ndarray
    chunk_lo: np.ndarray
    chunk_hi: np.ndarray
    max_degree: int

    @staticmethod
    def without_hubs(task_ptr: np.ndarray, max_degree: int) -> "Decomposition":
        """The plan of rows that are not split."""
        return Decomposition(task_ptr, _NONE, _NO_CHUNKS, _NONE, _NONE, _NONE, max_degree)

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        """The arrays of the decomposition."""
        hubs = (self.hub_rows, self.hub_ptr, self.chunk_row, self.chunk_lo, self.chunk_hi)
        return (self.task_ptr, *hubs)


_NONE = np.empty(0, dtype=np.int64)
_NO_CHUNKS = np.zeros(1, dtype=np.int64)
_NO_HUBS = (address(_NONE), address(_NO_CHUNKS), *(address(_NONE) for _ in range(4)))


@dataclass(eq=False)
class Walk(Decomposition):
    """One orientation of a relation: CSR rows and the fixed decomposition of work.

    All arrays are contiguous and must not be written to.

    - `side`: `"dst"`, rows are destinations; `"src"`, rows are sources (the transpose).
    - `row_ptr`: int64 `[num_rows + 1]`.
    - `index`: `[num_edges]`, the node at the other end; int32 where both node counts and the
      number of edges fit, else int64, the same for both walks of a graph.
    - `edge_id`: `[num_edges]`, in the dtype of `index`, the position of the edge in CSR
      (destination) order; increasing within a row. None for the `"dst"` walk, where it is the
      identity; always an array for the `"src"` walk.
    - `task_ptr`: int64 `[T + 1]`, row boundaries of tasks of about equal weight: a row weighs
      1 + its edges, a hub 1. At most `MAX_TASKS` tasks, none without rows.
    - `hub_rows`: int64 `[H]`, rows of more than `HUB_DEGREE` edges, ascending; `hub_ptr`: int64
      `[H + 1]`, the chunks of each; `chunk_row`, `chunk_lo`, `chunk_hi`: int64 `[C]`, row and
      range of edge positions of each chunk, at most `HUB_CHUNK` edges.
    - `max_degree`: the most edges of a row.
    """

    side: str
    num_rows: int
    num_edges: int
    row_ptr: np.ndarray
    index: np.ndarray
    edge_id: np.ndarray | None

    @property
    def num_tasks(self) -> int:
        return self.task_ptr.shape[0] - 1

    @property
    def num_chunks(self) -> int:
        return self.chunk_row.shape[0]

    @cached_property
    def chunk_hub(self) -> np.ndarray:
        """int64 `[C]`: the position in `hub_rows` of each chunk's row."""
        return np.repeat(np.arange(len(self.hub_rows)), np.diff(self.hub_ptr)).astype(np.int64)

    @cached_property
    def addresses(self) -> "array[int]":
        """The address of every array of `ARRAYS`, in that order; 0 for one that is absent."""
        edge_id = 0 if self.edge_id is None else address(self.edge_id)
        walked = (address(self.row_ptr), address(self.index), edge_id, address(self.task_ptr))
        if not self.num_chunks:
            return array("q", walked + _NO_HUBS)
        return array("q", (*walked, *(address(getattr(self, name)) for name in ARRAYS[4:])))

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays, whether shared with the graph or not."""
        arrays = [self.row_ptr, self.index, self.edge_id, *self.arrays]
        return sum(array.nbytes for array in arrays if array is not None)


def walk_destinations(csr: Csr, plan: Decomposition | None = None) -> Walk:
    """Rows are destinations: edges in CSR order. `plan` says how they are cut, if it is known."""
    plan = plan_rows(csr.row_ptr) if plan is None else plan
    return make_walk("dst", plan, csr.row_ptr, csr.sources, None)


def walk_sources(csr: Csr) -> Walk:
    """Rows are sources: the transpose, edges of a row in increasing CSR position."""
    row_ptr, index, edge_id = csr.transposed()
    return make_walk("src", plan_rows(row_ptr), row_ptr, index, edge_id)


def plan_rows(row_ptr: np.ndarray) -> Decomposition:
    """Cut rows into tasks, and hubs into chunks; `row_ptr` is int64 `[num_rows + 1]`."""
    degree = np.diff(row_ptr)
    hub_rows = np.flatnonzero(degree > HUB_DEGREE)
    num_chunks = -(-degree[hub_rows] // HUB_CHUNK)
    hub_ptr = np.zeros(hub_rows.shape[0] + 1, dtype=np.int64)
    np.cumsum(num_chunks, out=hub_ptr[1:])
    chunk_row = np.repeat(hub_rows, num_chunks)
    ordinal = np.arange(chunk_row.shape[0]) - np.repeat(hub_ptr[:-1], num_chunks)
    chunk_lo = row_ptr[chunk_row] + ordinal * HUB_CHUNK
    chunk_hi = np.minimum(chunk_lo + HUB_CHUNK, row_ptr[chunk_row + 1])
    most = int(degree.max(initial=0))
    degree[hub_rows] = 0
    return Decomposition(
        _cut_tasks(degree + 1), hub_rows, hub_ptr, chunk_row, chunk_lo, chunk_hi, most
    )


def _cut_tasks(weight: np.ndarray) -> np.ndarray:
    """Boundaries, int64 `[T + 1]`, of tasks over rows of these weights (each at least 1)."""
    if weight.shape[0] == 0:
        return np.zeros(1, dtype=np.int64)
    end = np.cumsum(weight)
    target = max(TASK_WEIGHT, -(-int(end[-1]) // MAX_TASKS))
    # A task ends with the row that reaches a multiple of the target.
    cuts = np.searchsorted(end, np.arange(target, int(end[-1]), target)) + 1
    bounds = np.concatenate(([0], cuts, weight.shape)).astype(np.int64, copy=False)
    return bounds[np.diff(bounds, prepend=-1) > 0]  # they ascend: np.unique would import np.ma


def make_walk(
    side: str,
    plan: Decomposition,
    row_ptr: np.ndarray,
    index: np.ndarray,
    edge_id: np.ndarray | None,
) -> Walk:
    """The walk over rows of this plan."""
    return Walk(
        plan.task_ptr, plan.hub_rows, plan.hub_ptr, plan.chunk_row, plan.chunk_lo, plan.chunk_hi,
        plan.max_degree, side, len(row_ptr) - 1, len(index), row_ptr, index, edge_id,
    )  # fmt: skip
