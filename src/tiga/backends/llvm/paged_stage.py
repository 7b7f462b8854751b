"""One page of a walk: which rows and edges, the arrays that its kernel reads and writes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from tiga.errors import UnsupportedByBackend
from tiga.passes.roles import Roles
from tiga.passes.rows import RowProgram
from tiga.runtime.pages import Damaged, Rows, empty_block
from tiga.trace.node import Node
from tiga.types import GLOBAL, Relation

WORD = 8


class PagedWalk(Protocol):
    """One orientation of a relation in a file; see `tiga.relations.paged`."""

    side: str
    num_rows: int
    num_edges: int
    dtype: np.dtype
    tasks: np.ndarray
    task_edges: np.ndarray
    row_ptr: Any
    index: Any
    edge_id: Any

    def joined(self, boundaries: np.ndarray) -> "PagedWalk": ...


class PagedGraph(Protocol):
    """What a run on pages needs of a relation."""

    num_src: int
    num_dst: int
    num_edges: int
    walks: Mapping[str, PagedWalk]


@dataclass
class Page:
    """Tasks [first, last) of a walk with everything their kernel needs.

    Rows keep their numbers: the addresses of arrays over rows lie as far before the staged rows as
    the first row is from 0. Edges are numbered from the page's first on. `addresses` are those of
    the arrays that were staged; `finish` writes back.
    """

    first: int
    last: int
    rows: tuple[int, int]
    edges: tuple[int, int]
    row_ptr: np.ndarray
    tasks: np.ndarray
    index: np.ndarray
    edge_id: np.ndarray | None
    addresses: dict[Node, int] = field(default_factory=dict)
    degrees: dict[tuple[Relation, str], int] = field(default_factory=dict)
    held: list[np.ndarray] = field(default_factory=list)
    finish: list[Callable[[], None]] = field(default_factory=list)

    @property
    def row_ptr_address(self) -> int:
        return self.row_ptr.ctypes.data - self.rows[0] * WORD

    def release(self) -> None:
        """Drop everything staged, so that the next page finds its memory free."""
        none = np.empty(0, np.int64)
        self.held.clear()
        self.finish.clear()
        self.row_ptr = self.index = none
        self.edge_id = None

    def hold(self, block: np.ndarray) -> int:
        """Keep a block for the kernel; its address."""
        self.held.append(block)
        return block.ctypes.data


@dataclass(frozen=True)
class Stage:
    """How pages of one walk are read: `homes` says where every array over entities lies."""

    program: RowProgram
    roles: Roles
    graph: PagedGraph
    walk: PagedWalk
    homes: Mapping[Node, Rows]

    @property
    def remaps(self) -> bool:
        """Whether rows of the other end are picked and numbered anew, page by page."""
        return any(not self.homes[n].address for n in self.roles.others)

    @property
    def edge_stores(self) -> tuple[Node, ...]:
        """The edge values that the walk writes."""
        return tuple(n for phase in self.program.phases for n in phase.stores)

    @property
    def edge_arrays(self) -> tuple[Node, ...]:
        """The edge values that the walk reads or writes."""
        return tuple(dict.fromkeys((*self.roles.edges, *self.edge_stores)))

    def read(self, first: int, last: int) -> Page:
        """The page of tasks [first, last), read from the files."""
        walk = self.walk
        low, high = (int(walk.tasks[t, 0]) for t in (first, last))
        start, end = (int(walk.task_edges[t]) for t in (first, last))
        row_ptr = walk.row_ptr.read(low, high + 1).view(np.int64).reshape(-1) - start
        _require_rising(row_ptr, end - start)
        index = walk.index.read(start, end).view(walk.dtype).reshape(-1)
        tasks = np.ascontiguousarray(walk.tasks[first : last + 1, 0])
        page = Page(first, last, (low, high), (start, end), row_ptr, tasks, index, None)
        self._edges(page)
        self._others(page)
        self._rows(page)
        return page

    # edges

    def _edges(self, page: Page) -> None:
        start, end = page.edges
        if self.walk.edge_id is None:
            for node in self.edge_arrays:
                self._edge_range(page, node, start, end)
            return
        if not self.edge_arrays:
            page.edge_id = np.zeros(1, self.walk.dtype)
            return
        numbers = self.walk.edge_id.read(start, end).view(self.walk.dtype).reshape(-1)
        _require_below(numbers, self.walk.num_edges)
        page.edge_id = numbers
        if all(self.homes[n].address for n in self.edge_arrays):
            page.addresses.update((n, self.homes[n].address) for n in self.edge_arrays)
            return
        picked, page.edge_id = pick(numbers, 0, exact=True)
        for node in self.edge_arrays:
            self._edges_picked(page, node, picked)

    def _edge_range(self, page: Page, node: Node, start: int, end: int) -> None:
        home = self.homes[node]
        if home.address:
            page.addresses[node] = home.address + start * home.row_bytes
        elif node in self.edge_stores:
            block = _empty(end - start, home)
            page.addresses[node] = page.hold(block)
            page.finish.append(lambda: home.write(start, block))
        else:
            page.addresses[node] = page.hold(home.read(start, end))

    def _edges_picked(self, page: Page, node: Node, picked: np.ndarray) -> None:
        home = self.homes[node]
        if node in self.edge_stores:
            block = _empty(len(picked), home)
            page.finish.append(lambda: home.put(picked, block))
        else:
            block = _empty(len(picked), home)
            home.take(picked, block)
        page.addresses[node] = page.hold(block)

    # the other ends

    def _others(self, page: Page) -> None:
        others = self.graph.num_src if self.walk.side == "dst" else self.graph.num_dst
        _require_below(page.index, others)
        if not self.remaps:
            for node in self.roles.others:
                page.addresses[node] = self.homes[node].address
            for relation, side in self.roles.other_degrees:
                pointers = self.graph.walks[side].row_ptr.read(0, others + 1)
                page.degrees[relation, side] = page.hold(pointers)
            return
        # Numbered after the page's rows: one array serves both where the two ends are one set.
        picked, page.index = pick(page.index, page.rows[1])
        for node in self.roles.others:
            self._others_picked(page, node, picked)
        for relation, side in self.roles.other_degrees:
            self._degrees_picked(page, relation, side, picked)

    def _others_picked(self, page: Page, node: Node, picked: np.ndarray) -> None:
        home = self.homes[node]
        first = page.rows[0] if node in self.roles.rows else page.rows[1]
        rows = page.rows[1] - first
        block = _empty(rows + len(picked), home)
        home.read_into(first, block[:rows])
        home.take(picked, block[rows:])
        page.addresses[node] = page.hold(block) - first * home.row_bytes

    def _degrees_picked(
        self, page: Page, relation: Relation, side: str, picked: np.ndarray
    ) -> None:
        """Row pointers of which only the differences count."""
        row_ptr = self.graph.walks[side].row_ptr
        both = (relation, side) in self.roles.row_degrees
        first = page.rows[0] if both else page.rows[1]
        own = row_ptr.read(first, page.rows[1] + 1).view(np.int64).reshape(-1) if both else None
        ends = np.unique(np.concatenate((picked, picked + 1)))
        pointers = np.empty(len(ends), np.int64)
        row_ptr.take(ends, pointers.view(np.uint8).reshape(-1, WORD))
        degrees = (
            pointers[np.searchsorted(ends, picked + 1)] - pointers[np.searchsorted(ends, picked)]
        )
        parts = [np.zeros(1, np.int64), degrees] if own is None else [[0], np.diff(own), degrees]
        made = np.cumsum(np.concatenate(parts)).astype(np.int64)
        page.degrees[relation, side] = page.hold(made) - first * WORD

    # rows

    def _rows(self, page: Page) -> None:
        low, high = page.rows
        for node in self.roles.rows:
            if node in page.addresses:
                continue
            home = self.homes[node]
            if home.address:
                page.addresses[node] = home.address
            else:
                block = home.read(low, high)
                page.addresses[node] = page.hold(block) - low * home.row_bytes
        for node in self.program.stores:
            self._row_store(page, node)
        for key in self.roles.row_degrees - set(page.degrees):
            block = self.graph.walks[key[1]].row_ptr.read(low, high + 1)
            page.degrees[key] = page.hold(block) - low * WORD

    def _row_store(self, page: Page, node: Node) -> None:
        if node.type.space == GLOBAL:
            return
        home, (low, high) = self.homes[node], page.rows
        if home.address:
            page.addresses[node] = home.address
            return
        block = _empty(high - low, home)
        page.addresses[node] = page.hold(block) - low * home.row_bytes
        page.finish.append(lambda: home.write(low, block))


DENSE = 2
"""Where a window's rows are named so many times on average, it is taken whole: few are not."""

SPREAD = 4
"""Where a window holds so many rows for each time one is named, numbers are sorted."""


def pick(numbers: np.ndarray, base: int, exact: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """The distinct numbers in order, int64, and for each number `base` plus its place among them.

    Without `exact`, numbers that do not occur may be among them.
    """
    if not len(numbers):
        return np.empty(0, np.int64), numbers
    if base + len(numbers) > np.iinfo(numbers.dtype).max:
        raise UnsupportedByBackend(
            f"rows are numbered beyond {numbers.dtype} in a page that starts at row {base} of a "
            "graph in a file; use `graph.in_memory()`."
        )
    low, high = int(numbers.min()), int(numbers.max()) + 1
    if not exact and DENSE * (high - low) <= len(numbers):
        return np.arange(low, high), numbers + numbers.dtype.type(base - low)
    if high - low > SPREAD * len(numbers):
        picked, places = np.unique(numbers, return_inverse=True)
        places = places.reshape(-1).astype(numbers.dtype) + numbers.dtype.type(base)
        return picked.astype(np.int64), places
    shifted = numbers - numbers.dtype.type(low)
    used = np.zeros(high - low, np.bool_)
    used[shifted] = True
    places = np.cumsum(used, dtype=numbers.dtype)
    places += numbers.dtype.type(base - 1)
    picked = np.flatnonzero(used)
    picked += low
    return picked, places[shifted]


def _empty(rows: int, home: Rows) -> np.ndarray:
    return empty_block(rows, home.row_bytes)


def _require_rising(row_ptr: np.ndarray, edges: int) -> None:
    if row_ptr[0] != 0 or row_ptr[-1] != edges or (np.diff(row_ptr) < 0).any():
        raise Damaged("the row pointers in the file do not cut its edges into rows")


def _require_below(numbers: np.ndarray, extent: int) -> None:
    if len(numbers) and (int(numbers.max()) >= extent or int(numbers.min()) < 0):
        raise Damaged(f"the file holds an index out of the range 0..{extent - 1}")
