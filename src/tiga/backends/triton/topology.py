"""Relations on the GPU: both orientations and the work list of each, built by vectorised ops."""

import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tiga.backends.triton.layout import padded
from tiga.relations.csr import Csr
from tiga.relations.on_device import DeviceCsr
from tiga.relations.snapshot import Snapshot

CHUNK = 256
"""Edges in a chunk of a split row: work lists are balanced to it, and sums stay accurate."""


MOST_EDGES = 1024
"""Tiles do not differ beyond this degree."""


@dataclass(frozen=True)
class Degrees:
    """How the rows of a walk are, as far as schedules depend on it.

    `typical` is the degree of a random edge's row, `mean` that of a random row, both as powers of
    two. `breaks` is the share, in sixteenths, of rows whose edges do not follow those of the row
    before in a work list that takes rows longest first. `index_bytes` is the size of a node's
    number.
    """

    typical: int
    mean: int
    breaks: int = 0
    index_bytes: int = 4

    def __str__(self) -> str:
        text = f"rows of about {self.mean} edges"
        return text if self.typical == self.mean else f"{text}, an edge's of about {self.typical}"


NO_EDGES = Degrees(1, 0)
"""Of rows that walk no edges."""


@dataclass(frozen=True, eq=False)
class DeviceWalk:
    """One orientation of a relation as torch tensors on a device.

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

    @property
    def num_chunks(self) -> int:
        return self.chunk_hub.shape[0]

    @property
    def num_hubs(self) -> int:
        return self.hub_rows.shape[0]

    @property
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


def device_walk(topology: Snapshot, side: str, device: Any) -> DeviceWalk:
    """The walk of a topology on a device, built once."""
    key = (KEY, side, str(device))
    return topology.keep(key, lambda: _timed(topology, side, device))


def _timed(topology: Snapshot, side: str, device: Any) -> DeviceWalk:
    start = time.perf_counter()
    walk = _walk(*_rows(topology, side, device))
    # The last step waited for the device.
    return replace(walk, seconds=time.perf_counter() - start)


def _rows(topology: Snapshot, side: str, device: Any) -> tuple[Any, Any, Any]:
    """Row pointers, the nodes at the other ends, and edge numbers (None: positions)."""
    csr = topology.topology
    if not isinstance(csr, DeviceCsr) or csr.col_idx.device != device:
        csr = topology.keep((KEY, str(device)), lambda: _sent(topology.csr, device))
    if side == "dst":
        return csr.row_ptr, csr.col_idx, None
    return csr.transposed()


def _sent(csr: Csr, device: Any) -> DeviceCsr:
    """A topology of the host, on a device."""
    import torch

    dtype = torch.int32 if csr.index_dtype == np.int32 else torch.int64
    row_ptr = torch.from_numpy(np.array(csr.row_ptr, np.int64)).to(device)
    sources = torch.from_numpy(np.array(csr.col_idx)).to(device, dtype)
    return DeviceCsr(csr.num_src, csr.num_dst, row_ptr, sources)


def starts(counts: Any) -> Any:
    """0 and the running sums of counts."""
    import torch

    return torch.cat([counts.new_zeros(1), counts.cumsum(0)])


def _walk(row_ptr: Any, index: Any, edge_id: Any) -> DeviceWalk:
    import torch

    degree = row_ptr.diff()
    hub_rows = torch.nonzero(degree > CHUNK).flatten()
    pieces = (degree[hub_rows] + CHUNK - 1) // CHUNK
    hub_ptr = starts(pieces)
    chunk_hub = torch.repeat_interleave(torch.arange(len(hub_rows), device=row_ptr.device), pieces)
    ordinal = torch.arange(len(chunk_hub), device=row_ptr.device) - hub_ptr[chunk_hub]
    chunk_row = hub_rows[chunk_hub]
    chunk_low = row_ptr[chunk_row] + ordinal * CHUNK
    chunk_count = torch.minimum(row_ptr[chunk_row + 1] - chunk_low, torch.full_like(ordinal, CHUNK))
    whole = torch.nonzero(degree <= CHUNK).flatten()
    whole = whole[torch.argsort(degree[whole], descending=True, stable=True)]
    breaks = (row_ptr[whole + 1][:-1] != row_ptr[whole][1:]).sum()
    return DeviceWalk(
        num_rows=degree.shape[0],
        num_edges=index.shape[0],
        row_ptr=row_ptr,
        index=index,
        edge_id=edge_id,
        item_row=torch.cat([chunk_row, whole]).to(index.dtype),
        item_low=torch.cat([chunk_low, row_ptr[whole]]).to(index.dtype),
        item_count=torch.cat([chunk_count, degree[whole]]).to(torch.int32),
        hub_rows=hub_rows,
        hub_ptr=hub_ptr,
        chunk_hub=chunk_hub,
        degrees=_degrees(degree, breaks, index.element_size()),
    )


def _degrees(degree: Any, breaks: Any, index_bytes: int) -> Degrees:
    """The facts in one copy to the host."""
    import torch

    rows = degree.shape[0]
    squared = (degree.double() ** 2).sum()
    sums = torch.stack([degree.sum().double(), squared, breaks.double()])
    edges, squares, apart = sums.tolist()
    return Degrees(
        typical=min(padded(max(1, round(squares / max(edges, 1)))), MOST_EDGES),
        mean=min(padded(max(1, round(edges / max(rows, 1)))), MOST_EDGES),
        breaks=round(16 * apart / max(rows, 1)),
        index_bytes=index_bytes,
    )
