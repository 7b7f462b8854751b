"""The work list of one page: the same items as in memory, of the page's rows alone.

What an item computes depends on its own edges and on the tile: which items share a tile, or a
launch, does not matter. Positions of edges and numbers of rows are those of the whole graph.

Kernels take places of a tile beyond the last item for row 0, which a page need not have. So the
last item is repeated until the tile is full: what is stored twice has the same bits. A chunk is
repeated without its edges, as only the chunk itself has a carry to start from.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tiga.backends.triton.topology import CHUNK
from tiga.runtime.arena import Arena

_INT32, _INT64 = np.dtype(np.int32), np.dtype(np.int64)
_NONE = np.empty(0, np.int64)


@dataclass(frozen=True)
class Items:
    """Rows, or chunks of rows: the number of each, its first edge and how many it has."""

    row: np.ndarray
    low: np.ndarray
    count: np.ndarray


@dataclass(frozen=True)
class Hubs:
    """Split rows: the number of each, where its chunks begin among all, and each chunk's row."""

    rows: np.ndarray
    ptr: np.ndarray
    of_chunk: np.ndarray

    def staged(self, chunks: int, arena: Arena) -> dict[str, np.ndarray]:
        """The arrays that kernels read, by parameter; `chunks` counts those that are repeated."""
        last = self.of_chunk[-1:].repeat(max(0, chunks - len(self.of_chunk)))
        of_chunk = np.concatenate((self.of_chunk, last))
        named = {"hub_rows": self.rows, "hub_ptr": self.ptr, "chunk_hub": of_chunk}
        return {name: staged(array, _INT64, arena) for name, array in named.items()}


@dataclass(frozen=True)
class WorkList:
    """What kernels are launched over on a page.

    `counts` has the entities by what a launch goes over, `arrays` the arrays by that and by
    parameter ("" for those that all launches share); `numbers` are other parameters.
    """

    counts: Mapping[str, int]
    arrays: Mapping[tuple[str, str], np.ndarray]
    numbers: Mapping[str, int]

    def array(self, key: str, over: str) -> np.ndarray:
        """The array that a parameter of a kernel stands for."""
        return self.arrays[(over, key) if (over, key) in self.arrays else ("", key)]

    @property
    def num_states(self) -> int:
        """The chunks that keep states, repeated ones included."""
        return max(self.numbers.get("num_chunks", 0), self.counts.get("chunks", 0))

    @property
    def num_hubs(self) -> int:
        return self.counts.get("hubs", 0)


def plain_list(rows: int) -> WorkList:
    """That of rows without edges."""
    return WorkList({"items": rows}, {}, {})


def staged(array: np.ndarray, dtype: np.dtype, arena: Arena) -> np.ndarray:
    """A copy in an arena."""
    block = arena.take(len(array), dtype)
    block[:] = array
    return block


@dataclass(frozen=True)
class Launches:
    """What kernels of a walk are launched over, which tells whether rows are split, and how many
    items a tile has that is to be filled (1: none is)."""

    overs: frozenset[str]
    tile: int
    dtype: np.dtype


def work_list(pointers: np.ndarray, first: int, of: Launches, arena: Arena) -> WorkList:
    """That of rows from number `first` on, whose edges begin at `pointers` (int64, rows + 1)."""
    splits, degree = "hubs" in of.overs, np.diff(pointers)
    long = _NONE
    if splits and len(degree) and degree.max() > CHUNK:
        long = np.flatnonzero(degree > CHUNK)
    hubs, chunks = _chunks(pointers, degree, long, first)
    rows = _whole(pointers, degree, first, np.flatnonzero(degree <= CHUNK) if len(long) else None)
    if "items" in of.overs:
        return _list({"items": (chunks, rows)}, hubs, of, arena)
    return _list({"whole": (rows,), "chunks": (chunks,)}, hubs, of, arena)


def _whole(pointers: np.ndarray, degree: np.ndarray, first: int, some: np.ndarray | None) -> Items:
    """All rows, or some of them, longest first."""
    taken = longest_first(degree if some is None else degree[some])
    if some is not None:
        taken = some if taken is None else some[taken]
    if taken is None:
        return Items(np.arange(first, first + len(degree)), pointers[:-1], degree)
    return Items(taken + first, pointers[taken], degree[taken])


def chunk_list(row: int, low: int, high: int, chunks: int, of: Launches, arena: Arena) -> WorkList:
    """That of a part [low, high) of one row's edges; the row has so many chunks in all."""
    starts = np.arange(low, max(high, low), CHUNK, dtype=np.int64)
    items = Items(np.full(len(starts), row), starts, np.minimum(high - starts, CHUNK))
    hubs = Hubs(np.array([row]), np.array([0, chunks]), np.zeros(len(starts), np.int64))
    if "items" in of.overs:
        return _list({"items": (items,)}, hubs, of, arena)
    return _list({"whole": (), "chunks": (items,)}, hubs, of, arena)


def _chunks(
    pointers: np.ndarray, degree: np.ndarray, long: np.ndarray, first: int
) -> tuple[Hubs, Items]:
    """The chunks of long rows, by row and position."""
    pieces = -(-degree[long] // CHUNK)
    ptr = np.concatenate(([0], np.cumsum(pieces)))
    hub = np.repeat(np.arange(len(long)), pieces)
    row = long[hub]
    low = pointers[row] + (np.arange(len(hub)) - ptr[hub]) * CHUNK
    count = np.minimum(pointers[row + 1] - low, CHUNK)
    return Hubs(long + first, ptr, hub), Items(row + first, low, count)


def _list(
    lists: Mapping[str, tuple[Items, ...]], hubs: Hubs, of: Launches, arena: Arena
) -> WorkList:
    counts, arrays = {"hubs": len(hubs.rows)}, {}
    for over, parts in lists.items():
        for name, dtype in (("row", of.dtype), ("low", of.dtype), ("count", _INT32)):
            given = [getattr(part, name) for part in parts]
            repeats = (over, name) != ("chunks", "count")
            block = _filled(given, of.tile, dtype, arena, repeats)
            arrays[over, f"item_{name}"], counts[over] = block, len(block)
    shared = hubs.staged(counts.get("chunks", 0), arena)
    arrays |= {("", name): array for name, array in shared.items()}
    return WorkList(counts, arrays, {"num_chunks": len(hubs.of_chunk)})


def _filled(
    parts: list[np.ndarray], tile: int, dtype: np.dtype, arena: Arena, repeats: bool
) -> np.ndarray:
    """Arrays one after another in an arena; the last element, or 0, fills the last tile."""
    total = sum(map(len, parts))
    block = arena.take(-(-total // tile) * tile, dtype)
    start = 0
    for part in parts:
        block[start : start + len(part)] = part
        start += len(part)
    block[total:] = block[total - 1 : total] if total and repeats else 0
    return block


def longest_first(degree: np.ndarray) -> np.ndarray | None:
    """The positions that sort degrees from the largest on, equal ones in their order; None where
    all are equal."""
    if not len(degree) or degree.min() == degree.max():
        return None
    most = int(degree.max())
    key = (most - degree).astype(np.uint16 if most < 2**16 else np.int64)
    return np.argsort(key, kind="stable")
