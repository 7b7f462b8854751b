"""Relations on the GPU: both orientations and the work list of each, built by vectorised ops."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from tiga.backends.triton.layout import padded
from tiga.relations.snapshot import Snapshot

CHUNK = 256
"""Edges in a chunk of a split row: work lists are balanced to it, and sums stay accurate."""


@dataclass(frozen=True, eq=False)
class DeviceWalk:
    """One orientation of a relation as torch tensors on a device.

    `row_ptr`: int64 `[num_rows + 1]`; `index`, `edge_id`: as in `tiga.relations.Walk`, in its
    dtype. The work list `item_row`, `item_low`, `item_count`: first the chunks of rows with more
    than `CHUNK` edges, by row and position, then every other row, longest first. `hub_rows`,
    `hub_ptr`, `chunk_hub`: int64, the split rows, the chunks of each, and the split row of each
    chunk. `typical_degree`: of the row of a random edge, as a power of two. All depend on the graph
    alone.
    """

    num_rows: int
    num_edges: int
    typical_degree: int
    row_ptr: Any
    index: Any
    edge_id: Any
    item_row: Any
    item_low: Any
    item_count: Any
    hub_rows: Any
    hub_ptr: Any
    chunk_hub: Any

    @property
    def num_chunks(self) -> int:
        return self.chunk_hub.shape[0]

    @property
    def num_hubs(self) -> int:
        return self.hub_rows.shape[0]

    @property
    def num_items(self) -> int:
        return self.item_row.shape[0]

    @property
    def plan_bytes(self) -> int:
        """Bytes of the work list."""
        plan = (self.item_row, self.item_low, self.item_count, self.hub_rows, self.hub_ptr,
                self.chunk_hub)  # fmt: skip
        return sum(array.nbytes for array in plan)

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
    return topology.get(key, lambda csr: _walk(*_rows(csr, side, device)))


def _rows(csr: Any, side: str, device: Any) -> tuple[Any, Any, Any]:
    """Row pointers, the nodes at the other ends, and edge numbers (None: positions)."""
    import torch

    dtype = torch.int32 if csr.index_dtype == np.int32 else torch.int64
    row_ptr = torch.from_numpy(np.array(csr.row_ptr, np.int64)).to(device)
    sources = torch.from_numpy(np.array(csr.col_idx)).to(device, dtype)
    if side == "dst":
        return row_ptr, sources, None
    rows = torch.arange(csr.num_dst, device=device, dtype=dtype)
    destinations = torch.repeat_interleave(rows, row_ptr.diff())
    order = torch.argsort(sources, stable=True)
    counts = torch.bincount(sources, minlength=csr.num_src)
    return _starts(counts), destinations[order], order.to(dtype)


def _starts(counts: Any) -> Any:
    """0 and the running sums of counts."""
    import torch

    return torch.cat([counts.new_zeros(1), counts.cumsum(0)])


def _walk(row_ptr: Any, index: Any, edge_id: Any) -> DeviceWalk:
    import torch

    degree = row_ptr.diff()
    hub_rows = torch.nonzero(degree > CHUNK).flatten()
    pieces = (degree[hub_rows] + CHUNK - 1) // CHUNK
    hub_ptr = _starts(pieces)
    chunk_hub = torch.repeat_interleave(torch.arange(len(hub_rows), device=row_ptr.device), pieces)
    ordinal = torch.arange(len(chunk_hub), device=row_ptr.device) - hub_ptr[chunk_hub]
    chunk_row = hub_rows[chunk_hub]
    chunk_low = row_ptr[chunk_row] + ordinal * CHUNK
    chunk_count = torch.minimum(row_ptr[chunk_row + 1] - chunk_low, torch.full_like(ordinal, CHUNK))
    whole = torch.nonzero(degree <= CHUNK).flatten()
    whole = whole[torch.argsort(degree[whole], descending=True, stable=True)]
    return DeviceWalk(
        num_rows=degree.shape[0],
        num_edges=index.shape[0],
        typical_degree=_typical_degree(degree),
        row_ptr=row_ptr,
        index=index,
        edge_id=edge_id,
        item_row=torch.cat([chunk_row, whole]).to(index.dtype),
        item_low=torch.cat([chunk_low, row_ptr[whole]]).to(index.dtype),
        item_count=torch.cat([chunk_count, degree[whole]]).to(torch.int32),
        hub_rows=hub_rows,
        hub_ptr=hub_ptr,
        chunk_hub=chunk_hub,
    )


def _typical_degree(degree: Any) -> int:
    """The mean over edges of their row's degree, which tells skewed graphs from even ones."""
    squares = float((degree.double() ** 2).sum())
    return padded(max(1, round(squares / max(float(degree.sum()), 1.0))))
