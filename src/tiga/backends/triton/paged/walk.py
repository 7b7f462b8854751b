"""The pages of a walk over a graph in a file as jobs: staged, sent to the device, computed."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from tiga.backends.triton.edge_tiles import EdgeTile
from tiga.backends.triton.loaded import Kernel
from tiga.backends.triton.paged.edge_lists import edge_list, edge_list_bytes
from tiga.backends.triton.paged.launch import Place, State, StepKernels, state_bytes
from tiga.backends.triton.paged.link import Link, Mark, PairedArena
from tiga.backends.triton.paged.lists import WorkList, chunk_list, work_list
from tiga.backends.triton.paged.sums import Launcher
from tiga.backends.triton.scans import BLOCK
from tiga.backends.triton.topology import CHUNK
from tiga.paging.page import WORD, Page
from tiga.paging.pipeline import Job, never
from tiga.paging.plan import Division
from tiga.paging.span import LongRow, Span
from tiga.paging.stage import Stage
from tiga.paging.walk import WalkJobs
from tiga.passes.carries import kept_scans
from tiga.trace.node import Node
from tiga.types import DType

GROUP = 16
"""Chunks of a long row that go to a page together: the states of such groups are aligned."""


@dataclass
class Loaded:
    """A page that was sent to the device; `mark` is when it is there."""

    page: Page
    place: Place
    arena: PairedArena
    mark: Mark
    fetched: Mark | None = None

    @property
    def finish(self) -> list[Callable[[], None]]:
        """What stores its results, behind."""
        return [self._wait, *self.page.finish] if self.page.finish else []

    def computed(self, link: Link) -> None:
        """Note that its kernels were launched; results follow them to the host."""
        self.arena.computed = link.mark()
        if self.page.finish:
            self.fetched = self.arena.fetch(self.page.results)

    def _wait(self) -> None:
        assert self.fetched is not None
        self.fetched.wait()


@dataclass
class Scratch:
    """Memory of the device that a step uses beside its pages."""

    allocate: Callable[[int], int]
    places: dict[State, int] = field(default_factory=dict)

    def add(self, states: Iterable[tuple[State, int, DType]]) -> None:
        """Have room for states."""
        for state, count, dtype in states:
            self.places[state] = self.allocate(count * dtype.itemsize)


@dataclass(frozen=True)
class WalkPages(WalkJobs):
    """The jobs of a walk on a GPU."""

    kernels: StepKernels
    link: Link
    scratch: Scratch
    launcher: Launcher

    def _read(self, span: Span, arena: Any) -> Loaded:
        arena.begin()
        page = self.stage.read(span, arena)
        return self._sent(page, self._work(page, arena), arena)

    def _work(self, page: Page, arena: Any) -> WorkList:
        (first, _), kernels = page.rows, self.kernels
        if self.by_tiles:
            dtype = self.stage.walk.dtype
            return edge_list(page.row_ptr, first, kernels.tile.edges, dtype, arena)
        pointers = page.row_ptr + page.span.parts[0][0]
        return work_list(pointers, first, self.kernels.launches, arena)

    @property
    def by_tiles(self) -> bool:
        """Whether kernels take tiles of edges, whatever their rows."""
        return isinstance(self.kernels.tile, EdgeTile)

    def _origin(self, page: Page) -> int:
        """The position that the page's first edge has to kernels: that in the whole graph, but for
        tiles of edges."""
        return 0 if self.by_tiles else page.span.parts[0][0]

    def _run(self, page: Loaded) -> None:
        self._launch(None, page)

    def _launch(self, numbers: Sequence[int] | None, page: Loaded) -> None:
        """Launch kernels on a page when it is there: all, or some by their numbers."""
        self.link.follow(page.mark)
        self.launcher.launch(page.place, numbers)
        page.computed(self.link)

    # long rows

    def _long_row(self, long: LongRow) -> Iterator[Job]:
        """Kernel after kernel, over all chunks in parts, or over the row."""
        chunks = -(-long.degree // CHUNK)
        states = Scratch(self.scratch.allocate)
        states.add(self.kernels.row_states(chunks))
        for number in self.kernels.numbers:
            over, kernel = self.kernels.kernels[number]
            run = partial(self._launch, (number,))
            stage = self.stage.storing(_arrays_of(kernel))
            if over == "hubs":
                yield Job(partial(self._end, long, chunks, states.places), run, never)
            for part in long.parts if over in ("items", "chunks") else ():
                read = partial(self._part, long, part, stage, chunks, states.places)
                yield Job(read, run, never)

    def _part(
        self, long: LongRow, part: Span, stage: Stage, chunks: int, states: dict[State, int],
        arena: Any,
    ) -> Loaded:  # fmt: skip
        """Some chunks of a row, of which `stage` stores what one kernel makes; their states lie
        among those of the whole row."""
        arena.begin()
        page = stage.read(part, arena)
        low, high = part.parts[0]
        before = (low - long.parts[0].parts[0][0]) // CHUNK
        moved = {
            (kind, node): at + before * node.type.size * node.type.dtype.compute.itemsize
            for (kind, node), at in states.items()
            if kind != "hub"
        }
        work = chunk_list(long.row, low, high, chunks, self.kernels.launches, arena)
        return self._sent(page, work, arena, {**states, **moved})

    def _end(self, long: LongRow, chunks: int, states: dict[State, int], arena: Any) -> Loaded:
        """The row without its edges."""
        arena.begin()
        page = self.stage.without_edges(long.end, arena)
        low = long.end.parts[0][0]
        work = chunk_list(long.row, low, low, chunks, self.kernels.launches, arena)
        return self._sent(page, work, arena, states)

    # what kernels are told

    def _sent(
        self, page: Page, work: WorkList, arena: PairedArena, states: dict[State, int] | None = None
    ) -> Loaded:
        blocks, places = [], dict(self.scratch.places)
        for state, block, at in self._states(page, work, arena) if states is None else ():
            blocks.append(block)
            places[state] = at + arena.offset
        place = Place(
            work, self._arrays(page, arena.offset), self._degrees(page, arena.offset),
            {**places, **(states or {})}, self._topology(page, arena.offset), arena.offset,
        )  # fmt: skip
        mark = arena.send([*page.results, *blocks])
        return Loaded(page, place, arena, mark)

    def _states(
        self, page: Page, work: WorkList, arena: PairedArena
    ) -> Iterator[tuple[State, np.ndarray, int]]:
        """Scratch of a page's own: blocks, and the addresses that kernels take."""
        for state, count, dtype in self.kernels.states(work):
            block = arena.take(count, np.dtype(dtype.numpy))
            yield state, block, block.ctypes.data
        (low, rows), edges = page.rows, page.span.parts[0]
        for state, count, dtype in self.kernels.marks(rows - low, edges):
            size = state[1].type.size * dtype.itemsize
            first = edges[0] // BLOCK + low
            block = arena.rows(count // state[1].type.size, size, first)
            yield state, block, block.ctypes.data - first * size

    def _arrays(self, page: Page, offset: int) -> dict[Node, int]:
        """Addresses of arrays, as if the whole lay there."""
        homes, origin, found = self.stage.homes, self._origin(page), {}
        by_position = set(self.stage.edge_arrays) if self.stage.walk.edge_id is None else set()
        for node, address in page.addresses.items():
            home = homes[node]
            staged = address != home.address or not home.address
            if node in by_position:
                staged, address = not home.address, address - origin * home.row_bytes
            found[node] = address + (offset if staged else 0)
        return found

    def _degrees(self, page: Page, offset: int) -> dict[Any, int]:
        return {key: address + offset for key, address in page.degrees.items()}

    def _topology(self, page: Page, offset: int) -> dict[str, int]:
        first = self._origin(page) * self.stage.walk.dtype.itemsize
        found = {"index": page.index.ctypes.data - first + offset}
        if page.edge_id is not None:
            found["edge_id"] = page.edge_id.ctypes.data - first + offset
        return found


def _arrays_of(kernel: Kernel) -> list[Node]:
    """The values whose arrays a kernel is given."""
    keys = (parameter.key for parameter in kernel.source.parameters)
    return [key[1] for key in keys if isinstance(key, tuple) and key[0] == "array"]


def division_of(kernels: StepKernels, tasks: int) -> Division:
    """How kernels take a walk apart: what a row gives depends on its own edges alone, and on where
    they lie in tiles of edges."""
    if isinstance(kernels.tile, EdgeTile):
        return Division(True, CHUNK, CHUNK, 0, (0, tasks), kernels.tile.edges)
    passes = sum(over in ("items", "chunks") for over, _ in kernels.kernels)
    divides = "hubs" in kernels.overs and not kept_scans(kernels.program)
    return Division(True, CHUNK, CHUNK * GROUP, passes * divides, (0, tasks))


def list_bytes(kernels: StepKernels, word: int) -> dict[str, int]:
    """Bytes per row, edge and page of the work list and of states: a chunk has at least half of
    `CHUNK` edges on average, and lists of rows and of chunks fill their last tiles."""
    item, hub = 2 * word + 4, 3 * WORD
    one = state_bytes(kernels.states(WorkList({"hubs": 1}, {}, {"num_chunks": 1})))
    if isinstance(kernels.tile, EdgeTile):
        row, edge = edge_list_bytes(kernels.tile.edges, word, one)
        return {"row_list": row, "edge_list": edge}
    marks = state_bytes(kernels.marks(0, (0, 0)))
    chunk = item + hub + one
    return {
        "row_list": item + marks,
        "edge_list": -(-2 * chunk // CHUNK) + -(-marks // BLOCK),
        "page_list": kernels.launches.tile * (item + chunk),
    }
