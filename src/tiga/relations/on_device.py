"""Topology on a GPU: checked and sorted there, with the functions of the index arrays' library.

Nothing but a few numbers is copied to the host. A fault is only noticed here: the checks on the
host then name it.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from tiga.relations.csr import Csr
from tiga.relations.indices import INT32_MAX, index_dtype, on_host
from tiga.runtime.platform import index_arrays

SMALL = 2**15
"""Nodes and edges of a graph that is sorted on the host: to ask a device for each of the many small
steps takes longer."""


def is_small(*extents: int | None) -> bool:
    """Whether a graph with so many nodes and edges, as far as they are known, is small."""
    return sum(extent or 0 for extent in extents) <= SMALL


@dataclass(frozen=True, eq=False)
class DeviceCsr:
    """As `Csr`, in arrays on one device: `row_ptr` int64, the others in the narrowest type."""

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
        permutation = None if order is None else on_host(order)
        rows, sources = on_host(self.row_ptr), on_host(self.col_idx)
        return Csr(self.num_src, self.num_dst, rows, sources, permutation)

    def transposed(self) -> tuple[Any, Any, Any]:
        """Row pointers over sources, the destinations of their edges, and where these lie here."""
        arrays = index_arrays(self.col_idx)
        ordered, order = arrays.sort(self.col_idx, self.num_src)
        starts = row_pointers(ordered, self.num_src)
        bits = 8 * self.col_idx.itemsize
        destinations = arrays.cast(arrays.rows(self.row_ptr, self.num_edges), bits)
        return starts, destinations[order], arrays.cast(order, bits)


def row_pointers(rows: Any, num_rows: int) -> Any:
    """Row pointers, int64 `[num_rows + 1]`, of edges of which `rows`, rising, names the row."""
    arrays = index_arrays(rows)
    bounds = arrays.cast(arrays.positions(rows, num_rows + 1), 8 * rows.itemsize)
    return arrays.before(rows, bounds)


def narrow(indices: Any, *extents: int) -> Any:
    """The indices in the narrowest type that holds these extents."""
    return index_arrays(indices).cast(indices, 8 * index_dtype(*extents).itemsize)


def csr_of_rows(row_ptr: Any, col_idx: Any, num_src: int | None, validate: str) -> DeviceCsr | None:
    """The topology of row pointers and sources; None if something about them is wrong, or if there
    are no edges."""
    num_dst, num_edges = row_ptr.shape[0] - 1, col_idx.shape[0]
    if num_dst < 0 or not num_edges or (num_edges > INT32_MAX and row_ptr.itemsize == 4):
        return None
    arrays = index_arrays(col_idx)
    if validate != "none" or num_src is None:
        falls = arrays.total(row_ptr[1:] < row_ptr[:-1])
        ends = arrays.minimum(col_idx), arrays.maximum(col_idx)
        facts = arrays.numbers([row_ptr[:1], row_ptr[-1:], falls, *ends])
        start, stop, fallen, least, most = facts
        num_src = max(num_dst, most + 1) if num_src is None else num_src
        wrong = start or stop != num_edges or fallen or least < 0 or most >= num_src
        if wrong and validate != "none":
            return None
    sources = arrays.contiguous(narrow(col_idx, num_src, num_dst, num_edges))
    return DeviceCsr(num_src, num_dst, arrays.contiguous(arrays.cast(row_ptr, 64)), sources)


def csr_of_ends(
    src: Any, dst: Any, num_src: int | None, num_dst: int | None, validate: str
) -> DeviceCsr | None:
    """The topology of both ends of the edges, by destination; None if an index is out of range, or
    if there are no edges."""
    if src.shape != dst.shape or not src.shape[0]:
        return None
    arrays, num_edges = index_arrays(dst), src.shape[0]
    ends = [extremum(end) for end in (src, dst) for extremum in (arrays.minimum, arrays.maximum)]
    facts = arrays.numbers([*ends, arrays.total(dst[1:] < dst[:-1])])
    least_src, most_src, least_dst, most_dst, falls = facts
    if num_src is None:
        num_src = max(most_src + 1, most_dst + 1 if num_dst is None else num_dst)
    num_dst = max(most_dst + 1, num_src) if num_dst is None else num_dst
    wrong = min(least_src, least_dst) < 0 or most_src >= num_src or most_dst >= num_dst
    if wrong and validate != "none":
        return None
    sources, rows = narrow(src, num_src, num_dst, num_edges), narrow(dst, num_dst)
    if not falls:
        return DeviceCsr(num_src, num_dst, row_pointers(rows, num_dst), arrays.contiguous(sources))
    ordered, order = arrays.sort(rows, num_dst)
    row_ptr = row_pointers(ordered, num_dst)
    permutation = narrow(order, num_src, num_dst, num_edges)
    return DeviceCsr(num_src, num_dst, row_ptr, sources[order], permutation)


def transpose(csr: DeviceCsr) -> DeviceCsr:
    """The topology with every edge turned round."""
    row_ptr, destinations, order = csr.transposed()
    if csr.permutation is not None:
        order = csr.permutation[index_arrays(order).cast(order, 64)]
    return DeviceCsr(csr.num_dst, csr.num_src, row_ptr, destinations, order)
