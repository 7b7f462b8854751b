"""Blocks of destinations on a GPU, over a graph in a file: what they name is read into pinned
memory and copied to the device, and what they make lies there, on the host or in files."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils._mode_utils import no_dispatch

from tiga.backends.triton.paged.budgets import Budgets, loading_bytes
from tiga.backends.triton.paged.fetching import MEMORY
from tiga.backends.triton.paged.memory import LEAST, Mover
from tiga.frontends.torch.blocks.fields import (
    BlockFields,
    Limit,
    Numbers,
    Place,
    Total,
    Whole,
    add_rows,
    wide,
)
from tiga.frontends.torch.blocks.paged import (
    POINTER_BYTES,
    NumbersInFile,
    PagedBlockFields,
    bytes_of,
)
from tiga.frontends.torch.blocks.parts import ROOM
from tiga.frontends.torch.blocks.plan import Sizes
from tiga.frontends.torch.dtypes import dtype_of
from tiga.frontends.torch.fetched import fetched
from tiga.frontends.torch.paged_gpu import TorchArrays
from tiga.paging.blocks import DENSE
from tiga.runtime.mapped import file_at
from tiga.runtime.pages import MemoryRows, Rows
from tiga.runtime.tiers import memory_left

HOST_EDGE_BYTES = 32
"""What numbers of the ends take on the host for each edge."""


@dataclass(frozen=True)
class OnDevice:
    """Rows that blocks pick on the device."""

    row_bytes: int

    in_file = False


@dataclass(frozen=True)
class WholeOnHost(Whole):
    """A value made block by block in memory of the host, or mapped from its file."""

    rows: Rows | None
    fields: "DeviceBlockFields"

    def put(self, place: Place, part: torch.Tensor) -> None:
        assert isinstance(place, slice)
        if not part.numel():
            return
        part = part.to(self.tensor.dtype)
        if self.rows is None:
            self.fields.fetch(part, self.tensor[place])
        else:
            self.rows.write(place.start, bytes_of(self.fields.on_host(part)))


@dataclass(frozen=True)
class TotalOnHost(Total):
    """The gradient of a field in memory of the host, or in its own file: `there` adds it up."""

    there: Total
    fields: "DeviceBlockFields"

    def add(self, numbers: Numbers, part: torch.Tensor) -> None:
        assert isinstance(numbers, NumbersInFile)
        part = self.fields.on_host(part.to(self.tensor.dtype))
        if type(self.there) is Total:
            add_rows(self.tensor, numbers.index.cpu(), part)
        else:
            self.there.add(numbers, part)

    def result(self, dtype: torch.dtype) -> torch.Tensor:
        return self.there.result(dtype)


@dataclass(frozen=True)
class TotalOnDevice(Total):
    """The gradient of a field, added up on the device; at last it goes to where the field is."""

    home: torch.device
    graph: Any

    def add(self, numbers: Numbers, part: torch.Tensor) -> None:
        assert isinstance(numbers, NumbersInFile)
        if numbers.is_range:
            self.tensor[numbers.low : numbers.high] += part
        else:
            super().add(numbers, part)

    def result(self, dtype: torch.dtype) -> torch.Tensor:
        return fetched(self.tensor.to(dtype), self.home, self.graph)


class DeviceBlockFields(PagedBlockFields):
    """The fields of a call over a graph in a file that runs on a GPU. Fields are in the file, in
    memory of the host, or on the device."""

    def _open(self) -> None:
        self.budgets = Budgets(self.graph, TorchArrays(self.device))
        super()._open()
        with self.budgets.platform.on():
            self.mover = Mover(self.budgets.link, self.budgets.platform, self._staged(()))

    def home(self, value: torch.Tensor) -> Any:
        nbytes = value.numel() * value.element_size()
        in_file = value.device.type == "cpu" and nbytes and file_at(value.data_ptr(), nbytes)
        if in_file or value.device != self.device:
            return super().home(value)
        return OnDevice(value[:1].numel() * value.element_size())

    @property
    def left(self) -> dict[str, int | None]:
        host = self.scope.host
        on_host = memory_left() if host.budget is None else max(0, host.budget - host.live)
        return {"device": self.budgets.left, "host": on_host}

    def limits(self, sizes: Sizes) -> list[Limit]:
        of_nodes = [home for (namespace, _), home in self.homes.items() if namespace != "edge"]
        widths = sum(home.row_bytes for home in of_nodes if not isinstance(home, OnDevice))
        host = self.left["host"] if self.scope.host.budget is not None else None
        # What is read, and gradients that are added up there: up to two rows for each edge.
        device = sizes.edge + 2 * DENSE * widths, sizes.row + POINTER_BYTES + 2 * widths
        both = (1 + DENSE) * self.node_bytes
        staged = self._staged([width for _, width in sizes.results])
        return [
            Limit("device", self.left["device"], *device, ROOM * sizes.message),
            Limit("host", host, HOST_EDGE_BYTES + both, POINTER_BYTES + both),
            Limit("host-pinned", self.budgets.pinned, 0, 0, fixed=staged),
        ]

    def _staged(self, results: Sequence[int]) -> int:
        """Bytes of pinned memory that rows go through."""
        widths = [*(home.row_bytes for home in self.homes.values()), *results]
        most = max(self.graph.num_src, self.graph.num_dst, self.graph.num_edges)
        row = max(widths, default=0)
        return max(1, row, loading_bytes(self.budgets.pinned, most * row))

    @contextmanager
    def holding(self, nbytes: Mapping[str, int], what: str) -> Iterator[None]:
        keeper = self.budgets.keeper
        memory = keeper.take(MEMORY)
        with super().holding(nbytes, what):
            self.mover.nbytes = nbytes["host-pinned"]
            if memory is not None and memory.nbytes <= self.mover.nbytes:
                self.mover.memory = memory
            yield
            self.mover.link.mark().wait()
        keeper.park(MEMORY, self.mover.memory, {"host-pinned": self.mover.memory.nbytes})

    @contextmanager
    def reading(self) -> Iterator[None]:
        with super().reading(), self.budgets.platform.on():
            yield

    def sent(self, numbers: np.ndarray) -> torch.Tensor:
        host = torch.from_numpy(numbers)
        with no_dispatch():
            if numbers.nbytes < LEAST:
                return host.to(self.device)
            there = torch.empty_like(host, device=self.device)
        rows = MemoryRows(numbers.reshape(-1, 1))
        self.mover.bring(range(len(numbers)), rows, there.data_ptr())
        return there

    def rows_from(self, home: Any, value: torch.Tensor, numbers: Numbers) -> torch.Tensor:
        if isinstance(home, OnDevice):
            return BlockFields.rows_at(self, value, numbers)
        assert isinstance(numbers, NumbersInFile)
        block, (_, ranks) = self._brought(home, value, numbers), numbers.picked
        return block if ranks is None else block.index_select(0, ranks)

    def part_of(self, value: torch.Tensor, place: Place) -> torch.Tensor:
        assert isinstance(place, slice)
        home = self.home(value)
        if isinstance(home, OnDevice):
            return value.detach()[place]
        return self._brought(home, value, self._range_of(place))

    def _brought(self, home: Rows, like: torch.Tensor, numbers: NumbersInFile) -> torch.Tensor:
        """The rows that numbers name, each once, on the device."""
        rows, ranks = numbers.picked
        # Memory that is planned for by itself, beside what user code allocates.
        with nullcontext() if ranks is None else no_dispatch():
            shape = (len(rows), *like.shape[1:])
            block = torch.empty(shape, dtype=like.dtype, device=self.device)
        if block.numel():
            self.mover.bring(rows, home, block.data_ptr())
        return block

    def fetch(self, part: torch.Tensor, out: torch.Tensor) -> None:
        """Copy a value of a block to contiguous memory of the host."""
        part = part.detach().contiguous()
        self.mover.fetch(part.data_ptr(), bytes_of(out))

    def on_host(self, part: torch.Tensor) -> torch.Tensor:
        """A value of a block in memory of the host."""
        out = torch.empty(part.shape, dtype=part.dtype)
        if part.numel():
            self.fetch(part, out)
        return out

    # what is made of all blocks

    def whole(self, extent: int, part: torch.Tensor) -> Any:
        shape = extent, *part.shape[1:]
        if self._tier(shape, part.dtype) == "device":
            return Whole(self._new(shape, part.dtype))
        tensor, rows = self._made(shape, part.dtype)
        return WholeOnHost(tensor, rows, self)

    def total(self, value: torch.Tensor) -> Any:
        shape, dtype = tuple(value.shape), wide(value.dtype)
        if isinstance(self.home(value), OnDevice) or self._tier(shape, dtype) == "device":
            return TotalOnDevice(self._new(shape, dtype).zero_(), value.device, self.graph)
        there = super().total(value)
        return TotalOnHost(there.tensor, there, self)

    def _new(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        what = f"a result of shape {list(shape)} through torch"
        made: torch.Tensor = self.budgets.library.new(shape, dtype_of(dtype), what)
        return made
