"""Source-tiled walks: rows whose states memory holds take in the other ends in order, tile by tile.

A page of rows whose other ends lie everywhere reads nearly all of them. A *block* is as many rows
as the budget has room for states of; the other ends go by it once, a *tile* at a time, each read
from one end to the other, and what the block's edges name in it is folded into the states. So all
is read once for each block, and blocks are a few times as long as pages: a page holds what its
edges name, a block a state for each row.

That gives the bits of a walk in memory where the other ends ascend along each row.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from tiga.paging.span import PAGE_COST, Span
from tiga.paging.stage import Stage
from tiga.passes.roles import Roles, roles_of
from tiga.passes.rows import RowProgram, state_bytes
from tiga.trace.node import Node
from tiga.trace.origin import Origin
from tiga.types import Relation

COUNT = 4
"""Bytes of the number of edges that a row has taken."""

FASTER = 4
"""Memory is read and written so many times as fast as files."""


@dataclass(frozen=True)
class Tile:
    """Other ends [low, high), and the edge numbers [numbers) that edges to them have."""

    low: int
    high: int
    numbers: tuple[int, int] = (0, 0)

    @property
    def count(self) -> int:
        return self.high - self.low

    @property
    def edges(self) -> int:
        return self.numbers[1] - self.numbers[0]


@dataclass(frozen=True)
class Block:
    """Tasks [first, last): their rows and edge positions, the tiles of each phase, and the pages in
    which rows are finished."""

    first: int
    last: int
    rows: tuple[int, int]
    edges: tuple[int, int]
    tiles: tuple[tuple[Tile, ...], ...]
    finish: tuple[Span, ...]

    @property
    def span(self) -> Span:
        """As a span."""
        return Span(self.first, self.last, self.rows, (self.edges,))


@dataclass(frozen=True)
class Tiling:
    """A walk by blocks and tiles, in place of `Spans`: `beside` bytes hold a block, and `arenas` of
    `arena_bytes` hold tiles. `passed` are bytes of memory that go by from tile to tile."""

    blocks: tuple[Block, ...]
    arenas: int
    arena_bytes: int
    beside: int
    read: int
    written: int
    passed: int
    stored: int = 0
    kept: int = 0

    @property
    def count(self) -> int:
        """Pages: tiles, and parts of rows that are finished."""
        return sum(sum(map(len, b.tiles)) + len(b.finish) for b in self.blocks)

    @property
    def resident(self) -> int:
        """Bytes in memory beside tiles."""
        return self.beside

    @property
    def peak(self) -> int:
        return self.resident + self.arenas * self.arena_bytes

    @property
    def cost(self) -> float:
        """As of `Spans`; what goes by in memory counts for less."""
        moved = self.peak + self.read + self.written + self.passed / FASTER
        return moved + PAGE_COST * self.count

    @property
    def told(self) -> str:
        """What it is cut into, in words."""
        tiles = sum(len(tiles) for block in self.blocks for tiles in block.tiles)
        rows = max((high - low for low, high in (block.rows for block in self.blocks)), default=0)
        return f"{len(self.blocks)} blocks of up to {rows} rows, {tiles} tiles of their other ends"

    remark = ""


def goes_by_tiles(program: RowProgram) -> bool:
    """Whether a walk whose other ends ascend along each row may go tile by tile: its loops end in
    states of a fixed size, each of its own row."""
    plain = not (program.outer_sums or program.scans or program.scatters)
    edges = [n for phase in program.phases for n in phase.edge_values]
    placed = any(n.op.origin is Origin.POSITION for n in _all_of(edges))
    return plain and bool(program.phases) and not placed


def _all_of(nodes: Iterable[Node]) -> Iterator[Node]:
    stack, seen = list(nodes), set[Node]()
    while stack:
        node = stack.pop()
        if node not in seen:
            seen.add(node)
            yield node
            stack.extend(node.inputs)


@dataclass(frozen=True)
class TilePhases:
    """Where each phase of a walk reads arrays, and what is left to read when rows are finished."""

    stage: Stage

    @cached_property
    def phases(self) -> tuple[Roles, ...]:
        """What earlier phases left at rows is in their states."""
        program, found, known = self.stage.program, [], tuple[Node, ...]()
        for phase in program.phases:
            part = replace(program, phases=(phase,), stores=(), totals=())
            found.append(self._roles(part, known))
            known += phase.row_results
        return tuple(found)

    @cached_property
    def finish(self) -> Roles:
        """What rows read beside, when they are finished."""
        program = self.stage.program
        known = tuple(n for phase in program.phases for n in phase.row_results)
        return self._roles(replace(program, phases=()), known)

    @staticmethod
    def _roles(part: RowProgram, known: tuple[Node, ...]) -> Roles:
        roles = roles_of(replace(part, reads=(*part.reads, *known)))
        return replace(roles, rows=roles.rows.difference(known))

    @cached_property
    def rows(self) -> tuple[Node, ...]:
        """Arrays over rows that edges read: a block holds them."""
        return tuple(dict.fromkeys(n for roles in self.phases for n in roles.rows))

    @cached_property
    def degrees(self) -> frozenset[tuple[Relation, str]]:
        """Degrees of rows that edges read."""
        return frozenset(key for roles in self.phases for key in roles.row_degrees)

    def others(self, phase: int) -> tuple[Node, ...]:
        """Arrays at the other ends that a phase's tiles hold."""
        homes = self.stage.homes
        return tuple(n for n in self.phases[phase].others if not homes[n].address)

    def edges(self, phase: int) -> tuple[Node, ...]:
        """Edge values by number that a phase's tiles hold: of edges in a window of numbers."""
        return (*self.edge_reads(phase), *self.edge_stores(phase))

    def edge_reads(self, phase: int) -> tuple[Node, ...]:
        """Those that it reads."""
        return self._by_number(self.phases[phase].edges.difference(self.stage.edge_stores))

    def edge_stores(self, phase: int) -> tuple[Node, ...]:
        """Those that it writes: parts of the window, as others are for other blocks."""
        return self._by_number(self.stage.program.phases[phase].stores)

    def _by_number(self, nodes: Iterable[Node]) -> tuple[Node, ...]:
        homes, numbered = self.stage.homes, self.stage.walk.edge_id is not None
        return tuple(n for n in nodes if numbered and not homes[n].address)

    @cached_property
    def state_bytes(self) -> tuple[int, ...]:
        """Bytes of a row's states, by phase."""
        phases = self.stage.program.phases
        return tuple(sum(map(state_bytes, phase.reductions)) for phase in phases)
