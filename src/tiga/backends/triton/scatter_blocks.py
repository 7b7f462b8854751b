"""How a walk with sums at the far ends of its edges is cut into blocks, and what each block adds.

A block is a run of items of the walk's work list. Its messages lie in the order of its items; those
of a far entity are added in that order, in pieces, and blocks add one after another. All of it
depends on the graph and on how many messages fit a block.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from tiga.backends.triton.scan_tiles import WholeRows
from tiga.backends.triton.scatters import PIECE, PIECES
from tiga.backends.triton.topology import KEY, DeviceWalk, starts, steps
from tiga.relations.snapshot import Snapshot
from tiga.runtime.platform import IndexArrays, Platform

CACHED_BYTES = 32 * 2**20
"""Messages of a block, at most: they are read again out of the cache."""

LEAST_BYTES = 4 * 2**20
"""Messages of a block below which launches would take longer than what they do."""

BLOCKS = 24
"""Blocks of a walk, at least, where that leaves them large enough: messages of a block then take
4% of what those of all edges would."""


@dataclass(frozen=True)
class MessageBlock:
    """Items of the walk with so many edges, and the pieces and far entities that they add to;
    `spilled` pieces come first that are not all of their entity's."""

    items: tuple[int, int]
    edges: int
    pieces: tuple[int, int]
    spilled: int
    hubs: tuple[int, int]

    def count(self, over: str) -> int:
        """How many entities a kernel that adds its messages is launched over."""
        low, high = self.pieces if over == PIECES else self.hubs
        return high - low

    @property
    def numbers(self) -> dict[str, int]:
        """What parameters of these kernels stand for."""
        first, stop = self.pieces
        names = {"first_piece": first, "stop_piece": stop, "spilled": self.spilled}
        return {**names, "first_hub": self.hubs[0]}


@dataclass(frozen=True, eq=False)
class FarBlocks:
    """The blocks of a walk. `item_slot`: where in its block an item's first message lies; `order`:
    those places by far entity; `piece_row`, `piece_low`: the entity of a piece, and its first place
    in `order`; `hub_row`, `hub_low`, `hub_high`: entities of several pieces, and those."""

    item_slot: Any
    order: Any
    piece_row: Any
    piece_low: Any
    hub_row: Any
    hub_low: Any
    hub_high: Any
    num_chunks: int
    blocks: tuple[MessageBlock, ...]

    @property
    def slots(self) -> int:
        """Messages of a block, at most."""
        return max((block.edges for block in self.blocks), default=0)

    @property
    def spilled(self) -> int:
        """Pieces of a block that are stored by themselves, at most."""
        return max((block.spilled for block in self.blocks), default=0)

    def marks(self, size: int) -> int:
        """Runs of so many edges of the items of a block, at most."""
        items = max((b.items[1] - b.items[0] for b in self.blocks), default=0)
        return self.slots // size + items + 1

    def of(self, over: str) -> tuple[MessageBlock, ...]:
        """The blocks of what a kernel is launched over, by its own item numbers."""
        n = self.num_chunks
        if over == "chunks":
            return tuple(block for block in self.blocks if block.items[0] < n)
        rest = [block for block in self.blocks if block.items[0] >= n]
        return tuple(replace(b, items=(b.items[0] - n, b.items[1] - n)) for b in rest)

    def array(self, key: str, over: str) -> Any:
        """The array that a parameter of a kernel stands for."""
        array = getattr(self, key)
        return array[self.num_chunks :] if key == "item_slot" and over == "whole" else array

    def parts(self) -> dict[str, list[Any]]:
        """Its arrays, by the part of a graph that they count to."""
        arrays = [self.item_slot, self.order, self.piece_row, self.piece_low]
        return {"plan": [*arrays, self.hub_row, self.hub_low, self.hub_high]}

    @property
    def plan_bytes(self) -> int:
        """Bytes of all arrays."""
        return sum(array.nbytes for array in self.parts()["plan"])


def slots_for(num_edges: int, message_bytes: int) -> int:
    """Messages of so many bytes that a block holds."""
    most, least = (max(1, n // message_bytes) for n in (CACHED_BYTES, LEAST_BYTES))
    return min(most, max(least, -(-num_edges // BLOCKS)))


def far_blocks(
    topology: Snapshot, plan: DeviceWalk | WholeRows, side: str, slots: int, platform: Platform
) -> FarBlocks:
    """The blocks of a walk of about so many messages, built once."""
    walk = plan if isinstance(plan, DeviceWalk) else plan.walk
    key = (KEY, side, platform.name, "far", slots, isinstance(plan, WholeRows))
    num_far = topology.num_src if side == "dst" else topology.num_dst
    return topology.keep(key, lambda: _Cut(platform, plan, walk, num_far, slots).blocks())


@dataclass
class _Cut:
    """Cuts a walk into blocks."""

    platform: Platform
    plan: DeviceWalk | WholeRows
    walk: DeviceWalk
    num_far: int
    slots: int

    @property
    def arrays(self) -> IndexArrays:
        return self.platform.arrays

    def blocks(self) -> FarBlocks:
        arrays, plan = self.arrays, self.plan
        begins = starts(arrays, plan.item_count)
        bounds = self._bounds(begins)
        first = self.platform.sent(np.array(bounds, np.int64))
        block_of = arrays.rows(first, bounds[-1])
        bases = begins[first]
        item = arrays.rows(begins, self.walk.num_edges)
        within = arrays.positions(begins, self.walk.num_edges) - begins[item]
        far = arrays.cast(self.walk.index[arrays.cast(plan.item_low[item], 64) + within], 64)
        slot = begins[item] + within - bases[block_of[item]]
        keys = block_of[item] * self.num_far + far
        order = arrays.order(keys, max(1, (len(bounds) - 1) * self.num_far))
        return self._added(bounds, begins, begins[:-1] - bases[block_of], keys[order], slot[order])

    def _bounds(self, begins: Any) -> list[int]:
        """The first item of each block, and the end: whole chunks or whole rows, as many as begin
        within so many messages."""
        arrays, found = self.arrays, [0]
        count, chunks = begins.shape[0] - 1, self.plan.num_chunks
        for low, high in ((0, chunks), (chunks, count)):
            if low == high:
                continue
            base, end = arrays.numbers([begins[low : low + 1], begins[high : high + 1]])
            wanted = arrays.positions(begins, -(-(end - base) // self.slots)) * self.slots + base
            cuts = arrays.before(begins[low:high], wanted) + low
            found += [*_host(arrays, cuts), high]
        return sorted(set(found))

    def _added(
        self, bounds: Sequence[int], begins: Any, item_slot: Any, keys: Any, slot: Any
    ) -> FarBlocks:
        """What blocks add, by messages sorted by block and far entity."""
        arrays, bits, count = self.arrays, 8 * self.walk.index.itemsize, len(bounds) - 1
        change = arrays.where(keys[1:] != keys[:-1]) + 1
        total = keys.shape[0]
        low = arrays.join([arrays.full(change, min(total, 1), 0), change])
        length = steps(arrays.join([low, arrays.full(low, 1, total)]))
        block = keys[low] // self.num_far if total else low
        pieces = (length + (PIECE - 1)) // PIECE
        # Of a block, entities of several pieces come first.
        order = arrays.order(2 * block + pieces * (pieces == 1), 2 * count + 2)
        row = (keys[low] - block * self.num_far)[order] if total else low
        low, length, block, pieces = low[order], length[order], block[order], pieces[order]
        begin, piece = starts(arrays, length), starts(arrays, pieces)
        segment = arrays.rows(begin, total)
        place = low[segment] + arrays.positions(begin, total) - begin[segment]
        (num_pieces,) = arrays.numbers([piece[-1:]])
        of_piece = arrays.rows(piece, num_pieces)
        ordinal = arrays.positions(piece, num_pieces) - piece[of_piece]
        ends = arrays.full(begin, 1, total)
        hub = arrays.where(pieces > 1)
        return FarBlocks(
            item_slot=arrays.cast(item_slot, bits),
            order=arrays.cast(slot[place], bits),
            piece_row=arrays.cast(row[of_piece], bits),
            piece_low=arrays.cast(arrays.join([begin[of_piece] + ordinal * PIECE, ends]), bits),
            hub_row=arrays.cast(row[hub], bits),
            hub_low=arrays.cast(piece[:-1][hub], bits),
            hub_high=arrays.cast(piece[1:][hub], bits),
            num_chunks=self.plan.num_chunks,
            blocks=self._numbers(bounds, begins, block, piece, hub),
        )

    def _numbers(
        self, bounds: Sequence[int], begins: Any, block: Any, piece: Any, hub: Any
    ) -> tuple[MessageBlock, ...]:
        """The blocks, on the host; `block` is that of each entity that blocks add to."""
        arrays, count = self.arrays, len(bounds) - 1
        numbers = arrays.positions(begins, count + 1)
        entity, hubs = arrays.before(block, numbers), arrays.before(block[hub], numbers)
        spilled = piece[entity[:-1] + steps(hubs)] - piece[entity[:-1]]
        ends = begins[self.platform.sent(np.array(bounds, np.int64))]
        found = [_host(arrays, x) for x in (steps(ends), piece[entity], spilled, hubs)]
        edges, pieces, few, hubs_of = found
        return tuple(
            MessageBlock(*parts)
            for parts in zip(
                pairwise(bounds), edges, pairwise(pieces), few, pairwise(hubs_of), strict=True
            )
        )


def _host(arrays: IndexArrays, x: Any) -> list[int]:
    """A short array's numbers."""
    count = x.shape[0]
    return arrays.numbers([x[i : i + 1] for i in range(count)]) if count else []
