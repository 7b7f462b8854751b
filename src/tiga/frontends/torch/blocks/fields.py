"""What blocks of destinations read, and what is made of them block by block, in memory."""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch

from tiga.frontends.torch.capture.where import user_line
from tiga.frontends.torch.devices import device_of
from tiga.frontends.torch.orders import orders_of
from tiga.frontends.views import View
from tiga.relations import Graph
from tiga.relations.row_blocks import Pointers, PointersInMemory

if TYPE_CHECKING:
    from tiga.frontends.torch.blocks.plan import Sizes


@dataclass(frozen=True)
class EdgeRange:
    """Edges `first` to `last` in CSR order."""

    first: int
    last: int


@dataclass(frozen=True)
class RowBlock:
    """Destinations `low` to `high` and their edges, which `edge` sees at most `most` at a time."""

    low: int
    high: int
    first: int
    last: int
    most: int

    @property
    def rows(self) -> int:
        return self.high - self.low

    @property
    def edges(self) -> int:
        return self.last - self.first

    @property
    def in_parts(self) -> bool:
        """Whether `edge` does not see all of its edges at once."""
        return self.edges > self.most

    def parts(self) -> list[EdgeRange]:
        """The edges, cut; one part, without edges, for rows without edges."""
        starts = range(self.first, max(self.last, self.first + 1), self.most)
        return [EdgeRange(lo, min(lo + self.most, self.last)) for lo in starts]


@dataclass(frozen=True)
class Limit:
    """What of a tier blocks may take: the bytes that are left (None: no bound), and what an edge of
    a block takes, a row, a message where edges come in parts, and any block."""

    tier: str
    left: int | None
    edge: int
    row: int
    message: int = 0
    fixed: int = 0

    def takes(self, block: RowBlock, at_once: bool) -> int:
        """Bytes of a block; `at_once`: of all its edges, in parts or not."""
        edges = block.edges if at_once else min(block.edges, block.most)
        kept = 0 if at_once or not block.in_parts else block.edges * self.message
        return self.fixed + edges * self.edge + block.rows * self.row + kept


@dataclass(frozen=True, eq=False)
class Numbers:
    """Numbers of rows that are read: one for each edge, say."""

    index: torch.Tensor


Place: TypeAlias = "slice | torch.Tensor"
"""Where the rows of a block, or its edges, are among those of the user."""


@dataclass(frozen=True)
class Whole:
    """A value of all rows or edges, made block by block."""

    tensor: torch.Tensor

    def put(self, place: Place, part: torch.Tensor) -> None:
        """Store what a block gives."""
        self.tensor[place] = part


@dataclass(frozen=True)
class Total:
    """The gradient of a field: blocks add to its rows, in a fixed order on every device."""

    tensor: torch.Tensor

    def add(self, numbers: Numbers, part: torch.Tensor) -> None:
        """Add to rows; some may be named several times."""
        add_rows(self.tensor, numbers.index, part)

    def result(self, dtype: torch.dtype) -> torch.Tensor:
        """The gradient."""
        return self.tensor.to(dtype)


def add_rows(tensor: torch.Tensor, index: torch.Tensor, part: torch.Tensor) -> None:
    """Add to rows by number, always in the same order."""
    part = part.to(tensor.dtype)
    if tensor.is_cuda:
        # Sorts the rows, where `index_add_` adds them as threads get there.
        tensor.index_put_((index,), part, accumulate=True)
    else:
        tensor.index_add_(0, index, part)


def wide(dtype: torch.dtype) -> torch.dtype:
    """In which type gradients are added up."""
    return torch.float32 if dtype.itemsize == 2 else dtype


Read = tuple[str, str, Numbers]
"""Namespace and name of a field, and the rows of it that were read."""


class BlockFields:
    """The fields of a call, and the ends of its edges. With `reads`, gathered rows become leaves
    of a graph of their own, kept there with the place they come from; `seen` are the end,
    namespace and name of all that was read."""

    def __init__(self, graph: Graph, fields: Mapping[str, Mapping[str, torch.Tensor]]) -> None:
        self.graph, self.fields, self.device = graph, fields, device_of(graph)
        self.reads: list[tuple[Read, torch.Tensor]] | None = None
        self.seen: dict[tuple[str, str, str], None] = {}
        self._open()

    def _open(self) -> None:
        graph, csr = self.graph, self.graph.snapshot().topology
        self.src = torch.as_tensor(csr.col_idx, device=self.device)
        self.row_ptr = torch.as_tensor(csr.row_ptr, device=self.device)
        self.order = orders_of(graph).to_rows.long() if graph.permutes_edges else None

    @property
    def pointers(self) -> Pointers:
        """The row pointers on the host."""
        found = self.graph.snapshot().topology.row_ptr
        # Not those of `self`: torch.func wraps tensors that are made while it transforms.
        return PointersInMemory(found if isinstance(found, np.ndarray) else found.cpu().numpy())

    def limits(self, sizes: "Sizes") -> list[Limit]:
        """What blocks of a call may take; nothing bounds those of a graph in memory."""
        return []

    def holding(self, nbytes: Mapping[str, int], what: str) -> AbstractContextManager[None]:
        """Count bytes of tiers as used for the body of a `with`."""
        return nullcontext()

    def reading(self) -> AbstractContextManager[None]:
        """The body of a `with` reads the graph."""
        return nullcontext()

    def plan(self, blocks: Any, sizes: "Sizes") -> Any:
        """What blocks read of files, where the graph is in one."""
        return None

    def pointers_of(self, block: RowBlock) -> torch.Tensor:
        """The first edge of each row of a block, counted from the block's first."""
        return self.row_ptr[block.low : block.high + 1] - block.first

    def numbers(self, end: str, part: EdgeRange) -> Numbers:
        """Which rows of the fields of an end the edges of a part read."""
        if end == "src":
            return Numbers(self.src[part.first : part.last].long())
        positions = torch.arange(part.first, part.last, device=self.device)
        if end == "dst":
            return Numbers(torch.searchsorted(self.row_ptr, positions, right=True) - 1)
        order = self.order
        return Numbers(positions if order is None else order[part.first : part.last].long())

    def numbers_of_rows(self, block: RowBlock) -> Numbers:
        """Those of a block's own rows."""
        return Numbers(torch.arange(block.low, block.high, device=self.device))

    def view(self, end: str, numbers: Numbers) -> "RowView":
        """The fields of an end at some rows."""
        namespace = end if end in self.fields or end == "edge" else "ndata"
        return RowView(self, namespace, end, numbers)

    def place(self, block: RowBlock, on_edges: bool) -> Place:
        """Where the rows of a block, or its edges, are among those of the user."""
        if not on_edges:
            return slice(block.low, block.high)
        if self.order is None:
            return slice(block.first, block.last)
        return self.numbers("edge", EdgeRange(block.first, block.last)).index

    def read(self, end: str, namespace: str, name: str, numbers: Numbers) -> torch.Tensor:
        """Rows of a field; a leaf of autograd where gradients are being computed."""
        self.seen[end, namespace, name] = None
        value = self._rows(namespace, name, numbers)
        if not self.fields[namespace][name].requires_grad:
            return value
        value.requires_grad_(self.reads is not None or torch.is_grad_enabled())
        if self.reads is not None:
            self.reads.append(((namespace, name, numbers), value))
        return value

    def _rows(self, namespace: str, name: str, numbers: Numbers) -> torch.Tensor:
        return self.rows_at(self.fields[namespace][name], numbers)

    def rows_at(self, value: torch.Tensor, numbers: Numbers) -> torch.Tensor:
        """Rows of a value of all rows or edges, as a new tensor."""
        return value.detach().index_select(0, numbers.index)

    # what is made of all blocks

    def whole(self, extent: int, part: torch.Tensor) -> Any:
        """Memory for the results of all blocks like this one."""
        return Whole(torch.empty((extent, *part.shape[1:]), dtype=part.dtype, device=part.device))

    def total(self, value: torch.Tensor) -> Any:
        """Memory for the gradient of a field."""
        return Total(torch.zeros_like(value, dtype=wide(value.dtype)))

    def part_of(self, value: torch.Tensor, place: Place) -> torch.Tensor:
        """The rows of a block of a value that was made of all blocks, or like one."""
        return value.detach()[place]


class RowView(View):
    """The fields of one end, or of the edges, at some rows."""

    def __init__(self, fields: BlockFields, namespace: str, end: str, numbers: Numbers) -> None:
        super().__init__(end, fields.fields.get(namespace, {}), user_line)
        self.__dict__.update(_fields=fields, _namespace=namespace, _numbers=numbers, _known={})

    def _made(self, name: str) -> torch.Tensor:
        if name not in self._known:
            self._known[name] = self._fields.read(self._label, self._namespace, name, self._numbers)
        known: torch.Tensor = self._known[name]
        return known
