"""What programs over graphs need of a GPU: memory for their arrays, and arrays of indices.

There are two: torch's tensors (`tiga.runtime.cuda`), and arrays in memory of the driver, which need
no torch (`tiga.backends.triton.native`). Who runs a program is told by what it is given.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import numpy as np

from tiga.runtime.device_array import DeviceArray
from tiga.types import DType

Indices = Any
"""A rank-1 array of integers or truth values on a GPU: torch's tensor, or ours. Both have `shape`,
`nbytes`, `itemsize`, `dtype`, arithmetic and comparisons with arrays and numbers, slices as views,
and `x[positions]`."""


class IndexArrays(Protocol):
    """Functions of index arrays. Every result depends on the operands alone, bit for bit."""

    def numbers(self, values: Sequence[Indices]) -> list[int]:
        """Sums, extrema and the like, each an array of one element, in one copy to the host."""

    def minimum(self, x: Indices) -> Indices:
        """The least element, as an array of one."""

    def maximum(self, x: Indices) -> Indices:
        """The largest element, as an array of one."""

    def total(self, x: Indices) -> Indices:
        """The int64 sum of integers or truth values, as an array of one."""

    def positions(self, like: Indices, count: int) -> Indices:
        """0, 1, 2, ... in int64 on the device of an array."""

    def full(self, like: Indices, count: int, value: int) -> Indices:
        """A number `count` times, in the dtype and on the device of an array."""

    def cast(self, x: Indices, bits: int) -> Indices:
        """The integers in 32 or 64 bits; the array itself if it has so many."""

    def contiguous(self, x: Indices) -> Indices:
        """The elements one after another in memory; the array itself if they lie so."""

    def join(self, parts: Sequence[Indices]) -> Indices:
        """Arrays of one dtype one after another."""

    def running_sums(self, x: Indices) -> Indices:
        """The int64 sums of each element and all before it."""

    def where(self, mask: Indices) -> Indices:
        """The int64 positions of truth; their number is copied to the host."""

    def put(self, target: Indices, positions: Indices, values: Indices) -> Indices:
        """`target` with values stored, in place, at positions that differ."""

    def sort(self, keys: Indices, count: int) -> tuple[Indices, Indices]:
        """Keys in `0..count-1` in order, and the int64 positions where they were: equal keys keep
        their order."""

    def order(self, keys: Indices, count: int) -> Indices:
        """The positions of `sort`."""

    def rows(self, starts: Indices, total: int) -> Indices:
        """For each of `total` places the int64 number of the row that has it: row r has the places
        from `starts[r]` to `starts[r + 1]`."""

    def before(self, ordered: Indices, bounds: Indices) -> Indices:
        """How many elements of a rising array are less than each bound, in int64."""

    def bits(self, positions: Indices, count: int) -> Indices:
        """int32 words with the bits at these positions set; `count` is a multiple of 32."""


class Platform(Protocol):
    """A device as one library's arrays are on it."""

    @property
    def name(self) -> str:
        """What tells it from others."""

    @property
    def is_gpu(self) -> bool:
        """Whether kernels run on a GPU; under Triton's interpreter they run on the CPU."""

    @property
    def index(self) -> int:
        """The number of the device."""

    @property
    def capability(self) -> int:
        """90 for 9.0; 0 where Triton interprets."""

    @property
    def arrays(self) -> IndexArrays:
        """The functions of its index arrays."""

    def on(self) -> AbstractContextManager[Any]:
        """Make the device the current one."""

    def stream(self) -> int:
        """The handle of the current stream."""

    def address(self, array: Any) -> int:
        """Where an array begins."""

    def arena(self, nbytes: int) -> Any:
        """Memory for work on the current stream, given back with the object."""

    def arenas(self, nbytes: int) -> Callable[[], Any]:
        """As `arena`, for many of one size."""

    def view(self, arena: Any, offset: int, count: int, dtype: DType) -> Any:
        """`count` values from byte `offset` of an arena, as an array."""

    def zero(self, arena: Any, offset: int, nbytes: int) -> None:
        """Clear a part of an arena, in order with the current stream."""

    def copy(self, target: Any, source: Any) -> None:
        """Store the elements of an array in another of its size, in order with the current
        stream."""

    def constant(self, numbers: tuple[int, ...]) -> Any:
        """An int32 array of these numbers, kept for the next use."""

    def sent(self, host: Any) -> Indices:
        """A numpy array's elements on the device."""

    def sent_together(self, hosts: Sequence[np.ndarray]) -> list[Indices]:
        """int32 or int64 numpy arrays' elements on the device, sent in one copy."""

    def owns(self, array: Any) -> bool:
        """Whether an array is one of the library's, on this device."""

    def description(self) -> str:
        """What times of kernels depend on: the device, and the versions of what compiles for it."""

    def may_wait(self) -> bool:
        """Whether times can be taken: on a GPU, and in no graph that is being captured."""

    def milliseconds(self, call: Callable[[], None]) -> float:
        """The least time of a call on the current stream."""


def platform_of(array: Any) -> Platform:
    """The platform of an array on a device."""
    if isinstance(array, DeviceArray):
        platform: Platform = array.machine.platform
        return platform
    from tiga.runtime.cuda import torch_platform

    return torch_platform(array.device)


def index_arrays(array: Indices) -> IndexArrays:
    """The functions for the library that an array is of."""
    return platform_of(array).arrays
