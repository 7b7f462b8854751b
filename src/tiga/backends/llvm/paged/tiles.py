"""Run a walk by blocks of rows and tiles of their other ends; see `tiga.paging.tiles`."""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from tiga.backends.llvm.launcher import Launch
from tiga.backends.llvm.paged.launch import NO_SPLIT, Launcher, Split, even_tasks, states_of
from tiga.backends.llvm.paged.tile_kernels import (
    FINISH_HUBS,
    FINISH_ROWS,
    chunk_tile_of,
    hubs_of,
    tile_of,
)
from tiga.backends.llvm.steps import Variant
from tiga.backends.llvm.tasks import Counts, Function
from tiga.paging.numbers import STEP
from tiga.paging.pipeline import Job, Pipeline, never
from tiga.paging.span import Span
from tiga.paging.stage import Page
from tiga.paging.tile_stage import HeldBlock, TilePage, TileStage
from tiga.paging.tiles import Block, Tile, Tiling
from tiga.relations.walk import HUB_DEGREE
from tiga.runtime.arena import Arena
from tiga.runtime.pages import Damaged


@dataclass(frozen=True)
class TiledWalk:
    """One walk; `launcher` runs the kernels of `tile_kernels`, and `arena` holds a block."""

    stage: TileStage
    tiling: Tiling
    launcher: Launcher
    pipeline: Pipeline
    arena: Arena
    splits: bool

    def run(self) -> None:
        """Go through all blocks."""
        for block in self.tiling.blocks:
            self.arena.reset()
            held = self.stage.hold(block, self.arena, self.pipeline.helpers.readers.submit)
            BlockRun(self, held).run()


@dataclass
class BlockRun:
    """One block."""

    walk: TiledWalk
    held: HeldBlock
    chunks_taken: np.ndarray = field(init=False)
    split_states: dict[Any, np.ndarray] = field(init=False)

    def __post_init__(self) -> None:
        chunks = len(self.split.chunk_row)
        self.chunks_taken = np.zeros(max(1, chunks), np.int32)
        self.split_states = self.walk.launcher.states(len(self.split.hub_rows), chunks)

    @property
    def block(self) -> Block:
        return self.held.block

    @cached_property
    def split(self) -> Split:
        """The chunks of the block's long rows."""
        return split_of(self.held.page) if self.held.page.max_degree > HUB_DEGREE else NO_SPLIT

    @cached_property
    def variant(self) -> Variant:
        hub_degree = HUB_DEGREE if len(self.split.hub_rows) else 0
        return self.walk.launcher.variant(hub_degree, self.held.page.max_degree)

    def run(self) -> None:
        """All phases, then the rows themselves."""
        for phase, tiles in enumerate(self.block.tiles):
            self.held.taken[:] = self.chunks_taken[:] = 0
            self.walk.pipeline.run(self._job(phase, tile) for tile in tiles)
            self._require_taken()
            self._hubs(phase)
        for store in self.held.page.finish:
            store()
        self.walk.pipeline.run(self._end(span) for span in self.block.finish)

    # a tile

    def _job(self, phase: int, tile: Tile) -> Job:
        read = partial(self.walk.stage.tile, self.block, phase, tile)
        return Job(read, partial(self._tile, phase), never)

    def _tile(self, phase: int, tile: TilePage) -> None:
        held, launcher = self.held, self.walk.launcher
        page = replace(held.page, addresses={**held.page.addresses, **tile.edges})
        rows = even_tasks(held.block.rows, launcher.team.threads)
        counts = self._counts(len(rows) - 1)
        table = launcher.table(page, rows, self.split, counts, self._slots | _tile_slots(tile))
        self._launch(table, (tile_of(phase), chunk_tile_of(phase)), counts)

    def _launch(self, table: ctypes.Array, functions: Sequence[Function], counts: Counts) -> None:
        """Those of the functions that there are."""
        args, variant = ctypes.addressof(table), self.variant
        self.walk.launcher.team.run(
            Launch(variant.address(one.name), args, counts.of(one.over))
            for one in functions
            if one in variant.functions
        )

    def _counts(self, tasks: int) -> Counts:
        return Counts(tasks, len(self.split.hub_rows), len(self.split.chunk_row))

    @property
    def _slots(self) -> dict[Any, int]:
        """What the kernels of a block are given beside a page."""
        taken, first = self.held.taken, self.block.rows[0]
        found: dict[Any, int] = {
            "taken": taken.ctypes.data - first * taken.itemsize,
            "chunk_taken": self.chunks_taken.ctypes.data,
        }
        for node, rows in self.held.states.items():
            found["state", node] = rows.ctypes.data - first * rows.shape[1]
        found |= {("stretch", node): sums.ctypes.data for node, sums in self.held.stretches.items()}
        return found | {name: rows.ctypes.data for name, rows in self.split_states.items()}

    def _require_taken(self) -> None:
        if not self.block.edges[1] > self.block.edges[0]:
            return
        self.held.require_taken(HUB_DEGREE)
        lengths = self.split.chunk_hi - self.split.chunk_lo
        if (self.chunks_taken[: len(lengths)] != lengths).any():
            raise Damaged("the file holds an index that is out of its order or its range")

    def _hubs(self, phase: int) -> None:
        """Combine the chunks of split rows."""
        tasks, counts = np.array(self.block.rows, np.int64), self._counts(0)
        launcher = self.walk.launcher
        table = launcher.table(self.held.page, tasks, self.split, counts, self._slots)
        self._launch(table, (hubs_of(phase),), counts)

    # the end

    def _end(self, span: Span) -> Job:
        return Job(partial(self.walk.stage.finish, self.held, span), self._finish, never)

    def _finish(self, page: Page) -> None:
        """Store the values of a page's rows, and add to sums over all."""
        launcher, (low, high) = self.walk.launcher, page.rows
        tasks = self._tasks(page)
        count = len(tasks) - 1
        a, b = np.searchsorted(self.split.hub_rows, (low, high)).tolist()
        program = launcher.step.program
        sums = {n: states_of(n, count + b - a) for n in program.totals}
        named = self._slots | {("partial", n): block.ctypes.data for n, block in sums.items()}
        for name, rows in self.split_states.items():
            named[name] += a * rows.shape[1] * (name[0] == "hub")
        split, counts = replace(self.split, hub_rows=self.split.hub_rows[a:]), Counts(count, b - a)
        table = launcher.table(page, tasks, split, counts, named)
        self._launch(table, (FINISH_ROWS, FINISH_HUBS), counts)
        for node, block in sums.items():
            launcher.pieces.add(node, low, block, count)

    def _tasks(self, page: Page) -> np.ndarray:
        """Boundaries of rows: those of the graph's tasks, where sums depend on them."""
        if self.walk.splits:
            return even_tasks(page.rows, self.walk.launcher.team.threads)
        tasks = self.walk.stage.stage.walk.tasks[page.span.first : page.span.last + 1, 0]
        return np.ascontiguousarray(tasks)


def _tile_slots(page: TilePage) -> dict[Any, int]:
    (low, high), tile = page.tile.numbers, page.tile
    found: dict[Any, int] = {
        "tile_low": tile.low, "tile_size": tile.high - tile.low,
        "number_low": low, "number_size": high - low,
    }  # fmt: skip
    found |= {("other", node): address for node, address in page.others.items()}
    return found | {("other degree", *key): at for key, at in page.degrees.items()}


def split_of(page: Page) -> Split:
    """The chunks of a page's long rows: found a part of all rows at a time, as a block has many."""
    pointers, found = page.row_ptr, []
    for low in range(0, len(pointers) - 1, STEP):
        degrees = np.diff(pointers[low : low + STEP + 1])
        found.append(np.flatnonzero(degrees > HUB_DEGREE) + low)
    rows = np.concatenate(found)
    return Split.of_rows(rows + page.rows[0], pointers[rows], pointers[rows + 1])
