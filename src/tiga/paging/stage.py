"""One page of a walk: which rows and edges, the arrays that its kernel reads and writes."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Protocol

import numpy as np

from tiga.paging.numbers import STEP, Marks, Picks, Window, bounds_of, pick
from tiga.paging.page import WORD, Page, Piece, read_range, write_range
from tiga.paging.planned import PlannedRows
from tiga.paging.pointers import close_up, places, require_rising
from tiga.paging.span import Span
from tiga.passes.roles import Roles
from tiga.passes.rows import RowProgram
from tiga.relations.spread import Core
from tiga.runtime.arena import Arena
from tiga.runtime.pages import FileRows, MemoryRows, Rows, scratch_bytes
from tiga.trace.node import Node
from tiga.types import GLOBAL, Relation


class PagedWalk(Protocol):
    """One orientation of a relation in a file; see `tiga.relations.paged`."""

    side: str
    num_rows: int
    num_edges: int
    dtype: np.dtype
    tasks: np.ndarray
    task_edges: np.ndarray
    cores: list[tuple[Core, Core]]
    row_ptr: Any
    index: Any
    edge_id: Any
    ascends: bool

    def joined(self, boundaries: np.ndarray) -> "PagedWalk": ...

    def pointers(self, rows: np.ndarray) -> np.ndarray: ...


class PagedGraph(Protocol):
    """What a run on pages needs of a relation."""

    num_src: int
    num_dst: int
    num_edges: int
    walks: Mapping[str, PagedWalk]

    def keep(self, key: Any, make: Callable[[], Any]) -> Any: ...


@dataclass(frozen=True)
class Stage:
    """How pages of one walk are read: `homes` says where every array over entities lies.

    `row_list`, `edge_list` and `page_list` are bytes per row, edge and page that kernels take
    beside arrays.
    """

    program: RowProgram
    roles: Roles
    graph: PagedGraph
    walk: PagedWalk
    homes: Mapping[Node, Rows]
    row_list: int = 0
    edge_list: int = 0
    page_list: int = 0

    @cached_property
    def staged_others(self) -> tuple[Node, ...]:
        """Arrays at the other ends that kernels cannot address where they are."""
        return tuple(n for n in self.roles.others if not self.homes[n].address)

    @cached_property
    def remaps(self) -> bool:
        """Whether rows of the other end are staged."""
        return bool(self.staged_others or self.roles.other_degrees)

    @cached_property
    def edge_stores(self) -> tuple[Node, ...]:
        return tuple(n for phase in self.program.phases for n in phase.stores)

    @cached_property
    def edge_arrays(self) -> tuple[Node, ...]:
        """The edge values that the walk reads or writes."""
        return tuple(dict.fromkeys((*self.roles.edges, *self.edge_stores)))

    @cached_property
    def staged_edges(self) -> tuple[Node, ...]:
        """Edge values that kernels cannot address where they are."""
        return tuple(n for n in self.edge_arrays if not self.homes[n].address)

    @cached_property
    def arrays(self) -> int:
        """How many arrays a page stages, at most."""
        roles, topology = self.roles, 3
        degrees = len(roles.row_degrees) + len(roles.other_degrees)
        rows = len(roles.rows) + len(self.program.stores)
        return topology + degrees + rows + len(roles.others) + len(self.edge_arrays)

    @property
    def reads_files(self) -> bool:
        """Whether pages read anything but memory; a walk's edges are in a file."""
        return self.walk is not None or any(self.homes[n].in_file for n in self.roles.rows)

    @cached_property
    def scattered(self) -> tuple[Node, ...]:
        """Arrays in files that pages read by number, wherever the numbers lead."""
        numbered = self.roles.edges if self.walk.edge_id is not None else ()
        read = (*self.staged_others, *(n for n in numbered if n not in self.edge_stores))
        return tuple(dict.fromkeys(n for n in read if self.homes[n].in_file))

    @cached_property
    def collectable(self) -> tuple[Node, ...]:
        """Edge values that are stored in files by number."""
        stores = self.edge_stores if self.walk.edge_id is not None else ()
        return tuple(n for n in stores if self.homes[n].in_file)

    @property
    def stores_by_number(self) -> bool:
        """Whether pages store values of edges among those of other pages."""
        return self.walk.edge_id is not None and bool(self.edge_stores)

    @cached_property
    def file_bytes(self) -> int:
        """Bytes in files of what the walk reads: its edges and arrays."""
        walk, word = self.walk, self.walk.dtype.itemsize
        numbered = walk.edge_id is not None and bool(self.edge_arrays)
        topology = (walk.num_rows + 1) * WORD + walk.num_edges * word * (1 + numbered)
        reads = dict.fromkeys((*self.roles.rows, *self.roles.others, *self.roles.edges))
        homes = (self.homes[n] for n in reads if n not in self.edge_stores)
        return topology + sum(home.count * home.row_bytes for home in homes if home.in_file)

    def holding(self, nodes: Iterable[Node]) -> "Stage":
        """The plan of the same walk with arrays in memory that are in files."""
        held = {n: self.homes[n] for n in nodes}
        planned: Any = {n: PlannedRows.of(r.count, r.row_bytes, False) for n, r in held.items()}
        return replace(self, homes={**self.homes, **planned})

    def storing(self, nodes: Iterable[Node]) -> "Stage":
        """The same walk where only these values of edges are stored: others that a page has room
        for are left as they are, when only a part of the kernels goes through it."""
        kept = set(nodes)
        phases = (
            replace(phase, stores=tuple(n for n in phase.stores if n in kept))
            for phase in self.program.phases
        )
        return replace(self, program=replace(self.program, phases=tuple(phases)))

    @cached_property
    def others(self) -> int:
        """How many entities there are at the other end."""
        return self.graph.num_src if self.walk.side == "dst" else self.graph.num_dst

    @cached_property
    def lasting(self) -> frozenset[Node]:
        """Arrays of the graph's own file, which are the same in every call."""
        own = self.walk.row_ptr.fd if self.walk is not None else None
        return frozenset(
            n for n, home in self.homes.items() if isinstance(home, FileRows) and home.fd == own
        )

    def read(self, span: Span, arena: Arena) -> Page:
        """A page, read from the files.

        Raises:
            ArenaFull: it names more distinct rows than was planned for.
            Damaged: the file holds what cannot be.
        """
        page = self.begun(span, arena)
        page.inputs(self.homes, arena)
        page.outputs(self.homes, arena)
        return page

    def begun(self, span: Span, arena: Arena) -> Page:
        """A page as far as it is the same in every call."""
        page = self._topology(span, arena)
        self._edges(page, arena)
        self._others(page, arena)
        self._rows(page, arena)
        return page

    def without_edges(self, span: Span, arena: Arena) -> Page:
        """A page of rows without their edges."""
        page = Page(span, np.zeros(2, np.int64), np.zeros(1, np.int64))
        self.rows(page, arena)
        return page

    def rows(self, page: Page, arena: Arena) -> None:
        """Stage the values of a page's rows."""
        self._rows(page, arena)
        page.inputs(self.homes, arena)
        page.outputs(self.homes, arena)

    def begun_without_edges(self, span: Span, arena: Arena) -> Page:
        """The same as far as it is the same in every call."""
        page = Page(span, np.zeros(2, np.int64), np.zeros(1, np.int64))
        self._rows(page, arena)
        return page

    def _put(self, page: Page, piece: Piece, arena: Arena) -> None:
        """Stage a piece now, if it is the same in every call."""
        if piece.node in self.lasting:
            piece.place(page, self.homes[piece.node], arena)
        else:
            page.later[piece.node] = piece

    def _topology(self, span: Span, arena: Arena) -> Page:
        low, high = span.rows
        block = arena.rows(high - low + 1, WORD, low)
        self.walk.row_ptr.read_into(low, block)
        pointers = block.view(np.int64).reshape(-1)
        degree = require_rising(pointers, span)
        close_up(pointers, span)
        index = self._by_parts(span, self.walk.index, arena)
        return Page(span, pointers, index.view(self.walk.dtype).reshape(-1), max_degree=degree)

    def _by_parts(self, span: Span, home: Rows, arena: Arena) -> np.ndarray:
        """Rows over the span's edges, uint8."""
        block = arena.rows(span.edges, home.row_bytes, span.parts[0][0])
        _fill_parts(span, home, block, arena)
        return block

    # edges

    def _edges(self, page: Page, arena: Arena) -> None:
        if self.walk.edge_id is None:
            for node in self.edge_arrays:
                self._edge_range(page, node, arena)
            return
        if not self.edge_arrays:
            page.edge_id = np.zeros(1, self.walk.dtype)
            return
        numbers = self._by_parts(page.span, self.walk.edge_id, arena)
        page.edge_id = numbers.view(self.walk.dtype).reshape(-1)
        low, high = bounds_of(page.edge_id, self.walk.num_edges)
        stores = any(n in self.edge_stores for n in self.staged_edges)
        chosen: Window | Picks
        if page.span.edges_whole:
            marks = Marks.of(page.edge_id, low, high, arena) if stores else None
            chosen = Window(low, high - low, marks)
        else:
            expected = page.span.numbers[1] - page.span.numbers[0]
            chosen = pick(page.edge_id, low, high, 0, arena, expected)
        for node in self.edge_arrays:
            self._edge_numbers(page, node, chosen, arena)

    def _edge_range(self, page: Page, node: Node, arena: Arena) -> None:
        span, first = page.span, page.span.parts[0][0]
        shift = first if len(span.parts) == 1 else None
        piece = Piece(node, span.edges, first, 0, partial(_fill_parts, span), shift=shift)
        if node in self.edge_stores:
            stores = tuple(partial(_write_part, *place) for place in places(span))
            piece = replace(piece, fill=None, stores=stores)
        self._put(page, piece, arena)

    def _edge_numbers(self, page: Page, node: Node, chosen: Window | Picks, arena: Arena) -> None:
        picks, origin = isinstance(chosen, Picks), chosen.origin
        shift = None if picks else 0
        piece = Piece(node, chosen.count, origin, origin, chosen.fill, shift=shift, once=picks)
        if node in self.edge_stores:
            once = not self.homes[node].address
            piece = replace(piece, fill=None, stores=(chosen.store,), once=once or picks)
        self._put(page, piece, arena)

    # the other ends

    def _others(self, page: Page, arena: Arena) -> None:
        low, high = bounds_of(page.index, self.others)
        if not self.remaps:
            page.later.update((n, Piece.in_place(n)) for n in self.roles.others)
            return
        if self.is_uniform:
            self._others_uniform(page)
            return
        if page.span.others_whole:
            window = self._window(page.rows, low, high)
            self._others_window(page, window, arena)
            return
        # Numbered after the page's rows: one array serves both where the two ends are one set.
        expected = page.span.window[1] - page.span.window[0]
        picks = pick(page.index, low, high, page.rows[1], arena, expected)
        for node in self.roles.others:
            self._others_picked(page, node, picks, arena)
        for relation, side in self.roles.other_degrees:
            self._degrees_picked(page, relation, side, picks, arena)

    @cached_property
    def is_uniform(self) -> bool:
        """Whether all that is read at the other ends is the same at each, as the gradient of a
        total is: then it does not matter which they are."""
        others = [self.homes[n] for n in self.roles.others]
        same = all(isinstance(home, MemoryRows) and home.is_uniform for home in others)
        counted = self.roles.other_degrees or self.program.scatters or self.shares_ends
        return bool(others) and same and not counted

    def _others_uniform(self, page: Page) -> None:
        """One row, which all indices name."""
        for node in self.roles.others:
            page.later[node] = Piece(node, 1, 0, 0, partial(read_range, 0))
        page.index[:] = 0

    def _window(self, rows: tuple[int, int], low: int, high: int) -> Window:
        """The window of the other ends; with the rows themselves, where arrays serve both."""
        if self.shares_ends:
            low, high = (min(rows[0], low), max(rows[1], high)) if high > low else rows
        return Window(low, high - low)

    @cached_property
    def shares_ends(self) -> bool:
        """Whether an array that is staged for the other ends is read at the rows too."""
        shared = self.roles.rows.intersection(self.staged_others)
        return bool(shared or self.roles.other_degrees & self.roles.row_degrees)

    def _others_window(self, page: Page, window: Window, arena: Arena) -> None:
        low, count = window.low, window.count
        for node in self.roles.others:
            self._put(page, Piece(node, count, low, low, window.fill, shift=0), arena)
        for key in self.roles.other_degrees:
            block = arena.rows(window.count + 1, WORD, window.low)
            self.graph.walks[key[1]].row_ptr.read_into(window.low, block)
            page.degrees[key] = block.ctypes.data - window.low * WORD

    def _others_picked(self, page: Page, node: Node, picks: Picks, arena: Arena) -> None:
        first = page.rows[0] if node in self.roles.rows else page.rows[1]
        rows = page.rows[1] - first
        fill = partial(_fill_picked, first, rows, picks)
        self._put(page, Piece(node, rows + picks.count, first, first, fill, once=True), arena)

    def _degrees_picked(
        self, page: Page, relation: Relation, side: str, picks: Picks, arena: Arena
    ) -> None:
        """Row pointers of which only the differences count."""
        row_ptr = self.graph.walks[side].row_ptr
        both = (relation, side) in self.roles.row_degrees
        first = page.rows[0] if both else page.rows[1]
        rows = page.rows[1] - first
        made = arena.rows(rows + picks.count + 1, WORD, first).view(np.int64).reshape(-1)
        row_ptr.read_into(first, _rows_of(made[: rows + 1]))
        at, scratch = rows, np.empty(scratch_bytes(WORD), np.uint8)
        for ids in picks.ids.tiles(STEP):
            ends = np.unique(np.concatenate((ids, ids + 1)))
            pointers = np.empty(len(ends), np.int64)
            row_ptr.take(ends, _rows_of(pointers), scratch)
            starts = np.searchsorted(ends, ids)
            degrees = pointers[starts + 1] - pointers[starts]
            np.cumsum(degrees, out=made[at + 1 : at + 1 + len(ids)])
            made[at + 1 : at + 1 + len(ids)] += made[at]
            at += len(ids)
        page.degrees[relation, side] = made.ctypes.data - first * WORD

    # rows

    def _rows(self, page: Page, arena: Arena) -> None:
        """The values of the page's rows."""
        low, high = page.rows
        for node in (n for n in self.roles.rows if not page.has(n)):
            piece = Piece(node, high - low, low, low, partial(read_range, low), shift=0)
            self._put(page, piece, arena)
        for node in (n for n in self.program.stores if n.type.space != GLOBAL):
            store = partial(write_range, low)
            page.later[node] = Piece(node, high - low, low, low, stores=(store,), shift=0)
        for key in self.roles.row_degrees.difference(page.degrees):
            block = arena.rows(high - low + 1, WORD, low)
            self.graph.walks[key[1]].row_ptr.read_into(low, block)
            page.degrees[key] = block.ctypes.data - low * WORD


def _fill_parts(span: Span, home: Rows, block: np.ndarray, arena: Arena) -> None:
    """Read rows over the span's edges; what is in gaps is one of them, or zero."""
    some = np.zeros(1, np.uint8)
    for at, low, high in places(span):
        home.read_into(low, block[at : at + high - low])
        some = block[at] if high > low else some
    for at, low, high in places(span) if span.gap else ():
        block[at + high - low : at + high - low + span.gap] = some


def _write_part(at: int, low: int, high: int, home: Rows, block: np.ndarray) -> None:
    home.write(low, block[at : at + high - low])


def _fill_picked(
    first: int, rows: int, picks: Picks, home: Rows, block: np.ndarray, arena: Arena
) -> None:
    """Read some rows, and those that were picked after them."""
    home.read_into(first, block[:rows])
    picks.fill(home, block[rows:], arena)


def _rows_of(words: np.ndarray) -> np.ndarray:
    return words.view(np.uint8).reshape(-1, WORD)
