"""Numbers of whole-tensor kernels in registers: one value, or real and imaginary part as two."""

from collections.abc import Sequence

import numpy as np
from torch_mlir import ir
from torch_mlir.dialects import arith, vector

from tiga.backends.llvm.complex_values import COMPLEX, A, Value
from tiga.backends.llvm.complex_values import cast as cast_complex
from tiga.backends.llvm.conversions import round_to
from tiga.backends.llvm.dense.functions import FUNCTIONS
from tiga.backends.llvm.lanes import constant_of, integer
from tiga.backends.llvm.layout import select_lanes
from tiga.backends.llvm.memory import (
    CACHE_LINE,
    Array,
    element_pointer,
    i64,
    lane_numbers,
    lanes_type,
    register_element,
    splat,
    stored_element,
    to_memory,
)
from tiga.ir import llvm
from tiga.ops.base import Op, Pointwise
from tiga.ops.complex_table import IN_DOUBLE
from tiga.ops.tensor_complex import REAL_OF
from tiga.types import DType, complex64, complex128, int16, uint8


def part_dtype(dtype: DType) -> DType:
    """The type of a value's parts in memory."""
    return REAL_OF.get(dtype, dtype)


def parts(dtype: DType) -> int:
    """Into how many numbers a value falls."""
    return 2 if dtype.is_complex else 1


def filled(number: complex | float | int, dtype: DType, lanes: int) -> Value:
    """One number in every lane."""
    type_ = lanes_type(register_element(part_dtype(dtype)), lanes)
    if dtype.is_complex:
        whole = complex(number)
        return constant_of(whole.real, type_), constant_of(whole.imag, type_)
    assert not isinstance(number, complex)
    return (constant_of(number, type_),)


def number(text: str, dtype: DType) -> complex | float | int:
    """The number that a constant's text stands for."""
    if dtype.is_complex:
        return complex(*map(float.fromhex, text.split(",")))
    return float.fromhex(text) if dtype.is_float else int(text)


def flat(values: Sequence[Value]) -> list[ir.Value]:
    """The parts of values, as loops carry them."""
    return [part for value in values for part in value]


def grouped(parts_: Sequence[ir.Value], dtypes: Sequence[DType]) -> list[Value]:
    """Values of their parts."""
    found, at = [], 0
    for dtype in dtypes:
        found.append(tuple(parts_[at : at + parts(dtype)]))
        at += parts(dtype)
    return found


def rounded(value: Value, dtype: DType) -> Value:
    """A value rounded to a 16-bit type."""
    return value if dtype == dtype.compute else (round_to(value[0], dtype),)


def converted(value: Value, source: DType, target: DType) -> Value:
    """A value in registers in another type that computes."""
    if source == target:
        return value
    if source.is_complex:
        return cast_complex(value, source, target)
    return (A.cast(value[0], source, target),)


def spread(value: Value, lanes: int) -> Value:
    """A scalar in every lane."""
    if lanes == 1:
        return value
    return tuple(v if isinstance(v.type, ir.VectorType) else splat(v, lanes) for v in value)


def first_lanes(count: ir.Value, lanes: int) -> ir.Value:
    """The mask of the first `count` lanes: few bits per lane are compared, as one vector."""
    limited = arith.minsi(arith.maxsi(count, i64(0)), i64(lanes))
    place = lane_numbers(lanes, 8)
    wanted = splat(arith.trunci(integer(8), limited), lanes)
    return arith.cmpi(arith.CmpIPredicate.slt, place, wanted)


def _double(mask: ir.Value, lanes: int) -> ir.Value:
    pairs = [i // 2 for i in range(2 * lanes)]
    return vector.shuffle(mask, mask, pairs)


def _split(raw: ir.Value, lanes: int) -> Value:
    if lanes == 1:
        return vector.extract(raw, [], [0]), vector.extract(raw, [], [1])
    even, odd = ([2 * i + k for i in range(lanes)] for k in (0, 1))
    return vector.shuffle(raw, raw, even), vector.shuffle(raw, raw, odd)


def _merge(value: Value, lanes: int) -> ir.Value:
    re, im = value
    if lanes == 1:
        one = ir.VectorType.get([1], re.type)
        return vector.shuffle(vector.broadcast(one, re), vector.broadcast(one, im), [0, 1])
    order = [i // 2 + (i % 2) * lanes for i in range(2 * lanes)]
    return vector.shuffle(re, im, order)


def load(
    base: ir.Value, dtype: DType, offset: ir.Value, lanes: int, mask: ir.Value | None
) -> Value:
    """`lanes` neighbours from an element on; zeros where masked."""
    array = Array(base, part_dtype(dtype), 1)
    if not dtype.is_complex:
        return (array.load_run(offset, lanes, mask),)
    start = arith.addi(offset, offset)
    wide = None if mask is None else _double(mask, lanes)
    return _split(array.load_run(start, 2 * lanes, wide), lanes)


def load_at(
    base: ir.Value, dtype: DType, offsets: ir.Value, lanes: int, mask: ir.Value | None
) -> Value:
    """Numbers at elements of their own; 0 where masked."""
    if lanes == 1:
        return load(base, dtype, offsets, 1, None)
    array = Array(base, part_dtype(dtype), 1)
    if not dtype.is_complex:
        return (array.load_lanes(offsets, mask),)
    doubled = arith.addi(offsets, offsets)
    return tuple(
        array.load_lanes(place, mask)
        for place in (doubled, arith.addi(doubled, splat(i64(1), lanes)))
    )


def store(
    base: ir.Value,
    dtype: DType,
    value: Value,
    offset: ir.Value,
    lanes: int,
    mask: ir.Value | None,
    streaming: bool = False,
) -> None:
    """Store lanes to neighbours from an element on, but where masked. `streaming` stores whole
    cache lines past the caches."""
    array = Array(base, part_dtype(dtype), 1)
    if dtype.is_complex:
        offset = arith.addi(offset, offset)
        whole = _merge(value, lanes)
        mask = None if mask is None else _double(mask, lanes)
    else:
        (whole,) = value
    if streaming and mask is None:
        stored = to_memory(whole, array.dtype)
        pointer = element_pointer(base, offset, stored_element(array.dtype))
        llvm.store(stored, pointer, alignment=CACHE_LINE, nontemporal=True)
        return
    array.store_run(whole, offset, mask)


def apply(op: Op, dtype: DType, sources: Sequence[DType], args: Sequence[Value]) -> Value:
    """A pointwise op on values of the given types, rounded to a 16-bit type where it has one."""
    if dtype.is_complex or any(d.is_complex for d in sources):
        if op.converts:
            return cast_complex(args[0], sources[0], dtype)
        if dtype == complex64 and op.name in IN_DOUBLE:
            wide = [cast_complex(arg, complex64, complex128) for arg in args]
            return cast_complex(COMPLEX[op.name](*wide), complex128, complex64)
        return COMPLEX[op.name](*args)
    plain = [arg[0] for arg in args]
    if uint8 in sources and not op.converts:
        return _apply_signed(op, dtype, sources, args)
    if op.converts:
        value = A.cast(plain[0], sources[0].compute, dtype)
        return (A.cast(value, dtype, dtype.compute),)
    assert isinstance(op, Pointwise), f"{op} is not pointwise"
    function = FUNCTIONS.get(op.name)
    value = op.lower(A, *plain) if function is None else function(*plain)
    if op.exact or dtype == dtype.compute:
        return (value,)
    return (round_to(value, dtype),)


def _apply_signed(op: Op, dtype: DType, sources: Sequence[DType], args: Sequence[Value]) -> Value:
    """An op on bytes, which registers take for signed, through wider integers; results wrap."""
    wider = [int16 if d == uint8 else d for d in sources]
    given = [(A.cast(arg[0], d, w),) for arg, d, w in zip(args, sources, wider, strict=True)]
    (value,) = apply(op, int16 if dtype == uint8 else dtype, wider, given)
    return (A.cast(value, int16, uint8) if dtype == uint8 else value,)


def prefetch(base: ir.Value, dtype: DType, offset: ir.Value, lanes: int) -> None:
    """Ask for the cache lines of `lanes` neighbours from an element on."""
    if dtype.is_complex:
        offset, lanes = arith.addi(offset, offset), 2 * lanes
    Array(base, part_dtype(dtype), 1).prefetch(offset, lanes)


def combine(name: str, dtype: DType, a: Value, b: Value) -> Value:
    """Two values of a reduction."""
    if dtype.is_complex:
        return COMPLEX[name](a, b)
    if dtype == uint8:
        wide = [A.cast(x[0], uint8, int16) for x in (a, b)]
        return (A.cast(getattr(A, name)(*wide), int16, uint8),)
    return (getattr(A, name)(a[0], b[0]),)


def across_lanes(name: str, dtype: DType, value: Value, lanes: int) -> Value:
    """All lanes combined, by halves."""
    while lanes > 1:
        half = lanes // 2
        low = tuple(select_lanes(v, np.arange(half)) for v in value)
        high = tuple(select_lanes(v, np.arange(half, lanes)) for v in value)
        value, lanes = combine(name, dtype, low, high), half
    return value


def choose(mask: ir.Value, a: Value, b: Value) -> Value:
    """`a` where the mask holds, else `b`."""
    return tuple(arith.select(mask, x, y) for x, y in zip(a, b, strict=True))
