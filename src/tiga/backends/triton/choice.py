"""Which schedule a row program gets on a graph: tiles of rows, or tiles of consecutive edges."""

from collections.abc import Callable
from dataclasses import dataclass

from tiga.backends.triton.edge_tiles import EdgeTile
from tiga.backends.triton.layout import Tile
from tiga.backends.triton.schedule import choose_tile
from tiga.backends.triton.segments import fits
from tiga.backends.triton.topology import NO_EDGES, Degrees
from tiga.passes.rows import RowProgram

SECTOR = 32
"""Bytes that a GPU reads at least."""

EDGES = 1024
"""Edges of a tile: eight a thread, so that four lie side by side twice."""

WARPS = 4

Choose = Callable[[RowProgram, Degrees], Tile]
"""The tile of a row program for rows of such degrees."""


@dataclass(frozen=True)
class Cost:
    """Bytes that a schedule moves per edge of a graph, in sectors as memory moves them."""

    rows: float
    edges: float


def cost(program: RowProgram, degrees: Degrees) -> Cost:
    """What both schedules move for values that are single numbers.

    Both read one sector per edge for each value at the other end. Tiles of rows read the part of a
    row from every array of edges: whole sectors, and on average half of one more at each end.
    Tiles of edges read these arrays in lines, with a bit per edge and two row pointers per row.
    """
    gathered = [n for n in program.reads if n.type.space != _edges_of(program)]
    arrays = [n.type.dtype.itemsize for n in program.reads if n.type.space == _edges_of(program)]
    arrays.append(degrees.index_bytes)
    per_row = 1 / max(degrees.mean, 1)
    rows = sum(size + SECTOR * per_row for size in arrays)
    lines = sum(arrays) + 1 / 8 + 16 * per_row
    both = SECTOR * len(gathered)
    return Cost(both + rows, both + lines)


def _edges_of(program: RowProgram) -> object:
    assert program.relation is not None
    return program.relation.edge


def choose(program: RowProgram, degrees: Degrees) -> Tile:
    """The tile of a row program for rows of such degrees.

    Raises:
        Unfusable: a value is too wide for any tile.
    """
    tile = choose_tile(program, degrees.typical)
    if degrees == NO_EDGES or not fits(program):
        return tile
    found = cost(program, degrees)
    return edge_tile() if found.edges < found.rows else tile


def edge_tile(edges: int = EDGES, warps: int = WARPS) -> EdgeTile:
    """A tile of consecutive edges for single numbers."""
    return EdgeTile(1, edges, warps, 1, 1)
