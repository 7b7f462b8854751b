"""Casts between all element types, by kind of source and target."""

from torch_mlir import ir
from torch_mlir.dialects import arith

from tiga.backends.llvm.lanes import Lanes, integer, resized_integer, where, with_element
from tiga.types import DType, bfloat16, bool_, float32


def cast(a: Lanes, source: DType, target: DType) -> Lanes:
    """`a` of `source` as `target`, as torch converts on the CPU.

    Floats round to nearest even; 16-bit floats convert through float32. Floats become integers by
    truncation: NaN gives 0, values past the range saturate at 32 or 64 bits, and 8- and 16-bit
    targets then keep the low bits. Integers wrap. Anything becomes a boolean by `!= 0`. Lanes of
    bf16 are i16, their bits.
    """
    if source == target:
        return a
    if target == bool_:
        return widened(a, source).compare("ne", 0)
    if source.is_float:
        value = widened(a, source)
        return _rounded(value, target) if target.is_float else _truncated(value, target)
    if target.is_float:
        return _from_integer(a, source, target)
    return resized_integer(a, target.itemsize * 8, signed=source.kind == "i")


def widened(a: Lanes, source: DType) -> Lanes:
    """16-bit floats as f32, exactly; everything else as it is."""
    if not source.is_float or source.itemsize > 2:
        return a
    if source == bfloat16:
        # By bits, so that no target flushes subnormals.
        wide = Lanes(arith.extui(with_element(a.type, integer(32)), a.value))
        return (wide << 16).as_float()
    return Lanes(arith.extf(with_element(a.type, ir.F32Type.get()), a.value))


def _rounded(a: Lanes, target: DType) -> Lanes:
    """f32 or f64 as the float type `target`."""
    if target.itemsize == 8:
        return a if a.width == 64 else a.extended()
    single = a if a.width == 32 else a.truncated()
    if target == float32:
        return single
    if target == bfloat16:
        return _bfloat16(single)
    return Lanes(arith.truncf(with_element(a.type, ir.F16Type.get()), single.value))


def _bfloat16(a: Lanes) -> Lanes:
    """f32 as bf16, by its bits: where a CPU has no instructions for bf16, LLVM takes apart loads
    and stores of such lanes by calls of functions that are in no library here."""
    high = _bfloat16_bits(a).shift_right_zero(16)
    return Lanes(arith.trunci(with_element(a.type, integer(16)), high.value))


def _bfloat16_bits(a: Lanes) -> Lanes:
    """The upper half of these bits is f32 `a` rounded to bf16.

    By integer arithmetic: conversion instructions flush subnormals on some CPUs.
    """
    bits = a.bits()
    nearest = bits + ((bits.shift_right_zero(16) & 1) + 0x7FFF)
    # Rounding could carry a NaN to infinity or to zero.
    return where(a.compare("ne", a), bits | 0x400000, nearest)


def round_to(value: ir.Value, dtype: DType) -> ir.Value:
    """f32 rounded to the nearest number of the 16-bit float `dtype`, still as f32."""
    lanes = Lanes(value)
    if dtype == bfloat16:
        return (_bfloat16_bits(lanes) & -0x10000).as_float().value
    half = arith.truncf(with_element(lanes.type, ir.F16Type.get()), value)
    return arith.extf(lanes.type, half)


def _truncated(a: Lanes, target: DType) -> Lanes:
    """f32 or f64 as an integer; `fptosi`, undefined out of range, never sees such values."""
    width = max(32, target.itemsize * 8)
    bound = float(2 ** (width - 1))
    inside = (a >= -bound) & (a < bound)
    wide = with_element(a.type, integer(width))
    whole = Lanes(arith.fptosi(wide, where(inside, a, 0.0).value))
    whole = where(a >= bound, 2 ** (width - 1) - 1, whole)
    whole = where(a < -bound, -(2 ** (width - 1)), whole)
    return resized_integer(whole, target.itemsize * 8)


def _from_integer(a: Lanes, source: DType, target: DType) -> Lanes:
    """An integer or boolean as a float, rounded to nearest even; 16-bit targets through f32."""
    element = ir.F64Type.get() if target.itemsize == 8 else ir.F32Type.get()
    convert = arith.sitofp if source.kind == "i" else arith.uitofp
    return _rounded(Lanes(convert(with_element(a.type, element), a.value)), target)
