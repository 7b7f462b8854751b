"""What a walk by tiles has in memory: a block of rows, and one tile of their other ends after
another."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from tiga.paging.numbers import STEP
from tiga.paging.pointers import close_up, require_rising
from tiga.paging.span import Span
from tiga.paging.stage import WORD, Page, Stage
from tiga.paging.tiles import Block, Tile, TilePhases
from tiga.passes.rows import adds_up, state_bytes
from tiga.relations.walk import STRETCH
from tiga.runtime.arena import Arena
from tiga.runtime.pages import LOADED_BYTES, Damaged, Rows
from tiga.trace.node import Node
from tiga.types import Relation

Submit = Callable[..., "Future[None]"]
"""`submit(function, *given)` has another thread make a call."""


@dataclass
class HeldBlock:
    """A block in memory: a page of its rows and edges without other ends, how many edges of each
    row were taken, int32, the states of rows by reduction, and where rows are long, the sums of
    earlier stretches of their edges."""

    block: Block
    page: Page
    taken: np.ndarray
    states: dict[Node, np.ndarray] = field(default_factory=dict)
    stretches: dict[Node, np.ndarray] = field(default_factory=dict)

    def require_taken(self, split: int) -> None:
        """After the last tile of a phase.

        Raises:
            Damaged: a row has edges that no tile took, as they are in no order or name nothing that
                there is. Rows of more than `split` edges are looked at by others.
        """
        pointers = self.page.row_ptr
        for low in range(0, len(pointers) - 1, STEP):
            degrees = np.diff(pointers[low : low + STEP + 1])
            taken = self.taken[low : low + len(degrees)]
            if ((taken != degrees) & (degrees <= split)).any():
                raise Damaged("the file holds an index that is out of its order or its range")


@dataclass
class TilePage:
    """A tile in memory: where arrays over other ends, their degrees and edge values would start."""

    tile: Tile
    others: dict[Node, int] = field(default_factory=dict)
    degrees: dict[tuple[Relation, str], int] = field(default_factory=dict)
    edges: dict[Node, int] = field(default_factory=dict)
    finish: list[Callable[[], None]] = field(default_factory=list)
    results: list[np.ndarray] = field(default_factory=list)


@dataclass(frozen=True)
class TileStage:
    """How blocks and tiles of one walk are read."""

    stage: Stage

    @cached_property
    def arrays(self) -> TilePhases:
        return TilePhases(self.stage)

    # a block

    def hold(self, block: Block, arena: Arena, submit: Submit) -> HeldBlock:
        """A block, read from the files by several threads.

        Raises:
            Damaged: the file holds what cannot be.
        """
        parts: list[Future[None]] = []

        def read(home: Rows, low: int, high: int) -> np.ndarray:
            out = arena.rows(high - low, home.row_bytes, low)
            parts.extend(_read(home, low, out, submit))
            return out

        try:
            page = self._page(block, read, arena)
            for part in parts:
                part.result()
        finally:
            wait(parts)  # their memory may go only then
            parts.clear()  # an error holds on to all that the calls on its way did
        page = replace(page, max_degree=require_rising(page.row_ptr, page.span))
        close_up(page.row_ptr, page.span)
        (low, high), word = block.rows, np.dtype(np.uint8)
        reductions = [n for phase in self.stage.program.phases for n in phase.reductions]
        states = {n: arena.take((high - low, state_bytes(n)), word) for n in reductions}
        sums = filter(adds_up, reductions) if page.max_degree > STRETCH else ()
        places = len(page.index) // STRETCH + 1
        stretches = {n: arena.take((places, state_bytes(n)), word) for n in sums}
        taken = arena.take(max(1, high - low), np.dtype(np.int32))
        return HeldBlock(block, page, taken, states, stretches)

    def _page(self, block: Block, read: Any, arena: Arena) -> Page:
        stage, walk, homes = self.stage, self.stage.walk, self.stage.homes
        pointers = read(walk.row_ptr, block.rows[0], block.rows[1] + 1)
        index = read(walk.index, *block.edges)
        page = Page(block.span, pointers.view(np.int64).reshape(-1), _numbers(index, walk.dtype))
        if walk.edge_id is not None:
            held = stage.edge_arrays
            numbers = read(walk.edge_id, *block.edges) if held else np.zeros(WORD, np.uint8)
            page.edge_id = _numbers(numbers, walk.dtype)
        for node in self.arrays.rows:
            page.addresses[node] = homes[node].address
            if not homes[node].address:
                rows = read(homes[node], *block.rows)
                page.addresses[node] = rows.ctypes.data - block.rows[0] * homes[node].row_bytes
        for key in self.arrays.degrees:
            home = stage.graph.walks[key[1]].row_ptr
            rows = read(home, block.rows[0], block.rows[1] + 1)
            page.degrees[key] = rows.ctypes.data - block.rows[0] * WORD
        self._edges(page, block, read, arena)
        return page

    def _edges(self, page: Page, block: Block, read: Any, arena: Arena) -> None:
        """Edge values: those by number that kernels address where they are, and those that follow
        the block's edges."""
        numbered, low = page.edge_id is not None, block.edges[0]
        for node in self.stage.edge_arrays:
            home = self.stage.homes[node]
            if home.address:
                skipped = 0 if numbered else low * home.row_bytes
                page.addresses[node] = home.address + skipped
            elif not numbered and node in self.stage.edge_stores:
                rows = arena.rows(block.edges[1] - low, home.row_bytes, low)
                page.addresses[node] = rows.ctypes.data
                page.finish.append(partial(home.write, low, rows))
            elif not numbered:
                page.addresses[node] = read(home, *block.edges).ctypes.data

    # a tile

    def tile(self, block: Block, phase: int, tile: Tile, arena: Arena) -> TilePage:
        """A tile of a phase."""
        page, homes, arrays = TilePage(tile), self.stage.homes, self.arrays
        for node in arrays.phases[phase].others:
            page.others[node] = homes[node].address
        for node in arrays.others(phase):
            page.others[node] = self._window(homes[node], tile.low, tile.high, arena)[0]
        for key in arrays.phases[phase].other_degrees:
            home = self.stage.graph.walks[key[1]].row_ptr
            page.degrees[key] = self._window(home, tile.low, tile.high + 1, arena)[0]
        for node in arrays.edge_reads(phase):
            page.edges[node] = self._window(homes[node], *tile.numbers, arena)[0]
        for node in arrays.edge_stores(phase):
            home, low = homes[node], tile.numbers[0]
            page.edges[node], rows = self._window(home, *tile.numbers, arena, block.first > 0)
            page.results.append(rows)
            page.finish.append(partial(home.write, low, rows))
        return page

    @staticmethod
    def _window(
        home: Rows, low: int, high: int, arena: Arena, filled: bool = True
    ) -> tuple[int, np.ndarray]:
        """Where row 0 would be of rows [low, high), and these; what the first block stores has
        nothing to be stored among."""
        rows = arena.rows(high - low, home.row_bytes, low)
        if filled:
            home.read_into(low, rows)
        return rows.ctypes.data - low * home.row_bytes, rows

    # the end

    def finish(self, held: HeldBlock, span: Span, arena: Arena) -> Page:
        """A page of rows to be finished."""
        (low, high), first = span.rows, held.block.rows[0]
        page = replace(
            held.page, span=span, row_ptr=held.page.row_ptr[low - first : high - first + 1],
            addresses=dict(held.page.addresses), degrees=dict(held.page.degrees), later={},
            finish=[], results=[],
        )  # fmt: skip
        self._finishing.rows(page, arena)
        return page

    @cached_property
    def _finishing(self) -> Stage:
        return replace(self.stage, roles=self.arrays.finish)


def _read(home: Rows, low: int, out: np.ndarray, submit: Submit) -> Iterator["Future[None]"]:
    """Rows read by several threads."""
    step = max(1, LOADED_BYTES // max(1, home.row_bytes))
    for at in range(0, len(out), step):
        yield submit(home.read_into, low + at, out[at : at + step])


def _numbers(rows: np.ndarray, dtype: np.dtype) -> np.ndarray:
    return rows.reshape(-1).view(dtype)
