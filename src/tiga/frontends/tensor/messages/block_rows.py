"""Rows of arrays that blocks of a graph in a file read, and where what they make lies."""

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any, Protocol

import numpy as np

from tiga.frontends.tensor.arrays import Array, moved_to, store, to_host
from tiga.frontends.tensor.build import apply
from tiga.frontends.tensor.devices import CPU, Device
from tiga.frontends.tensor.evaluate import value_of
from tiga.frontends.tensor.lazy import LazyNode, leaf
from tiga.frontends.tensor.messages.edge_order import on_device
from tiga.frontends.tensor.messages.paged import rows_of
from tiga.ops.tensor_index import IndexTake
from tiga.paging.blocks import DENSE
from tiga.paging.results import spilled_array
from tiga.runtime.device_array import DeviceArray
from tiga.runtime.pages import scratch_bytes
from tiga.runtime.pool import POOL
from tiga.runtime.scope import active, fallback
from tiga.types import GLOBAL, Type, dtype_of_numpy

HALF = 2
"""Results stay where they take at most one part in so many of what is left."""


def node_of(array: Array) -> LazyNode:
    """An array as a node."""
    return leaf(array, Type(dtype_of_numpy(array.dtype), tuple(array.shape), GLOBAL))


class Place(Protocol):
    """Which rows of an array a block sees."""

    @property
    def span(self) -> "tuple[int, int] | None":
        """The range of rows, if it is one."""

    def numbers(self) -> np.ndarray:
        """The number of each row, int64."""


@dataclass(frozen=True)
class Range:
    """Rows [low, high)."""

    low: int
    high: int

    @property
    def span(self) -> "tuple[int, int] | None":
        return self.low, self.high

    def numbers(self) -> np.ndarray:
        return np.arange(self.low, self.high)


@dataclass(frozen=True)
class BlockRows:
    """How blocks of a call over a graph read arrays, and make others: on its device, in memory of
    the host, or in files."""

    graph: Any
    device: Device

    def taken(self, array: Array, place: Place) -> Array:
        """The rows of a place, where blocks are computed."""
        if isinstance(array, DeviceArray):
            numbers = on_device(place.numbers(), self.device)
            return value_of(apply(IndexTake(0), node_of(array), numbers))
        return moved_to(self._on_host(array, place), self.device)

    def _on_host(self, array: np.ndarray, place: Place) -> np.ndarray:
        home, numbers = rows_of(array, self.graph), place.numbers()
        low, high = (int(numbers.min()), int(numbers.max()) + 1) if numbers.size else (0, 0)
        if place.span is not None:
            return _read(array, high - low, lambda out: home.read_into(low, out))
        if high - low <= DENSE * numbers.size:
            window = _read(array, high - low, lambda out: home.read_into(low, out))
            return window[numbers - low]
        ids, ranks = np.unique(numbers, return_inverse=True)
        scratch = np.empty(scratch_bytes(home.row_bytes), np.uint8)
        return _read(array, len(ids), lambda out: home.take(ids, out, scratch))[ranks.reshape(-1)]

    def zeros(self, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """What gradients are added up in: in memory of the host while it has room, else in a
        file."""
        scope, nbytes = active() or fallback(), prod(shape) * dtype.itemsize
        budget = scope.host.budget
        if budget is not None and nbytes > (budget - scope.host.live) // HALF:
            made, _ = spilled_array(scope, self.graph.traffic, shape, dtype)
        else:
            made = POOL.array(shape, dtype)
            if active() is not None:
                scope.adopt(made, f"a result of shape {list(shape)} in blocks")
        made[...] = 0
        return made

    def whole(self, shape: tuple[int, ...], dtype: np.dtype) -> Array:
        """Room for a value of all blocks."""
        if self.device != CPU:
            from tiga.frontends.tensor.messages.paged_gpu import place_on_gpu

            made = place_on_gpu(self.graph, self.device.index, shape, dtype, HALF)
            if made is not None:
                return made
        return self.zeros(shape, dtype)


def _read(array: np.ndarray, count: int, read: Callable[[np.ndarray], None]) -> np.ndarray:
    block = np.empty((count, *array.shape[1:]), array.dtype)
    if block.size:
        read(block.reshape(count, -1).view(np.uint8))
    return block


def stored(whole: Array, place: Place, part: Array) -> None:
    """Store the rows of a block, which follow one another."""
    assert place.span is not None
    low, high = place.span
    if not part.nbytes:
        return
    if isinstance(whole, DeviceArray):
        store(whole, slice(low, high), part, "a result in blocks")
    else:
        whole[low:high] = to_host(part)


def added(total: np.ndarray, place: Place, part: Array) -> None:
    """Add to the rows of a place; some may be named several times."""
    values = to_host(part).astype(total.dtype, copy=False)
    if place.span is not None:
        total[place.span[0] : place.span[1]] += values
    else:
        np.add.at(total, place.numbers(), values)
