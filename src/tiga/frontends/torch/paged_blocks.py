"""What blocks of destinations read of a graph in a file, and where what they make of it lies."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
import torch

from tiga.frontends.dlpack import array_of_torch, torch_of
from tiga.frontends.torch.block_fields import (
    BlockFields,
    EdgeRange,
    Numbers,
    Place,
    RowBlock,
    Total,
    Whole,
    wide,
)
from tiga.frontends.torch.paged import rows_of
from tiga.paging.blocks import DENSE
from tiga.paging.numbers import bounds_of
from tiga.paging.results import spilled_array
from tiga.relations.paged import PagedGraph
from tiga.relations.row_blocks import PagedPointers
from tiga.runtime.pages import Rows, scratch_bytes
from tiga.runtime.scope import Scope, active, fallback

POINTER_BYTES = 32
"""What row pointers take for each row."""

HALF = 2
"""Results stay in memory that take at most one part in so many of what the budget leaves."""

SCRATCH = 4
"""How much more is picked at a time than where others pick beside."""

PIECE = 2**20
"""Bytes that are written at a time where nothing but zeros is, or another type."""


def stays(nbytes: int, left: int | None) -> bool:
    """Whether a result lies in memory, of which so many bytes are left."""
    return not nbytes or left is None or nbytes <= left // HALF


@dataclass(frozen=True, eq=False)
class NumbersInFile(Numbers):
    """Rows of [low, high), by numbers that were checked; `is_range` where each is named once, in
    order."""

    low: int
    high: int
    is_range: bool = False

    @cached_property
    def picked(self) -> tuple[range | np.ndarray, torch.Tensor | None]:
        """The rows that are read, ascending, and which of them each number is (None: all, in
        order)."""
        if self.is_range:
            return range(self.low, self.high), None
        if self.high - self.low <= DENSE * len(self.index):
            return range(self.low, self.high), torch.from_numpy(self.index.numpy() - self.low)
        distinct, ranks = np.unique(self.index.numpy(), return_inverse=True)
        return distinct, torch.from_numpy(ranks.reshape(-1))

    def read(self, home: Rows, like: torch.Tensor) -> torch.Tensor:
        """The rows that are read, each once, with the feature shape and dtype of another value."""
        rows, ranks = self.picked
        shape = (len(rows), *like.shape[1:])
        block = torch.empty(shape, dtype=like.dtype) if ranks is None else _uncounted(shape, like)
        if not block.numel():
            return block
        if isinstance(rows, range):
            home.read_into(rows.start, bytes_of(block))
        else:
            scratch = np.empty(scratch_bytes(home.row_bytes, SCRATCH * block.nbytes), np.uint8)
            home.take(rows, bytes_of(block), scratch)
        return block

    def write(self, home: Rows, block: torch.Tensor) -> None:
        """Store what `read` gave again."""
        rows, _ = self.picked
        if isinstance(rows, range):
            home.write(rows.start, bytes_of(block))
        else:
            home.put(rows, bytes_of(block))


def _uncounted(shape: tuple[int, ...], like: torch.Tensor) -> torch.Tensor:
    """Memory that is planned for by itself, beside what user code allocates."""
    return torch_of(np.empty(shape, array_of_torch(like[:0]).dtype))


def bytes_of(block: torch.Tensor) -> np.ndarray:
    """The memory of a contiguous tensor that is not empty, uint8 `[rows, row_bytes]`."""
    return block.detach().reshape(len(block), -1).view(torch.uint8).numpy()


@dataclass(frozen=True)
class WholeInFile(Whole):
    """A value made block by block, mapped from its file."""

    rows: Rows

    def put(self, place: Place, part: torch.Tensor) -> None:
        assert isinstance(place, slice)
        if part.numel():
            self.rows.write(place.start, bytes_of(part.to(self.tensor.dtype).contiguous()))


@dataclass(frozen=True)
class TotalInFile(Total):
    """The gradient of a field in its own file: blocks read, add to and write the rows they name."""

    rows: Rows
    fields: "PagedBlockFields"

    def add(self, numbers: Numbers, part: torch.Tensor) -> None:
        assert isinstance(numbers, NumbersInFile)
        block, part = numbers.read(self.rows, self.tensor), part.to(self.tensor.dtype)
        if not block.numel():
            return
        _, ranks = numbers.picked
        block = block.add_(part) if ranks is None else block.index_add_(0, ranks, part)
        numbers.write(self.rows, block)

    def result(self, dtype: torch.dtype) -> torch.Tensor:
        if dtype == self.tensor.dtype:
            return self.tensor
        whole = self.fields.whole(len(self.tensor), self.tensor[:0].to(dtype))
        step = max(1, PIECE // self.rows.row_bytes)
        for low in range(0, len(self.tensor), step):
            place = slice(low, min(low + step, len(self.tensor)))
            whole.put(place, self.fields.part_of(self.tensor, place).to(dtype))
        return whole.tensor


class PagedBlockFields(BlockFields):
    """The fields of a call over a graph in a file: what blocks name of those in files is read with
    plain reads. Results and gradients lie in memory while the budget has room, else in files."""

    graph: PagedGraph

    def _open(self) -> None:
        self.walk: Any = self.graph.walks["dst"]
        self.order = None
        self.homes = {
            (namespace, name): rows_of(value.detach(), self.graph)
            for namespace, values in self.fields.items()
            for name, value in values.items()
        }
        widths = [h.row_bytes for (namespace, _), h in self.homes.items() if namespace != "edge"]
        # What is read, and its gradient: of sources up to two rows for each edge.
        self.edge_bytes = 2 * DENSE * sum(widths)
        self.row_bytes = POINTER_BYTES + 2 * sum(widths)

    @property
    def scope(self) -> Scope:
        """The budgets in force."""
        return active() or fallback()

    @property
    def memory(self) -> int | None:  # type: ignore[override]
        host = self.scope.host
        return None if host.budget is None else max(0, host.budget - host.live)

    @cached_property
    def pointers(self) -> PagedPointers:
        return PagedPointers(self.walk)

    def holding(self, nbytes: int, what: str) -> AbstractContextManager[None]:
        return nullcontext() if active() is None else self.scope.temporary(nbytes, what)

    def reading(self) -> AbstractContextManager[None]:
        return self.graph.reading()

    def pointers_of(self, block: RowBlock) -> torch.Tensor:
        return torch.from_numpy(self.pointers.between(block.low, block.high)) - block.first

    def numbers(self, end: str, part: EdgeRange) -> Numbers:
        first, last = part.first, part.last
        if end == "edge" or first == last:
            return NumbersInFile(torch.arange(first, last), first, last, is_range=True)
        if end == "src":
            block = np.empty((last - first, 1), self.walk.dtype)
            self.walk.index.read_into(first, block.view(np.uint8))
            low, high = bounds_of(block, self.graph.num_src)
            return NumbersInFile(torch.from_numpy(block.reshape(-1)).long(), low, high)
        low, high = self.pointers.row_at(first), self.pointers.row_at(last - 1) + 1
        pointers = torch.from_numpy(self.pointers.between(low, high)).clamp_(first, last)
        rows = torch.arange(low, high).repeat_interleave(pointers.diff())
        return NumbersInFile(rows, low, high)

    def numbers_of_rows(self, block: RowBlock) -> Numbers:
        low, high = block.low, block.high
        return NumbersInFile(torch.arange(low, high), low, high, is_range=True)

    def _rows(self, namespace: str, name: str, numbers: Numbers) -> torch.Tensor:
        home = self.homes[namespace, name]
        if not home.in_file:
            return super()._rows(namespace, name, numbers)
        assert isinstance(numbers, NumbersInFile)
        block, (_, ranks) = numbers.read(home, self.fields[namespace][name]), numbers.picked
        return block if ranks is None else block.index_select(0, ranks)

    def plan(self, blocks: Any, sizes: Any) -> Any:
        from tiga.frontends.torch.block_forecast import BlockForecast

        forecast = BlockForecast(self, blocks, sizes)
        return forecast.forward(forecast.room())

    # what is made of all blocks

    def whole(self, extent: int, part: torch.Tensor) -> Any:
        tensor, rows = self._made((extent, *part.shape[1:]), part.dtype)
        return Whole(tensor) if rows is None else WholeInFile(tensor, rows)

    def total(self, value: torch.Tensor) -> Any:
        tensor, rows = self._made(value.shape, wide(value.dtype))
        if rows is None:
            return Total(tensor.zero_())
        step = max(1, PIECE // rows.row_bytes)
        zeros = np.zeros((min(step, rows.count), rows.row_bytes), np.uint8)
        for low in range(0, rows.count, step):
            rows.write(low, zeros[: rows.count - low])
        return TotalInFile(tensor, rows, self)

    def part_of(self, value: torch.Tensor, place: Place) -> torch.Tensor:
        assert isinstance(place, slice)
        home = rows_of(value.detach(), self.graph)
        if not home.in_file:
            return value[place]
        numbers = NumbersInFile(torch.empty(0), place.start, place.stop, is_range=True)
        return numbers.read(home, value)

    def _made(self, shape: Sequence[int], dtype: torch.dtype) -> tuple[torch.Tensor, "Rows | None"]:
        """A tensor, and where its rows lie if that is a file."""
        kind = array_of_torch(torch.empty(0, dtype=dtype)).dtype
        nbytes, scope, left = prod(shape) * kind.itemsize, self.scope, self.memory
        if not stays(nbytes, left):
            array, rows = spilled_array(scope, self.graph.traffic, tuple(shape), kind)
            return torch_of(array), rows
        array = scope.memory(tuple(shape), kind)
        if active() is not None:
            scope.adopt(array, f"a result of shape {list(shape)} through torch")
        return torch_of(array), None
