"""Values added up at positions that are values themselves, in the order of the positions.

Which positions meet is worked out on the CPU: the positions, not the values, are copied there.
"""

from functools import lru_cache

import numpy as np

from tiga.backends.triton import dense_values as dv
from tiga.backends.triton.arithmetic import Term, dtype_text
from tiga.backends.triton.dense_run import Room
from tiga.backends.triton.dense_values import loaded
from tiga.backends.triton.evaluate import stored
from tiga.backends.triton.layout import Tile, padded
from tiga.backends.triton.writer import KernelSource, Parameter, pointer_type
from tiga.errors import InvalidIndex
from tiga.runtime.device_array import DeviceArray, download, upload
from tiga.types import DType

MOST_COLUMNS = 256


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
    out: DeviceArray, values: DeviceArray, positions: np.ndarray, outer: int, extent: int,
    dtype: DType, room: Room, where: str | None,
) -> None:  # fmt: skip
    """`out [outer, extent, inner]`: zeros with `values [outer, count, inner]` added at positions.

    Raises:
        InvalidIndex: a position does not exist; nothing is computed then.
    """
    if positions.size and not -extent <= positions.min() <= positions.max() < extent:
        wrong = positions[(positions < -extent) | (positions >= extent)][0]
        raise InvalidIndex(
            f"position {wrong} is out of range for extent {extent} (built at {where})."
        )
    positions = np.where(positions < 0, positions + extent, positions)
    order = np.argsort(positions, kind="stable").astype(np.int64)
    counts = np.bincount(positions, minlength=extent)
    starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    there = [_uploaded(array, room) for array in (order, starts)]
    inner = out.size // (outer * extent) * dv.parts(dtype)
    window = min(padded(inner), MOST_COLUMNS)
    grid = (outer * extent, -(-inner // window), 1)
    numbers = [None, None, None, None, positions.size, extent, inner]
    launch = room.machine.bind(add_rows(dtype, window), grid, numbers)
    launch([values.address, there[0].address, there[1].address, out.address])


def _uploaded(array: np.ndarray, room: Room) -> DeviceArray:
    made = room.like(array.shape, array.dtype)
    return upload(array, room.machine, made.memory)


def linear_positions(index: DeviceArray, axis: int, extent: int) -> np.ndarray:
    """For every element of an index along an axis, its place in a row-major array whose axis has
    that extent."""
    positions = download(index).astype(np.int64)
    grid: list[np.ndarray] = list(np.indices(positions.shape, sparse=True))
    if positions.size and not -extent <= positions.min() <= positions.max() < extent:
        return positions.reshape(-1)  # refused where they are used
    grid[axis] = np.where(positions < 0, positions + extent, positions)
    shape = (*index.shape[:axis], extent, *index.shape[axis + 1 :])
    whole = [np.broadcast_to(places, positions.shape) for places in grid]
    return np.ravel_multi_index(whole, shape).reshape(-1)
