"""The pages of a walk over a graph in a file as jobs: staged, sent to the device, computed."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from tiga.backends.triton.edge_tiles import EdgeTile
from tiga.backends.triton.loaded import Kernel
from tiga.backends.triton.paged.edge_lists import edge_list, edge_list_bytes
from tiga.backends.triton.paged.image import Image, Kept
from tiga.backends.triton.paged.kept import StepPages
from tiga.backends.triton.paged.launch import Place, State, StepKernels, state_bytes
from tiga.backends.triton.paged.link import Copy, Link, Mark, PairedArena, copy_bytes
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
from tiga.runtime.floor import helped_by
from tiga.trace.node import Node
from tiga.types import DType

GROUP = 16
"""Chunks of a long row that go to a page together: the states of such groups are aligned."""


@dataclass
class Loaded:
    """A page on its way to the device; `mark` is when it is there, None if all is. `fresh` is kept
    on the device from now on."""

    page: Page
    place: Place
    arena: PairedArena
    mark: Mark | None
    fresh: Kept | None = None
    fetched: Mark | None = None

    @property
    def finish(self) -> list[Callable[[], None]]:
        """What stores its results, behind."""
        stores = [partial(self._helped, store) for store in self.page.finish]
        return [self._wait, *stores] if stores else []

    def _helped(self, store: Callable[[], None]) -> None:
        with helped_by(self.arena.link.movers):
            store()

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
    kept: StepPages

    def _read(self, span: Span, arena: Any) -> Loaded:
        arena.begin()
        found = self.kept.find(span)
        if found is not None:
            return self._again(found, arena)
        page = self.stage.begun(span, arena)
        image = self._image(page, self._work(page, arena), arena)
        loaded = self._loaded(image, page, arena.device, 0, arena)
        kept = self.kept.keep(image, arena)
        return replace(loaded, fresh=kept if kept and not kept.is_there else None)

    def _is_at_hand(self, span: Span) -> bool:
        found, homes = self.kept.find(span), self.stage.homes
        if found is None or found.tier == "host":
            return False
        reads = [node for node, piece in found.image.later.items() if not piece.stores]
        return all(homes[node].address for node in reads)

    def _again(self, found: Kept, arena: PairedArena) -> Loaded:
        """A page that was kept: on the device, or on the host, from where it is sent there."""
        image, arena.source = found.image, found
        if found.tier == "device":
            return self._loaded(image, image.begun(), found.address, 0, arena)
        arena.take(image.nbytes, np.dtype(np.uint8))
        if found.tier == "host-pinned":
            copy = arena.device, found.host.ctypes.data, image.nbytes
            return self._loaded(image, image.begun(), arena.device, arena.used, arena, [copy])
        copy_bytes(arena.address, found.host.ctypes.data, image.nbytes)
        return self._loaded(image, image.begun(), arena.device, 0, arena)

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

    def _run(self, page: Loaded) -> None:
        self._launch(None, page)

    def _launch(self, numbers: Sequence[int] | None, page: Loaded) -> None:
        """Launch kernels on a page when it is there: all, or some by their numbers."""
        if page.mark is not None:
            self.link.follow(page.mark)
        self.launcher.launch(page.place, numbers)
        if page.fresh is not None:
            self.kept.store(page.fresh, page.arena)
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
        page = stage.begun(part, arena)
        low, high = part.parts[0]
        before = (low - long.parts[0].parts[0][0]) // CHUNK
        moved = {
            (kind, node): at + before * node.type.size * node.type.dtype.compute.itemsize
            for (kind, node), at in states.items()
            if kind != "hub"
        }
        work = chunk_list(long.row, low, high, chunks, self.kernels.launches, arena)
        image = self._image(page, work, arena)
        return self._loaded(image, page, arena.device, 0, arena, states={**states, **moved})

    def _end(self, long: LongRow, chunks: int, states: dict[State, int], arena: Any) -> Loaded:
        """The row without its edges."""
        arena.begin()
        page = self.stage.begun_without_edges(long.end, arena)
        low = long.end.parts[0][0]
        work = chunk_list(long.row, low, low, chunks, self.kernels.launches, arena)
        image = self._image(page, work, arena)
        return self._loaded(image, page, arena.device, 0, arena, states=states)

    # what kernels are told

    def _image(self, page: Page, work: WorkList, arena: PairedArena) -> Image:
        """What an arena has by now, which is the same in every call."""
        topology = {"index": page.index.ctypes.data}
        if page.edge_id is not None:
            topology["edge_id"] = page.edge_id.ctypes.data
        before = self._origin(page.span) * self.stage.walk.dtype.itemsize + arena.address
        return Image(
            page.span, arena.used, replace(work, arrays={}),
            {key: array.ctypes.data - arena.address for key, array in work.arrays.items()},
            {n: self._seen(n, at, page) - arena.address for n, at in page.addresses.items()},
            {key: at - arena.address for key, at in page.degrees.items()},
            {key: at - before for key, at in topology.items()},
            page.later, page.repeats,
        )  # fmt: skip

    def _loaded(
        self, image: Image, page: Page, start: int, unsent: int, arena: PairedArena,
        copies: Sequence[Copy] = (), states: dict[State, int] | None = None,
    ) -> Loaded:  # fmt: skip
        """A page whose image is, or will be, at `start` on the device; what is staged from byte
        `unsent` on is sent along with `copies`."""
        page.inputs(self.stage.homes, arena)
        end = arena.used
        page.outputs(self.stage.homes, arena)
        places = dict(self.scratch.places)
        for state, at in self._states(page, image.work, arena) if states is None else ():
            places[state] = at + arena.offset
        arrays = {node: at + start for node, at in image.arrays.items()}
        for node in page.later:
            staged = arena.offset if node in page.staged else 0
            arrays[node] = self._seen(node, page.addresses[node], page) + staged
        degrees = {key: at + start for key, at in image.degrees.items()}
        place = Place(image.work, arrays, degrees, {**places, **(states or {})}, image.topology,
                      image.lists, start)  # fmt: skip
        sent = [*copies, arena.sent(unsent, end)] if end > unsent else [*copies]
        return Loaded(page, place, arena, arena.send(sent) if sent else None)

    def _states(
        self, page: Page, work: WorkList, arena: PairedArena
    ) -> Iterator[tuple[State, int]]:
        """Scratch of a page's own: the addresses that kernels take, as they are on the host."""
        for state, count, dtype in self.kernels.states(work):
            yield state, arena.take(count, np.dtype(dtype.numpy)).ctypes.data
        (low, rows), edges = page.rows, page.span.parts[0]
        for state, count, dtype in self.kernels.marks(rows - low, edges):
            size = state[1].type.size * dtype.itemsize
            first = edges[0] // BLOCK + low
            block = arena.rows(count // state[1].type.size, size, first)
            yield state, block.ctypes.data - first * size

    def _seen(self, node: Node, address: int, page: Page) -> int:
        """The address of an array as if the whole lay there."""
        if node not in self.by_position:
            return address
        return address - self._origin(page.span) * self.stage.homes[node].row_bytes

    @cached_property
    def by_position(self) -> frozenset[Node]:
        """Values of edges that lie in the order of the walk."""
        return frozenset(self.stage.edge_arrays if self.stage.walk.edge_id is None else ())

    def _origin(self, span: Span) -> int:
        """The position that a page's first edge has to kernels: that in the whole graph, but for
        tiles of edges."""
        return 0 if self.by_tiles else span.parts[0][0]


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
