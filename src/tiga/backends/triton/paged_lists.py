"""The work list of one page: the same items as in memory, of the page's rows alone.

What an item computes depends on its own edges and on the tile: which items share a tile, or a
launch, does not matter. Positions of edges and numbers of rows are those of the whole graph.

Kernels take places of a tile beyond the last item for row 0, which a page need not have. So the
last item is repeated until the tile is full: what is stored twice has the same bits.
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

    def filling(self, tile: int) -> "Items":
        """With the last one repeated until tiles of so many are full."""
        places = np.minimum(np.arange(-(-len(self.row) // tile) * tile), len(self.row) - 1)
        return Items(self.row[places], self.low[places], self.count[places])

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
    overs = of.overs
    splits = "hubs" in overs
    degree = np.diff(pointers)
    long = np.flatnonzero(degree > CHUNK) if splits else np.empty(0, np.int64)
    whole = np.flatnonzero(degree <= CHUNK) if splits else np.arange(len(degree))
    whole = whole[longest_first(degree[whole])]
    rows = Items(whole + first, pointers[whole], degree[whole])
    hubs, chunks = _chunks(pointers, degree, long, first)
    lists = {"items": rows.after(chunks)} if "items" in overs else {"whole": rows, "chunks": chunks}
    return _list(lists, hubs, of, arena)


def chunk_list(row: int, low: int, high: int, chunks: int, of: Launches, arena: Arena) -> WorkList:
    """That of a part [low, high) of one row's edges; the row has so many chunks in all."""
    starts = np.arange(low, max(high, low), CHUNK, dtype=np.int64)
    items = Items(np.full(len(starts), row), starts, np.minimum(high - starts, CHUNK))
    hubs = Hubs(np.array([row]), np.array([0, chunks]), np.zeros(len(starts), np.int64))
    none = Items(*(np.empty(0, np.int64) for _ in ITEM_ARRAYS))
    lists = {"items": items} if "items" in of.overs else {"whole": none, "chunks": items}
    return _list(lists, hubs, of, arena)


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


def _list(lists: dict[str, Items], hubs: Hubs, of: Launches, arena: Arena) -> WorkList:
    full = {over: items.filling(of.tile) for over, items in lists.items()}
    counts = {over: len(items.row) for over, items in full.items()} | {"hubs": len(hubs.rows)}
    arrays = {
        (over, name): array
        for over, items in full.items()
        for name, array in items.staged(of.dtype, arena).items()
    }
    shared = hubs.staged(counts.get("chunks", 0), arena)
    arrays |= {("", name): array for name, array in shared.items()}
    return WorkList(counts, arrays, {"num_chunks": len(hubs.of_chunk)})


def longest_first(degree: np.ndarray) -> np.ndarray:
    """The positions that sort degrees from the largest on; equal ones in their order."""
    if not len(degree) or degree.min() == degree.max():
        return np.arange(len(degree))
    most = int(degree.max())
    key = (most - degree).astype(np.uint16 if most < 2**16 else np.int64)
    return np.argsort(key, kind="stable")
