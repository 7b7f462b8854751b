"""The work list of one page: the same items as in memory, of the page's rows alone.

What an item computes depends on its own edges and on the tile: which items share a tile, or a
launch, does not matter. Positions of edges and numbers of rows are those of the whole graph.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tiga.backends.triton.topology import CHUNK
from tiga.runtime.arena import Arena

_INT32, _INT64 = np.dtype(np.int32), np.dtype(np.int64)

ITEM_ARRAYS = ("item_row", "item_low", "item_count")


@dataclass(frozen=True)
class Items:
    """Rows, or chunks of rows: the number of each, its first edge and how many it has."""

    row: np.ndarray
    low: np.ndarray
    count: np.ndarray

    def after(self, other: "Items") -> "Items":
        """Others, then these."""
        pairs = ((other.row, self.row), (other.low, self.low), (other.count, self.count))
        return Items(*(np.concatenate(pair) for pair in pairs))

    def staged(self, dtype: np.dtype, arena: Arena) -> dict[str, np.ndarray]:
        """The arrays that kernels read, by parameter."""
        columns = zip(ITEM_ARRAYS, (self.row, self.low, self.count), strict=True)
        kinds = {"item_count": _INT32}
        return {name: staged(a, kinds.get(name, dtype), arena) for name, a in columns}


@dataclass(frozen=True)
class Hubs:
    """Split rows: the number of each, where its chunks begin among all, and each chunk's row."""

    rows: np.ndarray
    ptr: np.ndarray
    of_chunk: np.ndarray

    def staged(self, arena: Arena) -> dict[str, np.ndarray]:
        """The arrays that kernels read, by parameter."""
        named = {"hub_rows": self.rows, "hub_ptr": self.ptr, "chunk_hub": self.of_chunk}
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
    def num_chunks(self) -> int:
        return self.numbers.get("num_chunks", 0)

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


def work_list(
    pointers: np.ndarray, first: int, overs: frozenset[str], dtype: np.dtype, arena: Arena
) -> WorkList:
    """That of rows from number `first` on, whose edges begin at `pointers` (int64, rows + 1).

    `overs` are what the kernels of the walk are launched over: they tell whether rows are split.
    """
    splits = "hubs" in overs
    degree = np.diff(pointers)
    long = np.flatnonzero(degree > CHUNK) if splits else np.empty(0, np.int64)
    whole = np.flatnonzero(degree <= CHUNK) if splits else np.arange(len(degree))
    whole = whole[longest_first(degree[whole])]
    rows = Items(whole + first, pointers[whole], degree[whole])
    hubs, chunks = _chunks(pointers, degree, long, first)
    lists = {"items": rows.after(chunks)} if "items" in overs else {"whole": rows, "chunks": chunks}
    return _list(lists, hubs, dtype, arena)


def chunk_list(
    row: int, low: int, high: int, chunks: int, overs: frozenset[str], dtype: np.dtype, arena: Arena
) -> WorkList:
    """That of a part [low, high) of one row's edges; the row has so many chunks in all."""
    starts = np.arange(low, max(high, low), CHUNK, dtype=np.int64)
    items = Items(np.full(len(starts), row), starts, np.minimum(high - starts, CHUNK))
    hubs = Hubs(np.array([row]), np.array([0, chunks]), np.zeros(len(starts), np.int64))
    none = Items(*(np.empty(0, np.int64) for _ in ITEM_ARRAYS))
    lists = {"items": items} if "items" in overs else {"whole": none, "chunks": items}
    return _list(lists, hubs, dtype, arena)


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


def _list(lists: dict[str, Items], hubs: Hubs, dtype: np.dtype, arena: Arena) -> WorkList:
    counts = {over: len(items.row) for over, items in lists.items()} | {"hubs": len(hubs.rows)}
    arrays = {
        (over, name): array
        for over, items in lists.items()
        for name, array in items.staged(dtype, arena).items()
    }
    arrays |= {("", name): array for name, array in hubs.staged(arena).items()}
    return WorkList(counts, arrays, {"num_chunks": len(hubs.of_chunk)})


def longest_first(degree: np.ndarray) -> np.ndarray:
    """The positions that sort degrees from the largest on; equal ones in their order."""
    if not len(degree) or degree.min() == degree.max():
        return np.arange(len(degree))
    most = int(degree.max())
    key = (most - degree).astype(np.uint16 if most < 2**16 else np.int64)
    return np.argsort(key, kind="stable")
