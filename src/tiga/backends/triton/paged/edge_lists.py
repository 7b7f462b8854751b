"""The work list of one page for tiles of consecutive edges: the tiles of the whole graph.

A page begins with the tile that its first edge lies in, whose edges before that belong to rows of
the page before: they are read, and leave nothing. Positions of edges are counted from there.
"""

from dataclasses import dataclass

import numpy as np

from tiga.backends.triton.edge_tiles import WORD
from tiga.backends.triton.paged.lists import WorkList, staged
from tiga.runtime.arena import Arena

_INT32, _INT64 = np.dtype(np.int32), np.dtype(np.int64)


@dataclass(frozen=True)
class Crossing:
    """Rows that cross tiles: which, where their pieces begin among all, and where a tile's first
    and last row leave theirs (-1: nowhere)."""

    rows: np.ndarray
    ptr: np.ndarray
    head: np.ndarray
    tail: np.ndarray

    @staticmethod
    def of(
        rows: np.ndarray, low: np.ndarray, high: np.ndarray, size: int, tiles: int
    ) -> "Crossing":
        """Those of rows that have edges."""
        first, last = low // size, (high - 1) // size
        crosses = np.flatnonzero(first != last)
        pieces = last[crosses] - first[crosses] + 1
        ptr = np.concatenate(([0], np.cumsum(pieces)))
        hub = np.repeat(np.arange(len(crosses)), pieces)
        slot = np.arange(len(hub))
        ordinal = slot - ptr[hub]
        tile, ends = first[crosses][hub] + ordinal, ordinal == pieces[hub] - 1
        head, tail = np.full(tiles, -1, np.int32), np.full(tiles, -1, np.int32)
        head[tile[ends]], tail[tile[~ends]] = slot[ends], slot[~ends]
        return Crossing(rows[crosses], ptr, head, tail)


def edge_list(
    pointers: np.ndarray, first: int, size: int, dtype: np.dtype, arena: Arena
) -> WorkList:
    """That of rows from number `first` on, whose edges begin at `pointers` (int64, rows + 1),
    counted from the first tile of `size` edges on."""
    low, high, end = pointers[:-1], pointers[1:], int(pointers[-1])
    tiles = -(-end // size) if end > pointers[0] else 0
    full, empty = np.flatnonzero(high > low), np.flatnonzero(high == low)
    crossing = Crossing.of(full + first, low[full], high[full], size, tiles)
    before = np.searchsorted(low[full], np.arange(tiles) * size) - 1
    marks = np.append(low[full], pointers[-1:])
    arrays = {
        "heads": staged(_words(marks, (tiles + 1) * size), _INT32, arena),
        "full_rows": staged(full + first, dtype, arena),
        "full_before": staged(before, _INT64, arena),
        "empty_rows": staged(empty + first, dtype, arena),
        "head_slot": staged(crossing.head, _INT32, arena),
        "tail_slot": staged(crossing.tail, _INT32, arena),
        "hub_rows": staged(crossing.rows, _INT64, arena),
        "hub_ptr": staged(crossing.ptr, _INT64, arena),
    }
    counts = {"tiles": tiles + -(-len(empty) // size), "hubs": len(crossing.rows)}
    numbers = {
        "num_chunks": int(crossing.ptr[-1]), "num_edges": end, "num_tiles": tiles,
        "num_empty": len(empty),
    }  # fmt: skip
    return WorkList(counts, {("", name): array for name, array in arrays.items()}, numbers)


def _words(positions: np.ndarray, count: int) -> np.ndarray:
    """int32 words with the bits at these positions set."""
    bits = np.zeros(-(-count // WORD) * WORD, np.bool_)
    bits[positions] = True
    return np.packbits(bits, bitorder="little").view(np.int32)


def edge_list_bytes(size: int, word: int, state_bytes: int) -> tuple[int, int]:
    """Bytes per row and per edge of the work list, and of pieces that take `state_bytes` each: a
    row that crosses tiles leaves at most two in each."""
    per_tile = 8 + 8 + 16 + 2 * state_bytes
    return 2 * word, 1 + -(-per_tile // size)
