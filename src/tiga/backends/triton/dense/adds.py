"""Values added up at positions that are values themselves, in the order of the positions.

A stable sort of the positions says which meet.
"""

import math
from functools import lru_cache

from tiga.backends.triton.arithmetic import Term, dtype_text
from tiga.backends.triton.dense import values as dv
from tiga.backends.triton.dense.values import loaded
from tiga.backends.triton.evaluate import stored
from tiga.backends.triton.index_arrays import ARRAYS, IndexArray, from_start, index_array
from tiga.backends.triton.layout import Tile, padded
from tiga.backends.triton.machine import Gpu, Interpreter
from tiga.backends.triton.writer import KernelSource, Parameter, pointer_type
from tiga.errors import InvalidIndex
from tiga.runtime.device_array import DeviceArray
from tiga.types import DType

MOST_COLUMNS = 256
"""Numbers of a row that a program adds, at most."""


@lru_cache(maxsize=64)
def add_rows(dtype: DType, window: int) -> KernelSource:
    """`out[o, v] = sum of values[o, order[k]]` for k from `starts[v]` to `starts[v + 1]`, in order,
    over rows of `inner` numbers."""
    part = dv.part_dtype(dtype)
    value = loaded("tl.load(values + place * inner + column, mask=inside, other=0)", part).text
    result = stored(Term("total", part.compute), part).text
    text = f"""@triton.jit
def add_rows(values, order, starts, out, count, extent, inner):
    row = tl.program_id(0).to(tl.int64)
    outer, target = row // extent, row % extent
    column = tl.program_id(1) * {window} + tl.arange(0, {window})
    inside = column < inner
    total = tl.full([{window}], 0, {dtype_text(part.compute)})
    first = tl.load(starts + target)
    for k in range(0, (tl.load(starts + target + 1) - first).to(tl.int32)):
        place = outer * count + tl.load(order + first + k)
        total = total + {value}
    tl.store(out + row * inner + column, {result}, mask=inside)
"""
    pointer = pointer_type(part)
    parameters = (
        Parameter("values", pointer, "values"),
        Parameter("order", "*i64", "order"),
        Parameter("starts", "*i64", "starts"),
        Parameter("out", pointer, "out"),
        *(Parameter(name, "i64", name) for name in ("count", "extent", "inner")),
    )
    return KernelSource("add_rows", text, parameters, (), Tile(1, window, max(1, window // 64)))


def add_at(
    out: DeviceArray, values: DeviceArray, places: IndexArray, outer: int, extent: int,
    dtype: DType, machine: Gpu | Interpreter,
) -> None:  # fmt: skip
    """`out [outer, extent, inner]`: zeros with `values [outer, count, inner]` added at places, all
    of them in `0..extent-1`."""
    ordered, order = ARRAYS.sort(places, extent)
    starts = ARRAYS.before(ordered, ARRAYS.positions(places, extent + 1))
    inner = out.size // (outer * extent) * dv.parts(dtype)
    window = min(padded(inner), MOST_COLUMNS)
    grid = (outer * extent, -(-inner // window), 1)
    numbers = [None, None, None, None, places.size, extent, inner]
    launch = machine.bind(add_rows(dtype, window), grid, numbers)
    launch([values.address, order.address, starts.address, out.address])


def places_of(index: DeviceArray, extent: int, where: str | None) -> IndexArray:
    """The positions of a contiguous array as a rank-1 one, counted from the start.

    Raises:
        InvalidIndex: a position does not exist.
    """

    def refused(wrong: int) -> InvalidIndex:
        return InvalidIndex(
            f"position {wrong} is out of range for extent {extent} (built at {where})."
        )

    return from_start(index_array(index.reshape(index.size)), extent, refused)


def linear_places(
    places: IndexArray, shape: tuple[int, ...], axis: int, extent: int
) -> IndexArray:  # fmt: skip
    """For every element of an index of a shape along an axis, its place in a row-major array whose
    axis has that extent."""
    inner = math.prod(shape[axis + 1 :])
    element = ARRAYS.positions(places, places.size)
    row = element // inner
    outer = row // shape[axis]
    return (outer * extent + places) * inner + (element - row * inner)
