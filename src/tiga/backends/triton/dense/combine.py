"""The second stage of a reduction: partial results of programs, combined in their order."""

from dataclasses import dataclass
from functools import lru_cache

from tiga.backends.triton.arithmetic import Term, dtype_text, number_text, typed
from tiga.backends.triton.dense import values as dv
from tiga.backends.triton.evaluate import stored
from tiga.backends.triton.layout import Tile, padded
from tiga.backends.triton.writer import KernelSource, Parameter, pointer_type
from tiga.types import DType

LANES = 1024
"""Elements of partial results that a program holds at once."""

MOST_COLUMNS = 32


@dataclass(frozen=True)
class Combination:
    """A second stage: `name` of what combines, the dtype of results, and its tile."""

    name: str
    dtype: DType
    lanes: int
    window: int


def combination(name: str, dtype: DType, count: int, columns: int) -> Combination:
    """The second stage for `count` partial results of `columns` numbers each."""
    window = min(padded(columns), MOST_COLUMNS)
    return Combination(name, dtype, min(padded(count), LANES // window), window)


@lru_cache(maxsize=256)
def combine(form: Combination, wide: bool) -> KernelSource:
    """`out[c] = pieces[0, c] + pieces[1, c] + ...`: in lanes, piece after piece, then the lanes.

    A complex number is two columns.
    """
    real = dv.part_dtype(form.dtype)
    compute = real.compute
    (start,) = dv.identity(form.name, real)
    assert start.number is not None
    added = (Term("added", compute),)
    one = (Term("one", compute),)
    (joined,) = dv.combined(form.name, real, added, one)
    (total,) = dv.reduced(form.name, added, 0, True)
    result = stored(typed(total), real).text
    cast = ".to(tl.int64)" if wide else ""
    first = number_text(start.number)
    text = f"""@triton.jit
def combine(pieces, out, count, columns):
    column = tl.program_id(0) * {form.window} + tl.arange(0, {form.window})[None, :]
    lane = tl.arange(0, {form.lanes})[:, None]
    added = tl.full([{form.lanes}, {form.window}], {first}, {dtype_text(compute)})
    for start in range(0, count, {form.lanes}):
        piece = start + lane
        inside = (piece < count) & (column < columns)
        one = tl.load(pieces + piece{cast} * columns + column, mask=inside, other={first})
        added = {joined.text}
    tl.store(out + column, {result}, mask=column < columns)
"""
    parameters = (
        Parameter("pieces", pointer_type(compute), "pieces"),
        Parameter("out", pointer_type(real), "out"),
        Parameter("count", "i32", "count"),
        Parameter("columns", "i32", "columns"),
    )
    warps = max(1, min(4, form.lanes * form.window // 128))
    return KernelSource("combine", text, parameters, (), Tile(form.lanes, form.window, warps))
