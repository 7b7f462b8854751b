"""Tiles of consecutive edges: which rows end in each, and how rows that cross tiles are joined."""

from dataclasses import dataclass, replace
from typing import Any

from tiga.backends.triton.layout import Tile
from tiga.backends.triton.topology import (
    KEY,
    DeviceWalk,
    host_walk,
    is_planned_here,
    sent,
    starts,
)
from tiga.relations.snapshot import Snapshot
from tiga.runtime.host_arrays import HOST_ARRAYS
from tiga.runtime.platform import IndexArrays, Platform

WORD = 32
"""Edges whose marks share a word."""


@dataclass(frozen=True)
class EdgeTile(Tile):
    """What one program computes at a time: `edges` consecutive edges, whatever their rows."""

    def __str__(self) -> str:
        return f"{self.edges} edges in their order, {self.warps} warps"


@dataclass(frozen=True, eq=False)
class EdgeTiles:
    """A walk cut into tiles of `size` edges.

    `heads` (int32 words): one bit per edge, set at the first edge of every row, and after the last
    edge. `full_rows`: the rows that have edges; `full_before` (int64 `[num_tiles]`): how many of
    them begin before a tile, less one; `empty_rows`: the other rows. A row that crosses tiles
    leaves a piece in each: `hub_rows` names such rows, `hub_ptr` their pieces, `head_slot` and
    `tail_slot` where a tile's first and last row leave theirs (-1: nowhere).
    """

    walk: DeviceWalk
    size: int
    heads: Any
    full_rows: Any
    full_before: Any
    empty_rows: Any
    head_slot: Any
    tail_slot: Any
    hub_rows: Any
    hub_ptr: Any
    num_chunks: int

    @property
    def num_tiles(self) -> int:
        return self.head_slot.shape[0]

    @property
    def num_hubs(self) -> int:
        return self.hub_rows.shape[0]

    def parts(self) -> dict[str, list[Any]]:
        """Its arrays, by the part of a graph that they count to."""
        return {"plan": [self.heads, self.full_rows, self.full_before, self.empty_rows,
                         self.head_slot, self.tail_slot, self.hub_rows, self.hub_ptr]}  # fmt: skip

    @property
    def plan_bytes(self) -> int:
        """Bytes beside those of the walk."""
        return sum(array.nbytes for array in self.parts()["plan"])

    def count(self, over: str) -> int:
        """How many entities a kernel is launched over."""
        programs = self.num_tiles + -(-self.empty_rows.shape[0] // self.size)
        return {"tiles": programs, "hubs": self.num_hubs}.get(over, 0)

    @property
    def numbers(self) -> dict[str, int]:
        """The numbers that parameters of kernels stand for."""
        return {
            "num_edges": self.walk.num_edges,
            "num_tiles": self.num_tiles,
            "num_empty": self.empty_rows.shape[0],
        }

    def array(self, key: str, over: str) -> Any:
        """The array that a parameter of a kernel stands for."""
        return getattr(self, key) if hasattr(self, key) else self.walk.array(key, over)


def edge_tiles(
    topology: Snapshot, walk: DeviceWalk, side: str, size: int, platform: Platform
) -> EdgeTiles:
    """The tiles of a walk, built once."""
    key = (KEY, side, platform.name, size)
    return topology.keep(key, lambda: _made(topology, walk, side, size, platform))


def _made(
    topology: Snapshot, walk: DeviceWalk, side: str, size: int, platform: Platform
) -> EdgeTiles:
    if not is_planned_here(topology):
        return _tiles(platform.arrays, walk, size)
    return replace(sent(_tiles(HOST_ARRAYS, host_walk(topology, side), size), platform), walk=walk)


def _tiles(arrays: IndexArrays, walk: DeviceWalk, size: int) -> EdgeTiles:
    row_ptr = walk.row_ptr
    low, high = row_ptr[:-1], row_ptr[1:]
    tiles, bits = -(-walk.num_edges // size), 8 * walk.index.itemsize
    full_rows = arrays.where(high > low)
    begins = low[full_rows]
    bounds = arrays.positions(row_ptr, tiles) * size
    first, last = low // size, (high - 1) // size
    hub_rows = arrays.where((high > low) & (first != last))
    pieces = (last - first)[hub_rows] + 1
    hub_ptr = starts(arrays, pieces)
    (count,) = arrays.numbers([hub_ptr[-1:]])
    piece_hub = arrays.rows(hub_ptr, count)
    slot = arrays.positions(row_ptr, count)
    ordinal = slot - hub_ptr[piece_hub]
    tile, ends = first[hub_rows][piece_hub] + ordinal, ordinal == pieces[piece_hub] - 1
    return EdgeTiles(
        walk=walk,
        size=size,
        heads=arrays.bits(arrays.join([begins, row_ptr[-1:]]), (tiles + 1) * size),
        full_rows=arrays.cast(full_rows, bits),
        full_before=arrays.before(begins, bounds) - 1,
        empty_rows=arrays.cast(arrays.where(high == low), bits),
        head_slot=_slots(arrays, tiles, tile, slot, ends),
        tail_slot=_slots(arrays, tiles, tile, slot, ordinal < pieces[piece_hub] - 1),
        hub_rows=hub_rows,
        hub_ptr=hub_ptr,
        num_chunks=count,
    )


def _slots(arrays: IndexArrays, tiles: int, tile: Any, slot: Any, chosen: Any) -> Any:
    """Per tile the slot of the chosen piece in it, -1 where there is none, in int32."""
    which = arrays.where(chosen)
    slots = arrays.put(arrays.full(tile, tiles, -1), tile[which], slot[which])
    return arrays.cast(slots, 32)
