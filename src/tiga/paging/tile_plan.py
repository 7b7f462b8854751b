"""Cut a walk into blocks of rows and tiles of their other ends, and predict what they read."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from tiga.paging.cost import SLACK, bytes_in_files, bytes_staged
from tiga.paging.plan import WORTH, Limits, RowBytes
from tiga.paging.span import Span, Spans
from tiga.paging.stage import WORD, Stage
from tiga.paging.tiles import COUNT, FASTER, Block, Tile, TilePhases, Tiling
from tiga.relations.walk import HUB_CHUNK, STRETCH
from tiga.runtime.arena import slack
from tiga.runtime.tiers import size_text
from tiga.types import OPPOSITE

SHARES = (0.4, 0.3, 0.22, 0.16, 0.12, 0.08, 0.05, 0.03, 0.015, 0.007)
"""Parts of the budget that one tile may take, of which the best is found."""

CHUNK_LIST = 48
"""Bytes of a chunk of a split row in lists."""


@dataclass(frozen=True)
class TilePlanner:
    """Cuts one walk into blocks and tiles."""

    stage: Stage
    limits: Limits

    @cached_property
    def arrays(self) -> TilePhases:
        return TilePhases(self.stage)

    def plan(self) -> Tiling | None:
        """The cheapest tiling; None where none fits."""
        sizes = sorted({int(self.limits.nbytes * share) for share in SHARES}, reverse=True)
        found = [tiling for nbytes in sizes if (tiling := self.with_tiles(nbytes)) is not None]
        return min(found, key=lambda tiling: tiling.cost, default=None)

    # bytes

    @cached_property
    def _row_bytes(self) -> int:
        """Bytes of a row in a block."""
        held = bytes_staged(self.stage.homes, self.arrays.rows)
        degrees = WORD * len(self.arrays.degrees)
        return WORD + COUNT + sum(self.arrays.state_bytes) + held + degrees

    @cached_property
    def _edge_bytes(self) -> float:
        """Bytes of an edge in a block. A split row has a chunk for so many edges, and may have one
        that is not full; sums have a place for every stretch of edges."""
        stage, word = self.stage, self.stage.walk.dtype.itemsize
        numbers = word * bool(stage.edge_arrays) if stage.walk.edge_id is not None else 0
        own = 0 if numbers else bytes_staged(stage.homes, stage.edge_arrays)
        states = sum(self.arrays.state_bytes)
        chunk = 2 * states + COUNT + CHUNK_LIST
        return word + numbers + own + 2 * chunk / HUB_CHUNK + states / STRETCH

    def _tile_bytes(self, phase: int) -> tuple[int, int]:
        """Bytes of one of the other ends, and of an edge, in a tile."""
        homes, arrays = self.stage.homes, self.arrays
        degrees = WORD * len(arrays.phases[phase].other_degrees)
        others = sum(homes[n].row_bytes for n in arrays.others(phase)) + degrees
        return others, sum(homes[n].row_bytes for n in arrays.edges(phase))

    # cuts

    @cached_property
    def _grid(self) -> tuple[np.ndarray, np.ndarray]:
        """Other ends at which tiles may be cut, and the edge number at which each starts."""
        graph, numbered = self.stage.graph, self.stage.walk.edge_id is not None
        other = graph.walks[OPPOSITE[self.stage.walk.side]]
        firsts = other.tasks[:, 0]
        return firsts, other.task_edges if numbered else np.zeros(len(firsts), np.int64)

    def _tiles(self, phase: int, most: int) -> tuple[Tile, ...] | None:
        """Those of a phase, of at most so many bytes; one if nothing is read from them."""
        firsts, numbers = self._grid
        each, edge = self._tile_bytes(phase)
        ends = firsts * each + numbers * edge
        if not (each or edge):
            return (Tile(0, self.stage.others, (0, self.stage.walk.num_edges)),)
        cuts = _even_cuts(ends, most)
        if cuts is None:
            return None
        return tuple(
            Tile(int(firsts[a]), int(firsts[b]), (int(numbers[a]), int(numbers[b])))
            for a, b in pairwise(cuts)
        )

    def with_tiles(self, most: int) -> Tiling | None:
        """The tiling with tiles of at most so many bytes."""
        room = most - self._around(most)
        tiles = [self._tiles(p, room) for p in range(len(self.stage.program.phases))]
        finish = self._finish_pages(most)
        if finish is None or any(found is None for found in tiles):
            return None
        phases = [found for found in tiles if found is not None]
        arenas = 1 + bool(self.limits.depth)
        arena = max(self._arena_bytes(phases), max((span.nbytes for span in finish), default=0))
        blocks = self._blocks(self.limits.nbytes - arenas * arena, phases, finish)
        return self._priced(blocks, arenas, arena) if blocks else None

    def _around(self, nbytes: int) -> int:
        return SLACK + slack(nbytes, self.stage.arrays)

    def _arena_bytes(self, phases: Iterable[tuple[Tile, ...]]) -> int:
        """Bytes of the largest tile."""
        most = 0
        for phase, tiles in enumerate(phases):
            each, edge = self._tile_bytes(phase)
            for tile in tiles if each or edge else ():
                most = max(most, (tile.count + 1) * each + tile.edges * edge)
        return most + self._around(most)

    def _finish_pages(self, most: int) -> tuple[Span, ...] | None:
        """All rows, in pages of whole tasks."""
        firsts, row = self.stage.walk.tasks[:, 0], self._finish_row
        cuts = _cuts(firsts, row.most(min(most, self.limits.target)), spare=row.most(most))
        if cuts is None:
            return None
        return tuple(row.span(a, b, (int(firsts[a]), int(firsts[b]))) for a, b in pairwise(cuts))

    @cached_property
    def _finish_row(self) -> RowBytes:
        stage, roles, stores = self.stage, self.arrays.finish, self.stage.program.stores
        rows = roles.rows.difference(self.arrays.rows)
        degrees = WORD * len(roles.row_degrees.difference(self.arrays.degrees))
        read, written = (bytes_in_files(stage.homes, nodes) for nodes in (rows, stores))
        staged = bytes_staged(stage.homes, (*rows, *stores)) + degrees
        return RowBytes(staged, read + degrees, written, stage.arrays)

    def _blocks(
        self, room: int, phases: list[tuple[Tile, ...]], finish: tuple[Span, ...]
    ) -> tuple[Block, ...] | None:
        """Blocks of whole pages of rows, of at most so many bytes."""
        walk = self.stage.walk
        tasks = np.array([0, *(span.last for span in finish)])
        firsts, edges = walk.tasks[tasks, 0], walk.task_edges[tasks]
        ends = firsts * self._row_bytes + np.ceil(edges * self._edge_bytes).astype(np.int64)
        cuts = _even_cuts(ends, room - self._around(room) - self._row_bytes)
        if cuts is None:
            return None
        return tuple(
            Block(
                int(tasks[a]), int(tasks[b]), (int(firsts[a]), int(firsts[b])),
                (int(edges[a]), int(edges[b])),
                tuple(self._named(tasks[a], tasks[b], tiles) for tiles in phases), finish[a:b],
            )
            for a, b in pairwise(cuts)
        )  # fmt: skip

    def _named(self, first: int, last: int, tiles: tuple[Tile, ...]) -> tuple[Tile, ...]:
        """Tiles in which some edge of these tasks may end."""
        part = self.stage.walk.tasks[first:last]
        part = part[part[:, 2] > part[:, 1]]
        if not len(part):
            return ()
        low, high = int(part[:, 1].min()), int(part[:, 2].max())
        return tuple(tile for tile in tiles if tile.low < high and tile.high > low)

    # prices

    def _priced(self, blocks: tuple[Block, ...], arenas: int, arena: int) -> Tiling:
        read = sum(self._held(block) for block in blocks)
        read += sum(self._gone_by(block, block is blocks[0]) for block in blocks)
        written = sum(map(self._written, blocks))
        passed = sum(map(self._passed, blocks))
        beside = max(map(self._block_bytes, blocks))
        stored = self.stage.file_bytes
        return Tiling(blocks, arenas, arena, beside, read, written, passed, stored)

    def _block_bytes(self, block: Block) -> int:
        rows, edges = (high - low for low, high in (block.rows, block.edges))
        nbytes = (rows + 1) * self._row_bytes + int(np.ceil(edges * self._edge_bytes))
        return nbytes + self._around(nbytes)

    def _held(self, block: Block) -> int:
        """Bytes read of rows and their edges."""
        stage, arrays, word = self.stage, self.arrays, self.stage.walk.dtype.itemsize
        rows, edges = (high - low for low, high in (block.rows, block.edges))
        read = (rows + 1) * WORD * (1 + len(arrays.degrees))
        read += rows * bytes_in_files(stage.homes, arrays.rows)
        if stage.walk.edge_id is not None:
            edge = word * (1 + bool(stage.edge_arrays))
        else:
            reads = (n for n in stage.edge_arrays if n not in stage.edge_stores)
            edge = word + bytes_in_files(stage.homes, reads)
        return read + edges * edge + sum(span.read for span in block.finish)

    def _gone_by(self, block: Block, is_first: bool) -> int:
        """Bytes read of tiles."""
        homes, arrays, read = self.stage.homes, self.arrays, 0
        for phase, tiles in enumerate(block.tiles):
            others = bytes_in_files(homes, arrays.others(phase))
            others += WORD * len(arrays.phases[phase].other_degrees)
            edge = bytes_in_files(homes, arrays.edge_reads(phase))
            edge += 0 if is_first else bytes_in_files(homes, arrays.edge_stores(phase))
            read += sum(tile.count * others + tile.edges * edge for tile in tiles)
        return read

    def _written(self, block: Block) -> int:
        """Bytes written: values of rows, and of edges by tiles or all at once."""
        stage, written = self.stage, sum(span.written for span in block.finish)
        if stage.walk.edge_id is None:
            edges = block.edges[1] - block.edges[0]
            return written + edges * bytes_in_files(stage.homes, stage.edge_stores)
        for phase, tiles in enumerate(block.tiles):
            edge = bytes_in_files(stage.homes, self.arrays.edge_stores(phase))
            written += sum(tile.edges * edge for tile in tiles)
        return written

    def _passed(self, block: Block) -> int:
        """Bytes of memory that each tile goes by: the counts of all rows, a line of the edges of
        each, and the states of those that have edges in it."""
        rows, edges = (high - low for low, high in (block.rows, block.edges))
        line = min(64, self.stage.walk.dtype.itemsize * edges // max(1, rows))
        passed = 0.0
        for tiles, state in zip(block.tiles, self.arrays.state_bytes, strict=True):
            visits = max(1, rows * len(tiles))
            touched = visits * -float(np.expm1(-edges / visits))
            passed += visits * (WORD + COUNT + line) + 2 * touched * state
        return int(passed)


def _cuts(ends: np.ndarray, most: int, spare: int = 0) -> list[int] | None:
    """Positions in ascending `ends` that are at most `most` apart, as few as there may be: where
    two that are neighbours are further, they may be up to `spare`; None if they are not."""
    found, at, last = [0], 0, len(ends) - 1
    while at < last:
        end = int(np.searchsorted(ends, ends[at] + most, side="right")) - 1
        end = min(max(end, at + 1), last)
        if ends[end] - ends[at] > max(most, spare):
            return None
        at = end
        found.append(at)
    return found


def _even_cuts(ends: np.ndarray, most: int) -> list[int] | None:
    """The same, about equally far apart: as many take less memory then."""
    cuts = _cuts(ends, most)
    if cuts is None or len(cuts) < 3:
        return cuts
    even = int(ends[-1] - ends[0]) // (len(cuts) - 1) + int(np.diff(ends).max())
    again = _cuts(ends, min(even, most))
    return again if again is not None and len(again) == len(cuts) else cuts


def plan_tiles(stage: Stage, limits: Limits, spans: Spans) -> Tiling | None:
    """The tiling of a walk that may go by tiles, if it costs less than its pages do."""
    if spans.read <= WORTH * stage.file_bytes or limits.page_rows:
        return None  # they read little more than once
    if not any(TilePhases(stage).others(p) for p in range(len(stage.program.phases))):
        return None
    found = TilePlanner(stage, limits).plan()
    # What is picked is copied, which goes by in memory as well.
    pages = (page for page in spans.pages if isinstance(page, Span) and not page.others_whole)
    cost = spans.cost + 2 * sum(page.read for page in pages) / FASTER
    return found if found is not None and WORTH * found.cost < cost else None


def advice_on(tiling: Tiling) -> str:
    """What is told of a graph whose sources come in no order, where order would help."""
    return (
        f"; with sources in order within rows (Graph.write_csr(..., sort_sources=True)) it would "
        f"read {size_text(tiling.read)}"
    )
