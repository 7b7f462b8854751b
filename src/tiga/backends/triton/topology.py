"""Relations on the GPU: both orientations and the work list of each, built there."""

import time
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from tiga.backends.triton.layout import padded
from tiga.relations.csr import Csr
from tiga.relations.on_device import DeviceCsr, is_small
from tiga.relations.snapshot import Snapshot
from tiga.runtime.host_arrays import HOST_ARRAYS
from tiga.runtime.platform import IndexArrays, Platform

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

CHUNK = 256
"""Edges in a chunk of a split row: work lists are balanced to it, and sums stay accurate."""

MOST_EDGES = 1024
"""Tiles do not differ beyond this degree."""

FEW_ROWS = 8192
"""Rows below which schedules depend on how many there are: others give every multiprocessor of a
GPU several tiles of rows."""


@dataclass(frozen=True)
class Degrees:
    """How the rows of a walk are, as far as schedules depend on it.

    `typical` is the degree of a random edge's row, `mean` that of a random row, both as powers of
    two. `breaks` is the share, in sixteenths, of rows whose edges do not follow those of the row
    before in a work list that takes rows longest first. `index_bytes` is the size of a node's
    number, `far` the number of nodes at the other ends as a power of two (0: not known). `few` is
    that of rows where there are so few that tiles of many rows leave multiprocessors idle, else 0.
    """

    typical: int
    mean: int
    breaks: int = 0
    index_bytes: int = 4
    far: int = 0
    few: int = 0

    @staticmethod
    def of(rows: int, edges: int, squares: int, apart: int, index_bytes: int) -> "Degrees":
        """Those of a walk with the sum of squared degrees `squares`, and so many rows `apart` from
        the one before in its work list."""
        return Degrees(
            typical=min(padded(max(1, round(squares / max(edges, 1)))), MOST_EDGES),
            mean=min(padded(max(1, round(edges / max(rows, 1)))), MOST_EDGES),
            breaks=round(16 * apart / max(rows, 1)),
            index_bytes=index_bytes,
            few=padded(rows) if rows < FEW_ROWS else 0,
        )

    def towards(self, far: int) -> "Degrees":
        """Those of a walk with so many nodes at the other ends."""
        return replace(self, far=padded(far))

    def __str__(self) -> str:
        text = f"rows of about {self.mean} edges"
        return text if self.typical == self.mean else f"{text}, an edge's of about {self.typical}"


Sent = TypeVar("Sent", bound="DataclassInstance")

NO_EDGES = Degrees(1, 0)
"""Of rows that walk no edges."""


@dataclass(frozen=True, eq=False)
class DeviceWalk:
    """One orientation of a relation as index arrays of a platform.

    `row_ptr`: int64 `[num_rows + 1]`; `index`, `edge_id`: as in `tiga.relations.Walk`, in its
    dtype. The work list `item_row`, `item_low`, `item_count`: first the chunks of rows with more
    than `CHUNK` edges, by row and position, then every other row, longest first. `hub_rows`,
    `hub_ptr`, `chunk_hub`: int64, the split rows, the chunks of each, and the split row of each
    chunk. All depend on the graph alone.
    """

    num_rows: int
    num_edges: int
    degrees: Degrees
    row_ptr: Any
    index: Any
    edge_id: Any
    item_row: Any
    item_low: Any
    item_count: Any
    hub_rows: Any
    hub_ptr: Any
    chunk_hub: Any
    seconds: float = 0.0
    """What building it took."""
    copied: bool = False
    """Whether the index arrays lay on the host and were copied."""

    @cached_property
    def num_chunks(self) -> int:
        return self.chunk_hub.shape[0]

    @cached_property
    def num_hubs(self) -> int:
        return self.hub_rows.shape[0]

    @cached_property
    def num_items(self) -> int:
        return self.item_row.shape[0]

    def count(self, over: str) -> int:
        """How many entities a kernel is launched over."""
        counts = {
            "items": self.num_items,
            "whole": self.num_items - self.num_chunks,
            "chunks": self.num_chunks,
            "hubs": self.num_hubs,
        }
        return counts.get(over, 0)

    def array(self, key: str, over: str) -> Any:
        """The array that a parameter of a kernel stands for."""
        array = getattr(self, key)
        skips = over == "whole" and key.startswith("item_")
        return array[self.num_chunks :] if skips else array

    @property
    def plan_bytes(self) -> int:
        """Bytes of the work list."""
        return sum(array.nbytes for array in self.parts()["plan"])

    def parts(self) -> dict[str, list[Any]]:
        """Its arrays, by the part of a graph that they count to."""
        plan = [self.item_row, self.item_low, self.item_count, self.hub_rows, self.hub_ptr,
                self.chunk_hub]  # fmt: skip
        part = "csr" if self.edge_id is None else "transpose"
        return {part: [self.row_ptr, self.index], "edge_map": [self.edge_id], "plan": plan}

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        arrays = (self.row_ptr, self.index, self.edge_id)
        return self.plan_bytes + sum(array.nbytes for array in arrays if array is not None)


KEY = "device walk"
"""What the key of a walk among the things derived from a topology starts with."""

HOST = "host walk"
"""The same for walks that are planned on the host and sent."""


def device_walk(topology: Snapshot, side: str, platform: Platform) -> DeviceWalk:
    """The walk of a topology on a device, built once."""
    key = (KEY, side, platform.name)
    return topology.keep(key, lambda: _timed(topology, side, platform))


def _timed(topology: Snapshot, side: str, platform: Platform) -> DeviceWalk:
    start = time.perf_counter()
    far = topology.num_src if side == "dst" else topology.num_dst
    if is_planned_here(topology):
        plan = host_walk(topology, side)
        return sent(plan, platform, degrees=plan.degrees.towards(far), copied=True)
    csr = device_csr(topology, platform)
    rows = (csr.row_ptr, csr.col_idx, None) if side == "dst" else csr.transposed()
    walk, copied = _walk(platform.arrays, *rows), csr is not topology.topology
    if walk.num_rows:
        platform.arrays.numbers([walk.item_count[:1]])  # runs may be on other streams: wait here
    seconds = time.perf_counter() - start
    return replace(walk, degrees=walk.degrees.towards(far), seconds=seconds, copied=copied)


def is_planned_here(topology: Snapshot) -> bool:
    """Whether walks are planned on the host: it takes tens of operations, and a device is asked for
    each, and waited for by some."""
    csr = topology.topology
    return isinstance(csr, Csr) and is_small(csr.num_src, csr.num_dst, csr.num_edges)


def host_walk(topology: Snapshot, side: str) -> DeviceWalk:
    """A walk in numpy's arrays, of a topology that is planned here."""
    found: DeviceWalk | None = topology.plans.get((HOST, side))
    return found or topology.keep_plan((HOST, side), _walk_here(topology.csr, side))


def _walk_here(csr: Csr, side: str) -> DeviceWalk:
    start = time.perf_counter()
    rows = (csr.row_ptr, csr.sources, None) if side == "dst" else csr.transposed()
    walk = _walk(HOST_ARRAYS, *rows)
    return replace(walk, seconds=time.perf_counter() - start)


def sent(plan: Sent, platform: Platform, **changes: Any) -> Sent:
    """A plan in numpy's arrays, on a device; with changes to what is no array."""
    arrays = {name: value for name, value in vars(plan).items() if isinstance(value, np.ndarray)}
    there = platform.sent_together(list(arrays.values()))
    return replace(plan, **dict(zip(arrays, there, strict=True)), **changes)


def device_csr(topology: Snapshot, platform: Platform) -> DeviceCsr:
    """The topology in arrays of a platform: as it is, or copied there once."""
    csr = topology.topology
    if isinstance(csr, DeviceCsr) and platform.owns(csr.col_idx):
        return csr
    return topology.keep((KEY, platform.name), lambda: _sent(topology.csr, platform))


def _sent(csr: Csr, platform: Platform) -> DeviceCsr:
    """A topology of the host, on a device."""
    row_ptr = platform.sent(csr.row_ptr.astype(np.int64, copy=False))
    sources = platform.sent(csr.col_idx.astype(csr.index_dtype, copy=False))
    return DeviceCsr(csr.num_src, csr.num_dst, row_ptr, sources)


def steps(x: Any) -> Any:
    """What each element is more than the one before."""
    return x[1:] - x[:-1]


def starts(arrays: IndexArrays, counts: Any) -> Any:
    """0 and the running sums of counts, in int64."""
    sums = arrays.running_sums(counts)
    return arrays.join([arrays.full(sums, 1, 0), sums])


def longest_first(arrays: IndexArrays, rows: Any, degree: Any, most: int) -> Any:
    """Rows by their degree, which is at most `most`; equal ones in their order."""
    return rows[arrays.order(most - degree[rows], most + 1)]


def _walk(arrays: IndexArrays, row_ptr: Any, index: Any, edge_id: Any) -> DeviceWalk:
    degree, low = steps(row_ptr), row_ptr[:-1]
    # Rows that are split come first, in their order, then the others, longest first.
    order = arrays.order((CHUNK + 1 - degree) * (degree <= CHUNK), CHUNK + 2)
    counts, begins = degree[order], low[order]
    breaks = (begins[:-1] + counts[:-1] != begins[1:]) & (counts[:-1] <= CHUNK)
    pieces = (counts + (CHUNK - 1)) // CHUNK * (counts > CHUNK)
    facts = [arrays.total(x) for x in (counts > CHUNK, pieces, degree * degree, breaks)]
    num_hubs, num_chunks, squares, apart = arrays.numbers(facts)
    items = order, begins, counts
    chunk_hub, hub_ptr = arrays.full(low, 0, 0), arrays.full(low, 1, 0)
    if num_hubs:
        hub_ptr = starts(arrays, pieces[:num_hubs])
        chunk_hub, *chunks = _chunks(arrays, order, begins, counts, hub_ptr, num_chunks)
        items = tuple(
            arrays.join([chunk, whole[num_hubs:]])
            for chunk, whole in zip(chunks, items, strict=True)
        )
    rows, bits = degree.shape[0], 8 * index.itemsize
    return DeviceWalk(
        num_rows=rows,
        num_edges=index.shape[0],
        row_ptr=row_ptr,
        index=index,
        edge_id=edge_id,
        item_row=arrays.cast(items[0], bits),
        item_low=arrays.cast(items[1], bits),
        item_count=arrays.cast(items[2], 32),
        hub_rows=arrays.join([order[:num_hubs]]),  # a copy, which does not hold all of it
        hub_ptr=hub_ptr,
        chunk_hub=chunk_hub,
        degrees=Degrees.of(rows, index.shape[0], squares, apart, index.itemsize),
    )


def _chunks(
    arrays: IndexArrays, order: Any, begins: Any, counts: Any, hub_ptr: Any, number: int
) -> tuple[Any, Any, Any, Any]:
    """The position among split rows of each chunk's row, its row, first edge and edges. Rows are in
    `order`, split ones first."""
    hub = arrays.rows(hub_ptr, number)
    low = (arrays.positions(order, number) - hub_ptr[hub]) * CHUNK
    left = counts[hub] - low
    return hub, order[hub], begins[hub] + low, CHUNK - (CHUNK - left) * (left < CHUNK)
