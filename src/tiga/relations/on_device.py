"""Topology on a GPU: checked and sorted there, with the methods of the index tensors themselves.

Nothing but a few numbers is copied to the host. A fault is only noticed here: the checks on the
host then name it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tiga.relations.csr import Csr
from tiga.relations.indices import INT32_MAX, index_dtype


@dataclass(frozen=True, eq=False)
class DeviceCsr:
    """As `Csr`, in tensors on one device: `row_ptr` int64, the others in the narrowest type."""

    num_src: int
    num_dst: int
    row_ptr: Any
    col_idx: Any
    permutation: Any = None

    @property
    def num_edges(self) -> int:
        return int(self.col_idx.shape[0])

    @property
    def index_dtype(self) -> np.dtype:
        """The narrowest type for node and edge numbers: one for both walks."""
        return index_dtype(self.num_src, self.num_dst, self.num_edges)

    def parts(self) -> dict[str, list[Any]]:
        """Its arrays, by the part of a graph that they count to."""
        return {"csr": [self.row_ptr, self.col_idx, self.permutation]}

    def host(self) -> Csr:
        """A copy in numpy arrays."""
        order = self.permutation
        arrays = self.row_ptr.cpu().numpy(), self.col_idx.cpu().numpy()
        permutation = None if order is None else order.cpu().numpy()
        return Csr(self.num_src, self.num_dst, *arrays, permutation)

    def transposed(self) -> tuple[Any, Any, Any]:
        """Row pointers over sources, the destinations of their edges, and where these lie here."""
        order = self.col_idx.sort(stable=True).indices
        dtype = self.col_idx.dtype
        destinations = positions(self.row_ptr, self.num_dst, dtype)
        rows = destinations.repeat_interleave(self.row_ptr.diff(), output_size=self.num_edges)
        starts = row_pointers(self.col_idx, self.num_src)
        return starts, rows[order], order.to(dtype)


def positions(like: Any, count: int, dtype: Any) -> Any:
    """0, 1, 2, ... on the device of a tensor."""
    return (like.new_ones(count).cumsum(0) - 1).to(dtype)


def row_pointers(rows: Any, num_rows: int) -> Any:
    """Row pointers, int64 `[num_rows + 1]`, of edges of which `rows` names the row."""
    counts = rows.bincount(minlength=num_rows)
    pointers = counts.new_zeros(num_rows + 1)
    pointers[1:] = counts.cumsum(0)
    return pointers


def narrow(indices: Any, *extents: int) -> Any:
    """The indices in the narrowest type that holds these extents."""
    return indices.int() if index_dtype(*extents) == np.int32 else indices.long()


def _facts(values: Sequence[Any]) -> list[int]:
    """Tensors of one element as numbers, in one copy to the host."""
    found = values[0].new_empty(len(values)).long()
    for place, value in enumerate(values):
        found[place] = value
    numbers: list[int] = found.tolist()
    return numbers


def csr_of_rows(row_ptr: Any, col_idx: Any, num_src: int | None, validate: str) -> DeviceCsr | None:
    """The topology of row pointers and sources; None if something about them is wrong, or if there
    are no edges."""
    num_dst, num_edges = row_ptr.shape[0] - 1, col_idx.shape[0]
    if num_dst < 0 or not num_edges or (num_edges > INT32_MAX and row_ptr.element_size() == 4):
        return None
    if validate != "none" or num_src is None:
        falls = (row_ptr.diff() < 0).any()
        facts = [row_ptr[0], row_ptr[-1], falls, col_idx.min(), col_idx.max()]
        start, stop, fallen, least, most = _facts(facts)
        num_src = max(num_dst, most + 1) if num_src is None else num_src
        wrong = start or stop != num_edges or fallen or least < 0 or most >= num_src
        if wrong and validate != "none":
            return None
    sources = narrow(col_idx, num_src, num_dst, num_edges).contiguous()
    return DeviceCsr(num_src, num_dst, row_ptr.long().contiguous(), sources)


def csr_of_ends(
    src: Any, dst: Any, num_src: int | None, num_dst: int | None, validate: str
) -> DeviceCsr | None:
    """The topology of both ends of the edges, by destination; None if an index is out of range, or
    if there are no edges."""
    if src.shape != dst.shape or not src.shape[0]:
        return None
    num_edges = src.shape[0]
    unsorted = (dst[1:] < dst[:-1]).any()
    facts = _facts([src.min(), src.max(), dst.min(), dst.max(), unsorted])
    least_src, most_src, least_dst, most_dst, is_unsorted = facts
    if num_src is None:
        num_src = max(most_src + 1, most_dst + 1 if num_dst is None else num_dst)
    num_dst = max(most_dst + 1, num_src) if num_dst is None else num_dst
    wrong = min(least_src, least_dst) < 0 or most_src >= num_src or most_dst >= num_dst
    if wrong and validate != "none":
        return None
    row_ptr = row_pointers(dst, num_dst)
    sources = narrow(src, num_src, num_dst, num_edges)
    if not is_unsorted:
        return DeviceCsr(num_src, num_dst, row_ptr, sources.contiguous())
    order = narrow(dst, num_dst).sort(stable=True).indices
    return DeviceCsr(
        num_src, num_dst, row_ptr, sources[order], narrow(order, num_src, num_dst, num_edges)
    )


def transpose(csr: DeviceCsr) -> DeviceCsr:
    """The topology with every edge turned round."""
    row_ptr, destinations, order = csr.transposed()
    if csr.permutation is not None:
        order = csr.permutation[order.long()]
    return DeviceCsr(csr.num_dst, csr.num_src, row_ptr, destinations, order)
