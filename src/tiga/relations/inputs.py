"""What a relation is made from: CSR, COO or another relation's transpose."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from tiga.errors import InvalidValue
from tiga.relations.csr import Csr, csr_of_coo
from tiga.relations.indices import INT32_MAX, Indices, read_both, to_kind
from tiga.relations.on_device import (
    DeviceCsr,
    csr_of_ends,
    csr_of_rows,
    is_small,
    transpose,
)
from tiga.relations.sorting import by_destination
from tiga.relations.validate import End, extent, require_range, require_row_ptr

if TYPE_CHECKING:
    from tiga.relations.graph import Graph

Token = tuple[int, ...]


class Input(Protocol):
    """A kind of input. Everything but `token` and `template` may read the arrays."""

    @property
    def template(self) -> Any:
        """An empty tensor in whose kind results go back to the user; None for numpy."""

    @property
    def place(self) -> Any:
        """The device of the index arrays as their library has it; None for numpy."""

    def token(self) -> Token:
        """Changes whenever an array of the input is seen to change."""

    def given_counts(self) -> tuple[int | None, int | None]:
        """Sources and destinations as far as they are known without reading an index."""

    def build(self, validate: str) -> Csr:
        """Check the input as it is now and put it in destination order."""

    def build_on_gpu(self, validate: str) -> DeviceCsr | None:
        """As `build`, on the GPU on which the input lies; None where it lies elsewhere, where it is
        small, and where something is wrong, which `build` names."""

    def dtypes(self) -> tuple[np.dtype, np.dtype]:
        """The integer types of sources and destinations."""

    def row_ptr(self, csr: Csr) -> Any:
        """Row pointers for the user."""

    def col_idx(self, csr: Csr) -> Any:
        """Sources in CSR order for the user."""

    def coo(self, csr: Csr) -> tuple[Any, Any]:
        """Both ends of the edges, in edge order, for the user."""

    def arrays(self) -> Iterator[Any]:
        """The arrays and tensors that the input keeps alive itself."""


def _first(template: Any, other: Any) -> Any:
    return other if template is None else template


class Sorted:
    """Inputs whose CSR arrays were made by sorting: what the user sees is converted from those."""

    @property
    def template(self) -> Any:
        raise NotImplementedError

    def dtypes(self) -> tuple[np.dtype, np.dtype]:
        raise NotImplementedError

    def row_ptr(self, csr: Csr) -> Any:
        dtype = self.dtypes()[1] if csr.num_edges <= INT32_MAX else np.dtype(np.int64)
        return to_kind(csr.row_ptr.astype(dtype, copy=False), self.template)

    def col_idx(self, csr: Csr) -> Any:
        return to_kind(csr.col_idx.astype(self.dtypes()[0], copy=False), self.template)


@dataclass(frozen=True)
class CsrInput:
    """Row pointers and sources, in destination order already."""

    pointers: Indices
    sources: Indices
    num_src: int | None

    @property
    def template(self) -> Any:
        return _first(self.sources.template, self.pointers.template)

    @property
    def place(self) -> Any:
        return _first(self.sources.place, self.pointers.place)

    def token(self) -> Token:
        return self.pointers.version() + self.sources.version()

    def given_counts(self) -> tuple[int | None, int | None]:
        return self.num_src, self.pointers.data.shape[0] - 1

    def build_on_gpu(self, validate: str) -> DeviceCsr | None:
        row_ptr, col_idx = self.pointers.on_gpu(), self.sources.on_gpu()
        if row_ptr is None or col_idx is None:
            return None
        if is_small(row_ptr.shape[0], col_idx.shape[0], self.num_src):
            return None
        return csr_of_rows(row_ptr, col_idx, self.num_src, validate)

    def build(self, validate: str) -> Csr:
        row_ptr, col_idx = self.pointers.read(), self.sources.read()
        require_row_ptr(row_ptr, col_idx.shape[0])
        num_dst = row_ptr.shape[0] - 1
        num_src = self.num_src
        if num_src is None:
            num_src = max(num_dst, extent(col_idx))
        require_range([End("col_idx", col_idx, "num_src", num_src)], validate)
        return Csr(num_src, num_dst, np.ascontiguousarray(row_ptr, dtype=np.int64), col_idx)

    def dtypes(self) -> tuple[np.dtype, np.dtype]:
        src = self.sources.dtype
        return src, max(src, self.pointers.dtype)

    def row_ptr(self, csr: Csr) -> Any:
        return self.pointers.public()

    def col_idx(self, csr: Csr) -> Any:
        return self.sources.public()

    def coo(self, csr: Csr) -> tuple[Any, Any]:
        destinations = csr.destinations(self.dtypes()[1])
        return self.sources.public(), to_kind(destinations, self.template)

    def arrays(self) -> Iterator[Any]:
        yield self.pointers.data
        yield self.sources.data


@dataclass(frozen=True)
class CooInput(Sorted):
    """The two ends of every edge, in any order."""

    sources: Indices
    destinations: Indices
    num_src: int | None
    num_dst: int | None

    @property
    def template(self) -> Any:
        return _first(self.sources.template, self.destinations.template)

    @property
    def place(self) -> Any:
        return _first(self.sources.place, self.destinations.place)

    def token(self) -> Token:
        return self.sources.version() + self.destinations.version()

    def given_counts(self) -> tuple[int | None, int | None]:
        return self.num_src, self.num_dst

    def build_on_gpu(self, validate: str) -> DeviceCsr | None:
        src, dst = self.sources.on_gpu(), self.destinations.on_gpu()
        if src is None or dst is None or is_small(src.shape[0], self.num_src, self.num_dst):
            return None
        return csr_of_ends(src, dst, self.num_src, self.num_dst, validate)

    def build(self, validate: str) -> Csr:
        src, dst = read_both(self.sources, self.destinations)
        if src.shape != dst.shape:
            raise InvalidValue(
                f"Graph: `{self.sources.name}` and `{self.destinations.name}` must have one entry "
                f"per edge each, got {src.shape[0]} and {dst.shape[0]}."
            )
        num_src, num_dst = self._counts(src, dst)
        found = by_destination(src, dst, num_src, num_dst)
        if found is not None:
            return found
        ends = [
            End(self.sources.name, src, "num_src", num_src),
            End(self.destinations.name, dst, "num_dst", num_dst),
        ]
        require_range(ends, validate)
        return csr_of_coo(src, dst, num_src, num_dst)

    def dtypes(self) -> tuple[np.dtype, np.dtype]:
        return self.sources.dtype, self.destinations.dtype

    def coo(self, csr: Csr) -> tuple[Any, Any]:
        return self.sources.public(), self.destinations.public()

    def arrays(self) -> Iterator[Any]:
        yield self.sources.data
        yield self.destinations.data

    def _counts(self, src: np.ndarray, dst: np.ndarray) -> tuple[int, int]:
        num_src, num_dst = self.num_src, self.num_dst
        if num_src is None:
            num_src = max(extent(src), extent(dst) if num_dst is None else num_dst)
        if num_dst is None:
            num_dst = max(extent(dst), num_src)
        return num_src, num_dst


@dataclass(frozen=True)
class TransposedInput(Sorted):
    """Another graph with sources and destinations swapped."""

    base: "Graph"

    @property
    def template(self) -> Any:
        return self.base.input.template

    @property
    def place(self) -> Any:
        return self.base.input.place

    def token(self) -> Token:
        return self.base.token()

    def given_counts(self) -> tuple[int | None, int | None]:
        num_src, num_dst = self.base.input.given_counts()
        return num_dst, num_src

    def build_on_gpu(self, validate: str) -> DeviceCsr | None:
        topology = self.base.snapshot().topology
        return transpose(topology) if isinstance(topology, DeviceCsr) else None

    def build(self, validate: str) -> Csr:
        csr = self.base.csr()
        walk = self.base.walk("src")
        assert walk.edge_id is not None
        order = walk.edge_id if csr.permutation is None else csr.permutation[walk.edge_id]
        return Csr(csr.num_dst, csr.num_src, walk.row_ptr, walk.index, order)

    def dtypes(self) -> tuple[np.dtype, np.dtype]:
        src, dst = self.base.input.dtypes()
        return dst, src

    def coo(self, csr: Csr) -> tuple[Any, Any]:
        src, dst = self.base.coo()
        return dst, src

    def arrays(self) -> Iterator[Any]:
        return self.base.input.arrays()
