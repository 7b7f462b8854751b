"""What blocks of destinations read of a graph in a file, and where what they make of it lies."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
import torch
from torch.utils._mode_utils import no_dispatch

from tiga.frontends.dlpack import array_of_torch, torch_of
from tiga.frontends.torch.blocks.fields import (
    BlockFields,
    EdgeRange,
    Limit,
    Numbers,
    Place,
    RowBlock,
    Total,
    Whole,
    wide,
)
from tiga.frontends.torch.blocks.parts import ROOM
from tiga.frontends.torch.blocks.plan import Sizes
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


FILES = "nvme"
"""The tier of results that no memory holds."""


def tier_of(nbytes: int, left: Mapping[str, int | None]) -> str:
    """Where a result lies: the first tier of which enough bytes are left, or files."""
    for tier, room in left.items():
        if not nbytes or room is None or nbytes <= room // HALF:
            return tier
    return FILES


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
        with no_dispatch():
            if self.high - self.low <= DENSE * len(self.index):
                return range(self.low, self.high), self.index - self.low
            distinct, ranks = torch.unique(self.index, return_inverse=True)
            return distinct.cpu().numpy(), ranks

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
        block = block.add_(part) if ranks is None else block.index_add_(0, ranks.cpu(), part)
        numbers.write(self.rows, block)

    def result(self, dtype: torch.dtype) -> torch.Tensor:
        if dtype == self.tensor.dtype:
            return self.tensor
        # On the host, wherever blocks are computed.
        whole = PagedBlockFields.whole(self.fields, len(self.tensor), self.tensor[:0].to(dtype))
        step = max(1, PIECE // self.rows.row_bytes)
        for low in range(0, len(self.tensor), step):
            place = slice(low, min(low + step, len(self.tensor)))
            part = PagedBlockFields.part_of(self.fields, self.tensor, place)
            whole.put(place, part.to(dtype))
        return whole.tensor


class PagedBlockFields(BlockFields):
    """The fields of a call over a graph in a file: what blocks name of those in files is read with
    plain reads. Results and gradients lie in memory while the budget has room, else in files."""

    graph: PagedGraph

    def _open(self) -> None:
        self.walk: Any = self.graph.walks["dst"]
        self.order = None
        self.homes = {
            (namespace, name): self.home(value)
            for namespace, values in self.fields.items()
            for name, value in values.items()
        }

    def home(self, value: torch.Tensor) -> Rows:
        """Where the rows of a value lie."""
        return rows_of(value.detach(), self.graph)

    @property
    def node_bytes(self) -> int:
        """Bytes of a row of all fields of nodes that blocks read."""
        homes = self.homes.items()
        return sum(home.row_bytes for (namespace, _), home in homes if namespace != "edge")

    @property
    def scope(self) -> Scope:
        """The budgets in force."""
        return active() or fallback()

    @property
    def left(self) -> dict[str, int | None]:
        """Bytes that are left by tier, where results may lie, the best first; None for no bound."""
        host = self.scope.host
        return {"host": None if host.budget is None else max(0, host.budget - host.live)}

    def limits(self, sizes: Sizes) -> list[Limit]:
        # What is read, and its gradient: of sources up to two rows for each edge.
        edge_bytes = sizes.edge + 2 * DENSE * self.node_bytes
        row_bytes = sizes.row + POINTER_BYTES + 2 * self.node_bytes
        return [Limit("host", self.left["host"], edge_bytes, row_bytes, ROOM * sizes.message)]

    @cached_property
    def pointers(self) -> PagedPointers:
        return PagedPointers(self.walk)

    @contextmanager
    def holding(self, nbytes: Mapping[str, int], what: str) -> Iterator[None]:
        with ExitStack() as stack:
            for tier, count in nbytes.items() if active() is not None else ():
                stack.enter_context(self.scope.temporary(count, what, tier))
            yield

    def reading(self) -> AbstractContextManager[None]:
        return self.graph.reading()

    def pointers_of(self, block: RowBlock) -> torch.Tensor:
        return self.sent(self.pointers.between(block.low, block.high)) - block.first

    def numbers(self, end: str, part: EdgeRange) -> Numbers:
        first, last = part.first, part.last
        if end == "edge" or first == last:
            return self.range(first, last)
        if end == "src":
            block = np.empty((last - first, 1), self.walk.dtype)
            self.walk.index.read_into(first, block.view(np.uint8))
            low, high = bounds_of(block, self.graph.num_src)
            return NumbersInFile(self.sent(block.reshape(-1)).long(), low, high)
        low, high = self.pointers.row_at(first), self.pointers.row_at(last - 1) + 1
        counts = self.sent(self.pointers.between(low, high)).clamp_(first, last).diff()
        rows = torch.arange(low, high, device=self.device)
        rows = rows.repeat_interleave(counts, output_size=last - first)
        return NumbersInFile(rows, low, high)

    def numbers_of_rows(self, block: RowBlock) -> Numbers:
        return self.range(block.low, block.high)

    def range(self, low: int, high: int) -> Numbers:
        """Each of [low, high)."""
        numbers = torch.arange(low, high, device=self.device)
        return NumbersInFile(numbers, low, high, is_range=True)

    def sent(self, numbers: np.ndarray) -> torch.Tensor:
        """Numbers where blocks are computed."""
        return torch.from_numpy(numbers)

    def _rows(self, namespace: str, name: str, numbers: Numbers) -> torch.Tensor:
        return self.rows_from(self.homes[namespace, name], self.fields[namespace][name], numbers)

    def rows_at(self, value: torch.Tensor, numbers: Numbers) -> torch.Tensor:
        return self.rows_from(self.home(value), value, numbers)

    def rows_from(self, home: Rows, value: torch.Tensor, numbers: Numbers) -> torch.Tensor:
        """Rows of a value that lies there."""
        if not home.in_file:
            return super().rows_at(value, numbers)
        assert isinstance(numbers, NumbersInFile)
        block, (_, ranks) = numbers.read(home, value), numbers.picked
        return block if ranks is None else block.index_select(0, ranks)

    def plan(self, blocks: Any, sizes: Any) -> Any:
        from tiga.frontends.torch.blocks.forecast import BlockForecast

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
        home = self.home(value)
        if not home.in_file:
            return value.detach()[place]
        return self._range_of(place).read(home, value)

    @staticmethod
    def _range_of(place: slice) -> NumbersInFile:
        return NumbersInFile(torch.empty(0), place.start, place.stop, is_range=True)

    def _tier(self, shape: Sequence[int], dtype: torch.dtype) -> str:
        """Where a result lies."""
        return tier_of(prod(shape) * dtype.itemsize, self.left)

    def _made(self, shape: Sequence[int], dtype: torch.dtype) -> tuple[torch.Tensor, "Rows | None"]:
        """A tensor on the host, and where its rows lie if that is a file."""
        kind = array_of_torch(torch.empty(0, dtype=dtype)).dtype
        scope = self.scope
        if self._tier(shape, dtype) == FILES:
            array, rows = spilled_array(scope, self.graph.traffic, tuple(shape), kind)
            return torch_of(array), rows
        array = scope.memory(tuple(shape), kind)
        if active() is not None:
            scope.adopt(array, f"a result of shape {list(shape)} through torch")
        return torch_of(array), None
