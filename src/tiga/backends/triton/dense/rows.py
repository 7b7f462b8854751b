"""Kernels along the last axis whose result is no sum: positions of extrema, running sums."""

from dataclasses import replace
from functools import lru_cache

from tiga.backends.triton.arithmetic import Term, dtype_text, literal, typed
from tiga.backends.triton.dense.values import loaded
from tiga.backends.triton.evaluate import stored
from tiga.backends.triton.layout import Tile, padded
from tiga.backends.triton.writer import KernelSource, Parameter, pointer_type
from tiga.types import DType, float32, float64, int64

WINDOW = 1024


def window_of(columns: int) -> int:
    """Columns that a program holds at a time."""
    return min(padded(columns), WINDOW)


def _source(name: str, body: list[str], source: DType, target: DType, window: int) -> KernelSource:
    head = f"@triton.jit\ndef {name}(x, out, columns):"
    text = "\n    ".join([head, "row = tl.program_id(0).to(tl.int64)", *body]) + "\n"
    parameters = (
        Parameter("x", pointer_type(source), "x"),
        Parameter("out", pointer_type(target), "out"),
        Parameter("columns", "i64", "columns"),
    )
    return KernelSource(name, text, parameters, (), Tile(1, window, max(1, min(4, window // 256))))


@lru_cache(maxsize=64)
def arg_extremum(name: str, dtype: DType, window: int) -> KernelSource:
    """The first position of a row's maximum or minimum, or of its first NaN."""
    compute = dtype.compute
    value = loaded("tl.load(x + row * columns + column, mask=inside, other=0)", dtype).text
    if not compute.is_float:
        value = f"{value}.to(tl.int64)"
    kind = dtype_text(compute if compute.is_float else int64)
    body = [
        f"lane = tl.arange(0, {window})",
        f"best = tl.load(x + row * columns + lane * 0).to({kind})",
        f"place = tl.full([{window}], 0, tl.int64)",
        f"for start in range(0, columns, {window}):",
        "    column = start + lane",
        "    inside = column < columns",
        f"    value = {value}",
        f"    better = inside & {name}_wins(value, column, best, place)",
        "    best = tl.where(better, value, best)",
        "    place = tl.where(better, column, place)",
        f"best_of_all, first = tl.reduce((best, place), 0, {name}_of)",
        "tl.store(out + row, first)",
    ]
    return _source(f"{name}", body, dtype, int64, window)


@lru_cache(maxsize=64)
def running_sum(dtype: DType, reverse: bool, window: int) -> KernelSource:
    """Inclusive sums along each row; float32 adds in float64."""
    compute = float64 if dtype == float32 else dtype.compute
    element = loaded("tl.load(x + row * columns + place, mask=inside, other=0)", dtype).text
    wide = f".to({dtype_text(compute)})"
    total = stored(Term(f"total.to({dtype_text(dtype.compute)})", dtype.compute), dtype)
    zero = typed(literal(0, compute)).text
    body = [
        f"lane = tl.arange(0, {window})",
        f"before = {zero}",
        f"for start in range(0, columns, {window}):",
        "    column = start + lane",
        "    inside = column < columns",
        f"    place = {'columns - 1 - column' if reverse else 'column'}",
        f"    value = {element}{wide}",
        f"    total = (before + tl.cumsum(value, 0)){wide}",
        f"    tl.store(out + row * columns + place, {total.text}, mask=inside)",
        f"    before = (before + tl.sum(value, 0)){wide}",
    ]
    return _source("running_sum", body, dtype, dtype, window)


SORTED_COLUMNS = 8192
"""Elements of the longest row that one program sorts."""

_LAST = 2**31 - 1


def sortable(dtype: DType, columns: int) -> bool:
    """Whether `argsort` takes rows of this dtype and length: 32 bits of a number and its place are
    one number to be sorted."""
    return not dtype.is_complex and dtype.compute.itemsize <= 4 and columns <= SORTED_COLUMNS


@lru_cache(maxsize=64)
def argsort(dtype: DType, descending: bool, window: int) -> KernelSource:
    """Positions that sort each row, equal numbers in their order; NaN is the largest."""
    element = loaded("tl.load(x + row * columns + lane, mask=inside, other=0)", dtype).text
    if dtype.is_float:
        # Bits of floats are in order but for negative ones; -0 and 0 are equal.
        key = [
            f"value = {element} + 0.0",
            "bits = value.to(tl.int32, bitcast=True)",
            f"key = tl.where(bits < 0, bits ^ {_LAST}, bits)",
            f"key = tl.where(value != value, {_LAST}, key)",
        ]
    else:
        key = [f"key = {element}.to(tl.int32)"]
    body = [
        f"lane = tl.arange(0, {window})",
        "inside = lane < columns",
        *key,
        *(["key = -1 - key"] if descending else []),
        f"key = tl.where(inside, key, {_LAST})",
        "both = tl.sort((key.to(tl.int64) << 32) + lane)",
        "tl.store(out + row * columns + lane, both & 4294967295, mask=inside)",
    ]
    made = _source("argsort", body, dtype, int64, window)
    return replace(made, tile=Tile(1, window, max(1, min(16, window // 256))))
