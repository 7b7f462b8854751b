"""Walks: a relation seen from one side, cut into the pieces of work that kernels take."""

from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np

from tiga.relations.csr import Csr, count_rows, stable_order

HUB_DEGREE = 4096
"""Rows with more edges than this are split. Below it a row is a small part of any task."""

HUB_CHUNK = 2048
"""Edges in a chunk of a hub. Fixed, so that the order of every sum depends on the graph alone and
not on the number of threads; short, so that a chunk's partial sum keeps its accuracy (2·10^7 ones
sum to 2·10^7 in float32) and that one hub feeds all threads."""

TASK_WEIGHT = 4096
"""Least weight (rows + edges) of a task: microseconds of work, far above the cost of taking one."""

MAX_TASKS = 512
"""Enough tasks to balance any number of threads, few enough for per-task partial results."""


@dataclass(frozen=True, eq=False)
class Plan:
    """The fixed decomposition of a walk's work; see `Walk` for the arrays."""

    task_ptr: np.ndarray
    hub_rows: np.ndarray
    hub_ptr: np.ndarray
    chunk_row: np.ndarray
    chunk_lo: np.ndarray
    chunk_hi: np.ndarray


@dataclass(frozen=True, eq=False)
class Walk(Plan):
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
    def max_degree(self) -> int:
        """The most edges of a row."""
        return int(np.diff(self.row_ptr).max(initial=0))

    @cached_property
    def addresses(self) -> dict[str, int]:
        """The address of every array by name, 0 for one that is absent."""
        names = ("row_ptr", "index", "edge_id", *(f.name for f in fields(Plan)), "chunk_hub")
        arrays = {name: getattr(self, name) for name in names}
        return {name: 0 if a is None else a.ctypes.data for name, a in arrays.items()}

    def plan_arrays(self) -> list[np.ndarray]:
        """The arrays of the decomposition."""
        return [getattr(self, field.name) for field in fields(Plan)]

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays, whether shared with the graph or not."""
        arrays = [self.row_ptr, self.index, self.edge_id, *self.plan_arrays()]
        return sum(array.nbytes for array in arrays if array is not None)


def walk_destinations(csr: Csr) -> Walk:
    """Rows are destinations: edges in CSR order."""
    index = np.ascontiguousarray(csr.col_idx, dtype=csr.index_dtype)
    return _walk("dst", csr.row_ptr, index, None)


def walk_sources(csr: Csr) -> Walk:
    """Rows are sources: the transpose, edges of a row in increasing CSR position."""
    edge_id = stable_order(csr.col_idx, csr.num_src).astype(csr.index_dtype, copy=False)
    index = csr.destinations(csr.index_dtype)[edge_id]
    return _walk("src", count_rows(csr.col_idx, csr.num_src), index, edge_id)


def plan_rows(row_ptr: np.ndarray) -> Plan:
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
    degree[hub_rows] = 0
    return Plan(_cut_tasks(degree + 1), hub_rows, hub_ptr, chunk_row, chunk_lo, chunk_hi)


def _cut_tasks(weight: np.ndarray) -> np.ndarray:
    """Boundaries, int64 `[T + 1]`, of tasks over rows of these weights (each at least 1)."""
    if weight.shape[0] == 0:
        return np.zeros(1, dtype=np.int64)
    end = np.cumsum(weight)
    target = max(TASK_WEIGHT, -(-int(end[-1]) // MAX_TASKS))
    # A task ends with the row that reaches a multiple of the target.
    cuts = np.searchsorted(end, np.arange(target, int(end[-1]), target)) + 1
    return np.unique(np.concatenate(([0], cuts, weight.shape))).astype(np.int64, copy=False)


def _walk(side: str, row_ptr: np.ndarray, index: np.ndarray, edge_id: np.ndarray | None) -> Walk:
    plan = plan_rows(row_ptr)
    return Walk(
        **{field.name: getattr(plan, field.name) for field in fields(Plan)},
        side=side,
        num_rows=row_ptr.shape[0] - 1,
        num_edges=index.shape[0],
        row_ptr=row_ptr,
        index=index,
        edge_id=edge_id,
    )
