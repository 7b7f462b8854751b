"""Which schedule a row program gets on a graph: tiles of rows, or tiles of consecutive edges."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from tiga.backends.triton.edge_tiles import EdgeTile
from tiga.backends.triton.heads import slices
from tiga.backends.triton.layout import Tile
from tiga.backends.triton.scan_tiles import scan_tile
from tiga.backends.triton.schedule import choose_tile
from tiga.backends.triton.segments import fits
from tiga.backends.triton.table_sums import summed_by_index, table_tile
from tiga.backends.triton.topology import NO_EDGES, Degrees
from tiga.passes.rows import RowProgram
from tiga.types import GLOBAL, Space

SECTOR = 32
"""Bytes that a GPU reads at least."""

EDGES, WARPS = 512, 4
"""A tile of edges: four to a thread, which is one access of 16 bytes to each array."""

SCAN = 2.0
"""What scanning an edge costs beside a loop over it, as bytes: 5% of a weighted sum on an H200."""

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
    row from every array of edges; where the next row lies elsewhere, that is half a sector too many
    at both ends. Tiles of edges read these arrays in lines, and have to scan.
    """
    edges = _edges_of(program)
    sizes = [n.type.dtype.itemsize for n in program.reads if n.type.space == edges]
    sizes.append(degrees.index_bytes)
    gathered = sum(n.type.space not in (edges, GLOBAL) for n in program.reads)
    apart = SECTOR * degrees.breaks / 16 / degrees.mean
    both = float(SECTOR * gathered + sum(sizes))
    return Cost(both + apart * len(sizes), both + SCAN)


def _edges_of(program: RowProgram) -> Space:
    assert program.relation is not None
    return program.relation.edge


def choose(program: RowProgram, degrees: Degrees) -> Tile:
    """The tile of a row program for rows of such degrees.

    Raises:
        Unfusable: a value is too wide for any tile.
    """
    if program.scans or program.scatters:
        return scan_tile(program)
    summed = summed_by_index(program)
    if summed is not None:
        return table_tile(summed)
    tile = choose_tile(program, degrees.typical, degrees.few)
    if degrees != NO_EDGES and not tile.is_flat:
        parts = slices(program, degrees.far)
        tile = replace(tile, slices=parts, rows=parts * tile.rows)
    if degrees == NO_EDGES or not fits(program):
        return tile
    found = cost(program, degrees)
    return edge_tile() if found.edges < found.rows else tile


def edge_tile(edges: int = EDGES, warps: int = WARPS) -> EdgeTile:
    """A tile of consecutive edges for single numbers."""
    return EdgeTile(1, edges, warps, 1, 1)


def why(program: RowProgram, degrees: Degrees, tile: Tile) -> str:
    """What a tile was chosen by, in words."""
    if degrees == NO_EDGES:
        return "no edges"
    if not fits(program):
        return str(degrees)
    found = cost(program, degrees)
    order = "less" if isinstance(tile, EdgeTile) else "no less"
    return (
        f"{degrees}; {found.edges:.1f} bytes an edge in their order, which is {order} than the "
        f"{found.rows:.1f} row by row, longest first"
    )
