"""Order in whole tensors: rows sorted whatever their length and dtype, and searches in them.

Numbers become keys of 32 or 64 bits in the same order, which a stable sort by digits takes: those
of the numbers first, those of their rows last.
"""

from functools import lru_cache
from typing import Any

from tiga.backends.triton.dense.values import loaded
from tiga.backends.triton.index_arrays import ARRAYS, IndexArray, empty, index_array, launch
from tiga.backends.triton.index_kernels import kernel
from tiga.backends.triton.radix_sort import sorted_order
from tiga.backends.triton.writer import KernelSource, pointer_type
from tiga.runtime.device_array import DeviceArray
from tiga.types import DType, bool_, int64

_LARGEST = {32: 2**31 - 1, 64: 2**63 - 1}


def key_bits(dtype: DType) -> int:
    """The bits of a key that tell numbers of a dtype apart, from the lowest on."""
    if dtype == bool_:
        return 1
    return 8 * (dtype.compute.itemsize if dtype.is_float else dtype.itemsize)


def _width(dtype: DType) -> int:
    """The bits of a key in memory."""
    return 64 if key_bits(dtype) > 32 else 32


@lru_cache(maxsize=32)
def sort_keys(dtype: DType, descending: bool) -> KernelSource:
    """Whole numbers whose bits, read without a sign, are in the order of `x`; NaN is the largest,
    and -0 and 0 are equal."""
    width = _width(dtype)
    element = loaded("tl.load(x + i, mask=inside, other=0)", dtype).text
    integer = f"tl.int{width}"
    if dtype.is_float:
        # Bits of floats are in order but for negative ones.
        body = [
            f"value = {element} + 0.0",
            f"bits = value.to({integer}, bitcast=True)",
            f"key = tl.where(bits < 0, bits ^ {_LARGEST[width]}, bits)",
            f"key = tl.where(value != value, {_LARGEST[width]}, key)",
        ]
    else:
        body = [f"key = {element}.to({integer})"]
    if dtype.kind != "u" and dtype != bool_:
        # The sign comes last among the bits that tell.
        body.append(f"key = key ^ (tl.full([1], 1, {integer}) << {key_bits(dtype) - 1})")
    if descending:
        body.append("key = -1 - key")
    body.append("tl.store(out + i, key, mask=inside)")
    pointers = {"x": pointer_type(dtype)[1:], "out": f"i{width}"}
    return kernel("sort_keys", pointers, ("count",), body)


RANGED = 2**16
"""Whole numbers of 64 bits, if there are so many, are sorted by how far they are from an end."""


@lru_cache(maxsize=2)
def distances(descending: bool) -> KernelSource:
    """How far whole numbers are from `end`, which none is beyond."""
    distance = "end - value" if descending else "value - end"
    body = ["value = tl.load(x + i, mask=inside, other=0)",
            f"tl.store(out + i, {distance}, mask=inside)"]  # fmt: skip
    return kernel("distances", {"x": "i64", "out": "i64"}, ("count", "end"), body)


def _keys(flat: IndexArray, dtype: DType, descending: bool) -> tuple[IndexArray, int]:
    """Keys in the order of numbers, and how many of their bits tell these apart. Two numbers are
    copied to the CPU where there are many whole ones of 64 bits, of which few bits tell mostly."""
    keys = empty(flat.machine, flat.size, f"int{_width(dtype)}")
    if dtype != int64 or flat.size < RANGED:
        launch(sort_keys(dtype, descending), flat.size, [flat, keys])
        return keys, key_bits(dtype)
    least, most = ARRAYS.numbers([ARRAYS.minimum(flat), ARRAYS.maximum(flat)])
    launch(distances(descending), flat.size, [flat, keys], [most if descending else least])
    return keys, (most - least).bit_length()


def sorted_rows(x: DeviceArray, dtype: DType, descending: bool) -> IndexArray:
    """The positions in its row that sort each row of a contiguous array, equal numbers in their
    order, as a rank-1 array."""
    columns = x.shape[-1]
    order = sorted_order(*_keys(index_array(x.reshape(x.size)), dtype, descending))
    rows = x.size // columns
    if rows > 1:
        row_bits, place_bits = ((extent - 1).bit_length() for extent in (rows, x.size))
        order = sorted_order(order // columns, row_bits, order, place_bits)
    return order - (order // columns) * columns


@lru_cache(maxsize=32)
def search(dtype: DType, right: bool) -> KernelSource:
    """Where each bound goes in a rising `x`: before what is equal, or after. NaN is the largest."""
    value = loaded("tl.load(x + middle, mask=open, other=0)", dtype).text
    bound = loaded("tl.load(bounds + i, mask=inside, other=0)", dtype).text
    if right:
        less = "(value <= bound) | (bound != bound)" if dtype.is_float else "value <= bound"
    else:
        less = "value < bound"
        if dtype.is_float:
            less = f"({less}) | ((bound != bound) & (value == value))"
    body = [
        f"bound = {bound}",
        "low = i * 0",
        "high = low + length",
        "for turn in range(0, turns):",
        "    middle = (low + high) // 2",
        "    open = inside & (low < high)",
        f"    value = {value}",
        f"    less = open & ({less})",
        "    high = tl.where(open & (less == 0), middle, high)",
        "    low = tl.where(less, middle + 1, low)",
        "tl.store(out + i, low, mask=inside)",
    ]
    pointers = {"x": pointer_type(dtype)[1:], "bounds": pointer_type(dtype)[1:], "out": "i64"}
    return kernel("search_sorted", pointers, ("count", "length", "turns"), body)


def search_sorted(x: DeviceArray, bounds: DeviceArray, out: DeviceArray, right: bool, dtype: DType
                  ) -> None:  # fmt: skip
    """Fill `out` with the places of `bounds`, of the same dtype, in rank-1 `x`, which rises."""
    numbers: list[Any] = [x.size, x.size.bit_length()]
    launch(search(dtype, right), bounds.size, [x, bounds, out], numbers)
