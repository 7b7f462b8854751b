"""Checked topology in destination order, and the sorts that make it."""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from tiga.relations.indices import index_dtype

if TYPE_CHECKING:
    from tiga.relations.walk import Decomposition


@dataclass(eq=False)  # not frozen: one is made for every new graph
class Csr:
    """Edges sorted by destination.

    `row_ptr` is int64 `[num_dst + 1]`; `col_idx` is int32 or int64 `[num_edges]`, not necessarily
    contiguous; `permutation` `[num_edges]` maps the position of an edge here to its position in
    the user's order, None where the two are the same. `plan` is how rows are cut into tasks, where
    the sort found out.
    """

    num_src: int
    num_dst: int
    row_ptr: np.ndarray
    col_idx: np.ndarray
    permutation: np.ndarray | None = None
    plan: "Decomposition | None" = None

    @property
    def num_edges(self) -> int:
        return self.col_idx.shape[0]

    @property
    def index_dtype(self) -> np.dtype:
        """The narrowest type for node and edge numbers: one for both walks."""
        return index_dtype(self.num_src, self.num_dst, self.num_edges)

    @cached_property
    def sources(self) -> np.ndarray:
        """The source of every edge, contiguous, in the narrowest type."""
        return np.ascontiguousarray(self.col_idx, dtype=self.index_dtype)

    def transposed(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Row pointers over sources, the destinations of their edges, and where these lie here."""
        dtype = self.index_dtype
        order = stable_order(self.col_idx, self.num_src).astype(dtype, copy=False)
        return count_rows(self.col_idx, self.num_src), self.destinations(dtype)[order], order

    def destinations(self, dtype: np.dtype) -> np.ndarray:
        """The destination of every edge, in this order: `[num_edges]`."""
        return np.repeat(np.arange(self.num_dst, dtype=dtype), np.diff(self.row_ptr))


def csr_of_coo(src: np.ndarray, dst: np.ndarray, num_src: int, num_dst: int) -> Csr:
    """Sort edges by destination, keeping the order of edges that share one."""
    dtype = index_dtype(num_src, num_dst, dst.shape[0])
    row_ptr = count_rows(dst, num_dst)
    if is_sorted(dst):
        return Csr(num_src, num_dst, row_ptr, src.astype(dtype, copy=False))
    permutation = stable_order(dst, num_dst).astype(dtype, copy=False)
    col_idx = src.astype(dtype, copy=False)[permutation]
    return Csr(num_src, num_dst, row_ptr, col_idx, permutation)


def count_rows(rows: np.ndarray, num_rows: int) -> np.ndarray:
    """Row pointers, int64 `[num_rows + 1]`, of edges of which `rows` names the row."""
    row_ptr = np.zeros(num_rows + 1, dtype=np.int64)
    np.cumsum(np.bincount(rows, minlength=num_rows), out=row_ptr[1:])
    return row_ptr


def is_sorted(values: np.ndarray) -> bool:
    """Whether no value is larger than the next."""
    return bool((values[:-1] <= values[1:]).all())


def stable_order(keys: np.ndarray, num_keys: int) -> np.ndarray:
    """The stable permutation, int64, that sorts `keys`, all of them in `0..num_keys-1`."""
    shift = keys.shape[0].bit_length()
    if num_keys.bit_length() + shift > 63:
        return np.argsort(keys, kind="stable")
    # Key and position in one integer make every value distinct, so numpy's vectorised sort of
    # plain integers is stable: about ten times the speed of a stable argsort.
    packed = keys.astype(np.int64)
    packed <<= shift
    packed |= np.arange(keys.shape[0], dtype=np.int64)
    packed.sort()
    packed &= (1 << shift) - 1
    return packed
