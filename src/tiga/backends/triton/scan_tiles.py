"""The tile of a program with scans, and its rows where none is split: the longest come first."""

from dataclasses import dataclass
from math import prod
from typing import Any

from tiga.backends.triton.evaluate import check_size
from tiga.backends.triton.layout import WARP, Tile, padded
from tiga.backends.triton.scans import BLOCK
from tiga.backends.triton.schedule import (
    OUTER_GROUPS,
    TOTAL_GROUPS,
    WINDOW_BYTES,
    facts,
    flat_size,
    in_registers,
    warps_for,
)
from tiga.backends.triton.topology import KEY, DeviceWalk, longest_first, steps
from tiga.passes.carries import kept_scans
from tiga.passes.rows import RowProgram
from tiga.relations.snapshot import Snapshot
from tiga.runtime.platform import IndexArrays, Platform

THREAD_ELEMENTS = 2
"""Elements of a carry per thread: edges come one after another, so that many programs side by side
hide what each waits for."""

AHEAD, AHEAD_ELEMENTS = 4, 16
"""Edges of a row whose values are loaded at once, and the elements of a value per thread that they
come to at most."""

WIDE = 1024
"""Elements of a value that take more warps than one."""

KEPT_ELEMENTS = 1 << 23
"""Elements of carries that all programs keep at a time: as many as a cache holds."""

LEAST_GROUPS = 64
"""Programs that run side by side even so."""

UNIT_ROWS = 16
"""Rows with which products may use matrix units."""


def scan_tile(program: RowProgram) -> Tile:
    """Rows side by side, one edge of each at a time.

    Raises:
        Unfusable: a value is too wide for any tile.
    """
    known = facts(program)
    ops = [scan.before.op for scan in program.scans]
    steps = [n for op in ops for region in (op.step, op.join) for n in region.order]
    plain = [n for n in in_registers(program) if not n.op.carries]
    nodes = [*plain, *steps]
    widest = max(prod(map(padded, n.type.shape)) for n in nodes)
    check_size(widest, "the widest value of a reducer")
    itemsize = max(n.type.dtype.compute.itemsize for n in nodes)
    whole = flat_size(program, nodes)
    window = min(padded(whole), WINDOW_BYTES // itemsize) if whole else 0
    width = window or widest
    warps = 1 if width <= WIDE and not known.num_products else warps_for(width)
    rows = max(1, WARP * warps * THREAD_ELEMENTS // width)
    rows = max(rows, UNIT_ROWS) if known.num_products else rows
    beside = known.num_products or program.outer_sums
    ahead = 1 if beside else AHEAD_ELEMENTS * WARP * warps // (rows * width)
    ahead = max(1, min(AHEAD, ahead))
    return Tile(rows, 1, warps, whole, window, _groups(program, rows), ahead=ahead)


def _groups(program: RowProgram, rows: int) -> int:
    """Programs at most, where they leave pieces of totals or keep carries of a block of edges."""
    groups = OUTER_GROUPS if program.outer_sums else TOTAL_GROUPS
    kept = max((scan.before.type.size for scan in kept_scans(program)), default=0)
    if kept:
        return max(LEAST_GROUPS, min(groups, KEPT_ELEMENTS // (rows * BLOCK * kept)))
    return groups if program.has_sums else 0


@dataclass(frozen=True, eq=False)
class WholeRows:
    """A walk none of whose rows is split: its work list, longest rows first."""

    walk: DeviceWalk
    item_row: Any
    item_low: Any
    item_count: Any
    num_chunks: int = 0
    num_hubs: int = 0

    def parts(self) -> dict[str, list[Any]]:
        """Its arrays, by the part of a graph that they count to."""
        return {"plan": [self.item_row, self.item_low, self.item_count]}

    @property
    def plan_bytes(self) -> int:
        """Bytes beside those of the walk."""
        return sum(array.nbytes for array in self.parts()["plan"])

    def count(self, over: str) -> int:
        """How many entities a kernel is launched over."""
        return self.item_row.shape[0] if over == "items" else 0

    def array(self, key: str, over: str) -> Any:
        """The array that a parameter of a kernel stands for."""
        return getattr(self, key) if key.startswith("item_") else self.walk.array(key, over)


def whole_rows(
    topology: Snapshot, walk: DeviceWalk, side: str, platform: Platform
) -> DeviceWalk | WholeRows:
    """The rows of a walk, its work list built once."""
    if not walk.num_chunks:
        return walk
    key = (KEY, side, platform.name, "whole rows")
    return topology.keep(key, lambda: _whole(platform.arrays, walk))


def _whole(arrays: IndexArrays, walk: DeviceWalk) -> WholeRows:
    low, bits, rest = walk.row_ptr, 8 * walk.item_row.itemsize, slice(walk.num_chunks, None)
    degree = steps(low)
    hubs = longest_first(arrays, walk.hub_rows, degree, walk.num_edges)
    return WholeRows(
        walk=walk,
        item_row=arrays.join([arrays.cast(hubs, bits), walk.item_row[rest]]),
        item_low=arrays.join([arrays.cast(low[hubs], bits), walk.item_low[rest]]),
        item_count=arrays.join([arrays.cast(degree[hubs], 32), walk.item_count[rest]]),
    )
