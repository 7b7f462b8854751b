"""Index arrays in memory of NVIDIA's driver, with functions that need no torch.

What they compute depends on the operands alone: there are no atomics, and sorts are stable.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from tiga.backends.triton import index_kernels as ik
from tiga.backends.triton.machine import Launch
from tiga.backends.triton.writer import KernelSource
from tiga.runtime.device_array import LAUNCH_ALIGNMENT, DeviceArray, DeviceMemory, download

_TYPES = {1: "i8", 2: "i16", 4: "i32", 8: "i64"}


class IndexArray(DeviceArray):
    """A contiguous rank-1 array of integers or truth values with arithmetic, comparisons and
    picks. Results have 64 bits, or are truth values."""

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]  # `==` compares elements

    def __getitem__(self, index: Any) -> "IndexArray":
        if isinstance(index, DeviceArray):
            return _taken(self, index)
        if isinstance(index, slice) and index.step is None:
            start, stop, _ = index.indices(self.size)
            place = self.address + start * self.itemsize
            count = max(stop - start, 0)
            return IndexArray(self.memory, (count,), self.dtype, self.strides, place)
        return index_array(super().__getitem__(index))

    def __add__(self, other: Any) -> "IndexArray":
        return _binary("add", self, other)

    def __sub__(self, other: Any) -> "IndexArray":
        return _binary("sub", self, other)

    def __rsub__(self, other: Any) -> "IndexArray":
        return _binary("sub", self, other, swapped=True)

    def __mul__(self, other: Any) -> "IndexArray":
        return _binary("mul", self, other)

    __radd__, __rmul__ = __add__, __mul__

    def __floordiv__(self, other: Any) -> "IndexArray":
        return _binary("floordiv", self, other)

    def __and__(self, other: Any) -> "IndexArray":
        return _binary("and", self, other)

    def __or__(self, other: Any) -> "IndexArray":
        return _binary("or", self, other)

    def __lt__(self, other: Any) -> "IndexArray":
        return _binary("lt", self, other)

    def __le__(self, other: Any) -> "IndexArray":
        return _binary("le", self, other)

    def __gt__(self, other: Any) -> "IndexArray":
        return _binary("gt", self, other)

    def __ge__(self, other: Any) -> "IndexArray":
        return _binary("ge", self, other)

    def __ne__(self, other: Any) -> "IndexArray":  # type: ignore[override]
        return _binary("ne", self, other)

    def __eq__(self, other: Any) -> "IndexArray":  # type: ignore[override]
        return _binary("eq", self, other)


_TRUTHS = ("and", "or", "lt", "le", "gt", "ge", "ne", "eq")


def index_array(array: DeviceArray) -> IndexArray:
    """The same elements, which are contiguous, as an index array."""
    return IndexArray(array.memory, array.shape, array.dtype, array.strides, array.address)


def empty(machine: Any, count: int, dtype: Any = np.int64) -> IndexArray:
    """An array whose elements are not set."""
    kind = np.dtype(dtype)
    size = kind.itemsize
    return IndexArray(DeviceMemory(machine, count * size), (count,), kind, (size,))


def launch(
    source: KernelSource, count: int, arrays: Sequence[DeviceArray], numbers: Sequence[int] = (),
    programs: int | None = None,
) -> None:  # fmt: skip
    """Run a kernel over `count` elements with these arrays, in the order of its pointers: in so
    many programs, or one for each tile."""
    if not count:
        return
    machine: Any = arrays[-1].machine
    addresses: list[int] = []
    offsets: list[int] = []
    for array in arrays:
        skip = array.address % LAUNCH_ALIGNMENT
        addresses.append(array.address - skip)
        offsets.append(skip // array.dtype.itemsize)
    arguments = (*(None,) * len(addresses), *offsets, count, *numbers)
    programs = programs or -(-count // source.tile.edges)
    _bound(machine, source, programs, arguments)(addresses)


@lru_cache(maxsize=4096)
def _bound(machine: Any, source: KernelSource, programs: int, arguments: tuple[Any, ...]) -> Launch:
    """A launch, kept for operands of the same extents."""
    launched: Launch = machine.bind(source, (programs, 1, 1), arguments)
    return launched


def type_name(array: DeviceArray) -> str:
    """The type of an array's elements in a kernel."""
    return _TYPES[array.itemsize]


def _binary(name: str, x: IndexArray, other: Any, swapped: bool = False) -> IndexArray:
    out = empty(x.machine, x.size, np.bool_ if name in _TRUTHS else np.int64)
    if isinstance(other, DeviceArray):
        assert other.shape == x.shape, f"{name} of {x.shape} and {other.shape}"
        source = ik.binary(name, type_name(x), type_name(other), type_name(out), swapped)
        launch(source, x.size, [x, other, out], [0])
        return out
    source = ik.binary(name, type_name(x), None, type_name(out), swapped)
    launch(source, x.size, [x, out], [int(other)])
    return out


def _taken(x: IndexArray, positions: DeviceArray) -> IndexArray:
    out = empty(x.machine, positions.size, x.dtype)
    launch(ik.take(type_name(x), type_name(positions)), out.size, [x, positions, out])
    return out


class NativeArrays:
    """Functions of index arrays; see `tiga.runtime.platform.IndexArrays`."""

    def numbers(self, values: Sequence[IndexArray]) -> list[int]:
        joined = self.join([self.cast(value, 64) for value in values])
        found: list[int] = download(joined).tolist()
        return found

    def minimum(self, x: IndexArray) -> IndexArray:
        return self._reduced("min", x)

    def maximum(self, x: IndexArray) -> IndexArray:
        return self._reduced("max", x)

    def total(self, x: IndexArray) -> IndexArray:
        return self._reduced("sum", x) if x.size else self.cast(self.full(x, 1, 0), 64)

    def _reduced(self, kind: str, x: IndexArray) -> IndexArray:
        """By no more programs than one has elements, then by one."""
        tiles = -(-x.size // ik.BLOCK)
        steps = -(-tiles // ik.BLOCK)
        out = empty(x.machine, -(-tiles // steps))
        launch(ik.reduction(kind, type_name(x)), x.size, [x, out], [steps], out.size)
        return out if out.size == 1 else self._reduced(kind, out)

    def positions(self, like: IndexArray, count: int) -> IndexArray:
        return positions(like.machine, count)

    def full(self, like: IndexArray, count: int, value: int) -> IndexArray:
        out = empty(like.machine, count, like.dtype)
        launch(ik.fill(type_name(out)), count, [out], [value, 0])
        return out

    def cast(self, x: IndexArray, bits: int) -> IndexArray:
        if 8 * x.itemsize == bits:
            return x
        out = empty(x.machine, x.size, f"int{bits}")
        launch(ik.copy(type_name(x), type_name(out)), x.size, [x, out])
        return out

    def contiguous(self, x: IndexArray) -> IndexArray:
        return x

    def join(self, parts: Sequence[IndexArray]) -> IndexArray:
        out = empty(parts[0].machine, sum(part.size for part in parts), parts[0].dtype)
        place = out.address
        for part in parts:
            assert part.itemsize == out.itemsize, "parts of one dtype"
            out.machine.copy(place, part.address, part.nbytes)
            place += part.nbytes
        return out

    def running_sums(self, x: IndexArray) -> IndexArray:
        out = empty(x.machine, x.size)
        launch(ik.running(type_name(x)), x.size, [x, self._sums(x), out])
        return out

    def _sums(self, x: IndexArray, always: bool = False) -> IndexArray:
        """The sums of all programs up to each; not set where there is one, unless `always`."""
        programs = -(-x.size // ik.BLOCK)
        sums = empty(x.machine, programs)
        if programs > 1 or always:
            launch(ik.reduction("sum", type_name(x)), x.size, [x, sums], [1])
        return self.running_sums(sums) if programs > 1 else sums

    def where(self, mask: IndexArray) -> IndexArray:
        if not mask.size:
            return empty(mask.machine, 0)
        sums = self._sums(mask, always=True)
        (count,) = self.numbers([sums[-1:]])
        out = empty(mask.machine, count)
        launch(ik.compact(type_name(mask)), mask.size, [mask, sums, out])
        return out

    def put(self, target: IndexArray, positions: IndexArray, values: IndexArray) -> IndexArray:
        source = ik.put(type_name(target), type_name(positions), type_name(values))
        launch(source, positions.size, [positions, values, target])
        return target

    def sort(self, keys: IndexArray, count: int) -> tuple[IndexArray, IndexArray]:
        from tiga.backends.triton.radix_sort import sorted_by

        return sorted_by(keys, (count - 1).bit_length())

    def order(self, keys: IndexArray, count: int) -> IndexArray:
        from tiga.backends.triton.radix_sort import sorted_order

        return sorted_order(keys, (count - 1).bit_length())

    def rows(self, starts: IndexArray, total: int) -> IndexArray:
        out = empty(starts.machine, total)
        numbers = [starts.size, starts.size.bit_length()]
        launch(ik.search(type_name(starts), None), total, [starts, out], numbers)
        return out

    def before(self, ordered: IndexArray, bounds: IndexArray) -> IndexArray:
        out = empty(bounds.machine, bounds.size)
        numbers = [ordered.size, ordered.size.bit_length()]
        source = ik.search(type_name(ordered), type_name(bounds))
        launch(source, bounds.size, [ordered, bounds, out], numbers)
        return out

    def bits(self, positions: IndexArray, count: int) -> IndexArray:
        marks = empty(positions.machine, count, np.int8)
        marks.machine.zero(marks.address, marks.nbytes)
        ones = self.full(positions, positions.size, 1)
        self.put(marks, positions, ones)
        out = empty(positions.machine, count // 32, np.int32)
        launch(ik.pack(), out.size, [marks, out])
        return out


ARRAYS = NativeArrays()


def positions(machine: Any, count: int) -> IndexArray:
    """0, 1, 2, ... in int64."""
    out = empty(machine, count)
    launch(ik.fill("i64"), count, [out], [0, 1])
    return out


def from_start(
    places: IndexArray, extent: int, refused: Callable[[int], Exception]
) -> IndexArray:  # fmt: skip
    """Positions in int64 along an axis of an extent, of which negative ones count from its end. Two
    numbers are copied to the CPU, which waits for them.

    Raises:
        What `refused` makes of a position that does not exist.
    """
    places = ARRAYS.cast(places, 64)
    if not places.size:
        return places
    least, most = ARRAYS.numbers([ARRAYS.minimum(places), ARRAYS.maximum(places)])
    if least < -extent or most >= extent:
        raise refused(least if least < -extent else most)
    return places if least >= 0 else places + (places < 0) * extent
