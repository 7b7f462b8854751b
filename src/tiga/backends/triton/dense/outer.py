"""Sums over rows of outer products: the adjoint of a product of rows with a matrix.

Blocks of rows leave pieces, which one more kernel adds in their order: the bits depend on the
number of rows alone.
"""

from functools import lru_cache

from tiga.backends.triton.arithmetic import dtype_text
from tiga.backends.triton.dense.combine import combination, combine
from tiga.backends.triton.dense.form import LIMIT
from tiga.backends.triton.dense.matmul import MATRIX_UNITS, ProductTile
from tiga.backends.triton.dense.run import Room
from tiga.backends.triton.dense.values import loaded
from tiga.backends.triton.layout import Tile
from tiga.backends.triton.writer import KernelSource, Parameter, pointer_type
from tiga.runtime.device_array import DeviceArray
from tiga.types import DType

BLOCK_ROWS = 1024
"""Rows of a piece."""


@lru_cache(maxsize=128)
def outer_pieces(dtype: DType, tile: ProductTile) -> KernelSource:
    """`out[p, i, j]`: the sum of `x[r, i] * y[r, j]` over the rows of block p."""
    by_units = dtype in MATRIX_UNITS
    total = f"tl.full([{tile.rows}, {tile.columns}], 0, {dtype_text(dtype.compute)})"
    lines = _by_units(tile) if by_units else _by_rows(dtype)
    text = f"""@triton.jit
def outer_pieces(x, y, out, rows, inner, outer):
    piece = tl.program_id(2).to(tl.int64)
    i = tl.program_id(0) * {tile.rows} + tl.arange(0, {tile.rows})[:, None]
    j = tl.program_id(1) * {tile.columns} + tl.arange(0, {tile.columns})[None, :]
    first = piece * {BLOCK_ROWS}
    count = tl.minimum(rows - first, {BLOCK_ROWS}).to(tl.int32)
    total = {total}
{"".join(f"    {line}{chr(10)}" for line in lines)}\
    tl.store(out + (piece * inner + i) * outer + j, total, mask=(i < inner) & (j < outer))
"""
    pointers = {"x": dtype, "y": dtype, "out": dtype.compute}
    parameters = (
        *(Parameter(name, pointer_type(kind), name) for name, kind in pointers.items()),
        *(Parameter(name, "i64", name) for name in ("rows", "inner", "outer")),
    )
    warps = 4 if tile.rows * tile.columns >= 1024 else 1
    return KernelSource("outer_pieces", text, parameters, (), Tile(tile.rows, tile.columns, warps))


def _by_units(tile: ProductTile) -> list[str]:
    """By matrix units, some rows at a time."""
    return [
        f"for start in range(0, count, {tile.inner}):",
        f"    k = start + tl.arange(0, {tile.inner})",
        "    along, down = k[None, :], k[:, None]",
        "    a = tl.load(x + (first + along) * inner + i, "
        "mask=(along < count) & (i < inner), other=0)",
        "    b = tl.load(y + (first + down) * outer + j, "
        "mask=(down < count) & (j < outer), other=0)",
        "    total = matmul_add(a, b, total)",
    ]


def _by_rows(dtype: DType) -> list[str]:
    """One row at a time."""
    a = loaded("tl.load(x + (first + k) * inner + i, mask=i < inner, other=0)", dtype)
    b = loaded("tl.load(y + (first + k) * outer + j, mask=j < outer, other=0)", dtype)
    return ["for k in range(0, count):", f"    total = total + {a.text} * {b.text}"]


def outer_sum(
    x: DeviceArray, y: DeviceArray, out: DeviceArray, dtype: DType, inner: int, outer: int,
    room: Room,
) -> None:  # fmt: skip
    """`out [inner, outer] = x.T @ y`, of contiguous arrays with `inner` and `outer` columns."""
    rows = x.size // inner
    pieces = -(-rows // BLOCK_ROWS)
    tile = ProductTile.of(inner, outer, BLOCK_ROWS)
    grid = (-(-inner // tile.rows), -(-outer // tile.columns), pieces)
    made = room.like((pieces, inner, outer), dtype.compute.numpy)
    launch = room.machine.bind(outer_pieces(dtype, tile), grid, [None] * 3 + [rows, inner, outer])
    launch([x.address, y.address, made.address])
    numbers = inner * outer
    form = combination("add", dtype, pieces, numbers)
    second = combine(form, pieces * numbers >= LIMIT)
    programs = (-(-numbers // form.window), 1, 1)
    room.machine.bind(second, programs, [None, None, pieces, numbers])([made.address, out.address])
