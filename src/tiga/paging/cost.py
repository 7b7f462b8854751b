"""What a page of a walk takes and moves."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial

from tiga.paging.numbers import SPREAD, crew_bytes
from tiga.paging.page import WORD
from tiga.paging.span import Span
from tiga.paging.stage import Stage
from tiga.relations.spread import NOWHERE, Core, distinct
from tiga.runtime.arena import ALIGNMENT, slack
from tiga.runtime.pages import Rows, picking, putting
from tiga.trace.node import Node
from tiga.types import GLOBAL

WASTE = 2
"""Windows are taken whole where that takes at most so many times the memory of picking rows."""

SLACK = 64 * ALIGNMENT
"""Beside the arrays: few rows may take a whole piece, and what is not counted otherwise."""


@dataclass(frozen=True)
class Costs:
    """Bytes that a page stages, and of those, what is read from files and written to them: per
    row, per row of the other end (`others` where a window is taken, `picked` where rows are), and
    per edge, by position and by number. `joined` is per edge by position where several ranges of
    edges are staged side by side: those in memory too."""

    rows: int
    others: int
    picked: int
    edges: int
    joined: int
    numbered: int
    picked_edges: int
    read_rows: int
    read_others: int
    read_edges: int
    read_numbered: int
    written_rows: int
    written_edges: int
    shared: int
    stores_numbers: int
    kept: int
    arrays: int


def bytes_staged(homes: Mapping[Node, Rows], nodes: Iterable[Node]) -> int:
    """Bytes per row of values over entities that kernels cannot address where they are."""
    found = (homes[n] for n in nodes if n.type.space != GLOBAL)
    return sum(home.row_bytes for home in found if not home.address)


def bytes_in_files(homes: Mapping[Node, Rows], nodes: Iterable[Node]) -> int:
    """Bytes per row of values over entities that lie in files."""
    found = (homes[n] for n in nodes if n.type.space != GLOBAL)
    return sum(home.row_bytes for home in found if home.in_file)


def costs_of(stage: Stage) -> Costs:
    """What staging takes, array by array: those in memory that kernels address cost nothing."""
    staged, from_file = partial(bytes_staged, stage.homes), partial(bytes_in_files, stage.homes)
    roles, stores = stage.roles, stage.program.stores
    others = roles.others if stage.remaps else frozenset[Node]()
    every = sum(stage.homes[n].row_bytes for n in others)
    degrees = WORD * len(roles.other_degrees)
    reads = tuple(n for n in stage.edge_arrays if n not in stage.edge_stores)
    numbered = stage.walk.edge_id is not None
    edge_bytes = staged(stage.edge_arrays)
    every_edge = sum(stage.homes[n].row_bytes for n in stage.edge_arrays)
    return Costs(
        rows=staged(roles.rows) + staged(stores) + WORD * len(roles.row_degrees) + stage.row_list,
        others=staged(others) + degrees,
        picked=every + degrees,
        edges=stage.edge_list + (0 if numbered else edge_bytes),
        joined=stage.edge_list + (0 if numbered else every_edge),
        numbered=edge_bytes if numbered else 0,
        picked_edges=every_edge,
        read_rows=from_file(roles.rows) + WORD * len(roles.row_degrees),
        read_others=from_file(others) + degrees,
        read_edges=0 if numbered else from_file(reads),
        read_numbered=from_file(reads) if numbered else 0,
        written_rows=from_file(stores),
        written_edges=0 if numbered else from_file(stage.edge_stores),
        shared=every + degrees if stage.shares_ends else 0,
        stores_numbers=from_file(stage.edge_stores) if numbered else 0,
        kept=from_file(stage.edge_stores) + stage.walk.dtype.itemsize * len(stage.collectable),
        arrays=stage.arrays,
    )


@dataclass(frozen=True)
class Reach:
    """What some tasks name: the range of all indices and edge numbers, and their cores."""

    window: tuple[int, int] = (0, 0)
    numbers: tuple[int, int] = (0, 0)
    core: Core = NOWHERE
    numbers_core: Core = NOWHERE

    def joined(self, other: "Reach") -> "Reach":
        """What both name."""
        return Reach(
            _hull(self.window, other.window), _hull(self.numbers, other.numbers),
            self.core.joined(other.core), self.numbers_core.joined(other.numbers_core),
        )  # fmt: skip


@dataclass(frozen=True)
class Prices:
    """The prices of one walk's pages; `collects` where what is stored by number in files is kept
    as it comes, and put in order after the walk."""

    stage: Stage
    collects: bool = False

    @cached_property
    def costs(self) -> Costs:
        """What staging takes, array by array."""
        return costs_of(self.stage)

    @cached_property
    def widest(self) -> int:
        """The most bytes of a row that may be picked."""
        picked = (*self.stage.roles.others, *self.stage.edge_arrays)
        return max((self.stage.homes[n].row_bytes for n in picked), default=1)

    @cached_property
    def reaches(self) -> list[Reach]:
        """What each task names."""
        walk = self.stage.walk
        return [
            Reach((row[1], row[2]), (row[3], row[4]), *core)
            for row, core in zip(walk.tasks.tolist(), walk.cores, strict=False)
        ]

    def of(self, span: Span, reach: Reach, sure: bool) -> Span:
        """A span with what it takes and moves, given what it names; `sure` counts rows that may be
        named as all distinct."""
        costs, word = self.costs, self.stage.walk.dtype.itemsize
        rows, edges = span.rows[1] - span.rows[0], span.edges
        real = edges - span.gap * (len(span.parts) - 1)
        nbytes = (
            SLACK
            + self.stage.page_list
            + (rows + 1) * (WORD + costs.rows)
            + edges * (word + (costs.edges if len(span.parts) == 1 else costs.joined))
        )
        read = (rows + 1) * (WORD + costs.read_rows) + real * (word + costs.read_edges)
        others = numbered = True
        seeks = 0
        if self.stage.remaps:
            others, held, taken, seeks = self._taken(span, reach, sure)
            nbytes, read = nbytes + held, read + taken
        if costs.numbered:
            numbered, held, taken, more = self._numbered(edges, reach)
            nbytes, read, seeks = nbytes + held, read + taken, seeks + more
        if self.stage.walk.edge_id is not None and self.stage.edge_arrays:
            nbytes += 0 if costs.numbered else edges * word
            read += real * word
        again, written = self._written(rows, real, reach)
        read, nbytes = read + again, nbytes + slack(nbytes, costs.arrays)
        return replace(span, others_whole=others, edges_whole=numbered,
                       window=reach.window, numbers=reach.numbers, nbytes=nbytes,
                       read=read, written=written, seeks=seeks)  # fmt: skip

    def _written(self, rows: int, edges: int, reach: Reach) -> tuple[int, int]:
        """Bytes that storing results reads and writes."""
        costs = self.costs
        plain = rows * costs.written_rows + edges * costs.written_edges
        if self.collects or not costs.stores_numbers:
            return 0, plain + edges * costs.kept * bool(costs.stores_numbers)
        again, stored = _storing(reach, edges, costs.stores_numbers)
        return again, plain + stored

    def _taken(self, span: Span, reach: Reach, sure: bool) -> tuple[bool, int, int, int]:
        """Whether the window of the other ends is taken whole, bytes it takes, bytes read and
        runs of rows read alone."""
        costs, word = self.costs, self.stage.walk.dtype.itemsize
        rows, size = span.rows[1] - span.rows[0], reach.window[1] - reach.window[0]
        named = min(span.edges, size) if sure else self._named(reach.core, span.edges)
        whole = _hull(reach.window, span.rows) if costs.shared else reach.window
        hull = whole[1] - whole[0]
        windowed = (hull + 1) * costs.others
        picked = named * costs.picked + (rows + 1) * costs.shared
        picked += _scratch(size, span.edges, word) + crew_bytes(self.widest, picked)
        if windowed <= WASTE * picked or self.stage.program.scatters:
            return True, windowed, (hull + 1) * costs.read_others, 0
        found, seeks = reading(reach.core, size, span.edges, costs.read_others)
        return False, picked, found + rows * costs.read_others * bool(costs.shared), seeks

    @staticmethod
    def _named(core: Core, edges: int) -> int:
        """Distinct rows that a page probably names."""
        return distinct(core.size, edges - core.outside) + core.outside

    def _numbered(self, edges: int, reach: Reach) -> tuple[bool, int, int, int]:
        """The same for values by edge number; each edge has its own."""
        costs, word = self.costs, self.stage.walk.dtype.itemsize
        size = reach.numbers[1] - reach.numbers[0]
        windowed = size * (costs.numbered + bool(costs.stores_numbers))
        picked = min(edges, size) * costs.picked_edges
        picked += _scratch(size, edges, word) + crew_bytes(self.widest, picked)
        own = edges * word
        if windowed <= WASTE * picked:
            return True, windowed + own, size * costs.read_numbered, 0
        found, seeks = reading(reach.numbers_core, size, edges, costs.read_numbered)
        return False, picked + own, found, seeks


def _hull(a: tuple[int, int], b: "tuple[int, int] | list[int]") -> tuple[int, int]:
    """The least range that holds both; one that is empty counts for nothing."""
    if b[0] >= b[1]:
        return a
    return (b[0], b[1]) if a[0] >= a[1] else (min(a[0], b[0]), max(a[1], b[1]))


def reading(core: Core, window: int, edges: int, row_bytes: int) -> tuple[int, int]:
    """Bytes that picking rows reads, and runs that are read alone."""
    inside, near = picking(distinct(core.size, edges - core.outside), core.size, row_bytes)
    others, far = picking(min(core.outside, window), window, row_bytes)
    return min(inside + others, window) * row_bytes, near + far


def _storing(reach: Reach, edges: int, row_bytes: int) -> tuple[int, int]:
    """Bytes that storing values by edge number reads and writes."""
    core, size = reach.numbers_core, reach.numbers[1] - reach.numbers[0]
    near = putting(edges - core.outside, core.size, row_bytes)
    far = putting(core.outside, size, row_bytes)
    return near[0] + far[0], near[1] + far[1]


def _scratch(window: int, edges: int, word: int) -> int:
    """What numbering the rows of a window anew takes; see `numbers.pick`."""
    return edges * word if window > SPREAD * edges else window * (1 + word)
