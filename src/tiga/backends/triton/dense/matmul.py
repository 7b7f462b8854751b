"""Matrix products of whole tensors: tiles of the result, the inner axis in slices, in order."""

from dataclasses import dataclass
from functools import lru_cache

from tiga.backends.triton.arithmetic import Term, dtype_text
from tiga.backends.triton.dense import values as dv
from tiga.backends.triton.dense.values import loaded
from tiga.backends.triton.evaluate import stored
from tiga.backends.triton.layout import Tile, padded
from tiga.backends.triton.writer import KernelSource, Parameter, pointer_type
from tiga.types import DType, bfloat16, float16, float32

MATRIX_UNITS = (float16, bfloat16, float32)
"""What matrix units multiply; float32 in full precision."""

LEAST = 16
"""The least extents of matrix units."""


@dataclass(frozen=True)
class ProductTile:
    """Extents of what a program multiplies at a time."""

    rows: int
    columns: int
    inner: int

    @staticmethod
    def of(rows: int, columns: int, inner: int) -> "ProductTile":
        """The tile for matrices of these extents."""
        return ProductTile(
            max(LEAST, min(64, padded(rows))),
            max(LEAST, min(64, padded(columns))),
            max(LEAST, min(32, padded(inner))),
        )


@lru_cache(maxsize=128)
def product(dtype: DType, tile: ProductTile) -> KernelSource:
    """`out[b] = x[b] @ y[b]` for row-major matrices of any extents."""
    return _by_units(dtype, tile) if dtype in MATRIX_UNITS else _by_columns(dtype, tile)


_FRAME = """@triton.jit
def product(x, y, out, rows, columns, inner):
    batch = tl.program_id(2).to(tl.int64)
    row = tl.program_id(0) * {rows} + tl.arange(0, {rows})[:, None]
    column = tl.program_id(1) * {columns} + tl.arange(0, {columns})[None, :]
    left = batch * rows * inner + row.to(tl.int64) * inner
    right = batch * inner * columns + column
    place = batch * rows * columns + row.to(tl.int64) * columns + column
    inside = (row < rows) & (column < columns)
    width = columns.to(tl.int64)
{body}"""


def _framed(dtype: DType, tile: ProductTile, body: list[str]) -> KernelSource:
    text = _FRAME.format(
        rows=tile.rows, columns=tile.columns, body="".join(f"    {line}\n" for line in body)
    )
    pointer = pointer_type(dv.part_dtype(dtype))
    parameters = (
        *(Parameter(name, pointer, name) for name in ("x", "y", "out")),
        *(Parameter(name, "i32", name) for name in ("rows", "columns", "inner")),
    )
    warps = 4 if tile.rows * tile.columns >= 1024 else 1
    return KernelSource("product", text, parameters, (), Tile(tile.rows, tile.columns, warps))


def _by_units(dtype: DType, tile: ProductTile) -> KernelSource:
    """By matrix units: products of 16-bit numbers are exact, those of float32 not shortened."""
    result = stored(Term("total", float32), dtype).text
    body = [
        f"total = tl.full([{tile.rows}, {tile.columns}], 0.0, tl.float32)",
        f"for start in range(0, inner, {tile.inner}):",
        f"    k = start + tl.arange(0, {tile.inner})",
        "    along, down = k[None, :], k[:, None]",
        "    a = tl.load(x + left + along, mask=(row < rows) & (along < inner), other=0)",
        "    b = tl.load(y + right + down * width, "
        "mask=(down < inner) & (column < columns), other=0)",
        "    total = matmul_add(a, b, total)",
        f"tl.store(out + place, {result}, mask=inside)",
    ]
    return _framed(dtype, tile, body)


def _by_columns(dtype: DType, tile: ProductTile) -> KernelSource:
    """One column of the left matrix times one row of the right at a time, in any dtype."""
    part, count = dv.part_dtype(dtype), dv.parts(dtype)
    names = [("re", "im")[i] if count == 2 else "" for i in range(count)]
    full = f"[{tile.rows}, {tile.columns}], 0, {dtype_text(part)}"
    body = [f"total{n} = tl.full({full})" for n in names]
    body.append("for k in range(0, inner):")
    for i, n in enumerate(names):
        at = f"* {count} + {i}" if count == 2 else ""
        left = loaded(f"tl.load(x + (left + k) {at}, mask=row < rows, other=0)", part)
        right = loaded(
            f"tl.load(y + (right + k * width) {at}, mask=column < columns, other=0)", part
        )
        body += [f"    a{n} = {left.text}", f"    b{n} = {right.text}"]
    values = [tuple(Term(f"{v}{n}", part) for n in names) for v in ("a", "b", "total")]
    for n, term in zip(names, _multiply_add(dtype, *values), strict=True):
        body.append(f"    next{n} = {term.text}")
    body += [f"    total{n} = next{n}" for n in names]
    for i, n in enumerate(names):
        at = f"place * {count} + {i}" if count == 2 else "place"
        body.append(f"tl.store(out + {at}, total{n}, mask=inside)")
    return _framed(dtype, tile, body)


def _multiply_add(dtype: DType, a: dv.Value, b: dv.Value, total: dv.Value) -> dv.Value:
    multiplied = dv.multiplied(dtype, a, b)
    return dv.combined("add", dtype, total, multiplied)
