"""Loads and stores: typed arrays behind raw pointers, with 64-bit offsets throughout."""

from dataclasses import dataclass

import numpy as np
from torch_mlir import ir
from torch_mlir.dialects import arith, vector

from tiga.backends.llvm.arithmetic import VectorArithmetic
from tiga.backends.llvm.lanes import constant_of, integer
from tiga.ir import llvm
from tiga.types import DType, bfloat16, bool_

CACHE_LINE = 64
_ARITHMETIC = VectorArithmetic()


def i64(number: int) -> ir.Value:
    """A 64-bit integer constant."""
    return constant_of(number, integer(64))


def lanes_type(element: ir.Type, count: int) -> ir.Type:
    """`count` lanes of `element`: a scalar when there is one."""
    return element if count == 1 else ir.VectorType.get([count], element)


def stored_element(dtype: DType) -> ir.Type:
    """The element type in memory (booleans are bytes, and bf16 is its bits)."""
    if dtype.kind in "bu":
        return integer(8)
    if dtype == bfloat16:
        return integer(16)
    return ir.Type.parse(dtype.mlir)


def register_element(dtype: DType) -> ir.Type:
    """The element type in registers: 16-bit floats are widened, booleans are i1."""
    return ir.Type.parse("i8" if dtype.kind == "u" else dtype.compute.mlir)


def to_register(value: ir.Value, dtype: DType) -> ir.Value:
    """A value as loaded, in its register form."""
    if dtype == bool_:
        return arith.cmpi(arith.CmpIPredicate.ne, value, constant_of(0, value.type))
    return _ARITHMETIC.cast(value, dtype, dtype.compute)


def to_memory(value: ir.Value, dtype: DType) -> ir.Value:
    """A register value in the form that is stored."""
    if dtype == bool_:
        like = value.type
        shape = like.shape if isinstance(like, ir.VectorType) else None
        byte = integer(8) if shape is None else ir.VectorType.get(shape, integer(8))
        return arith.extui(byte, value)
    return _ARITHMETIC.cast(value, dtype.compute, dtype)


def element_pointer(base: ir.Value, offset: ir.Value, element: ir.Type) -> ir.Value:
    """The address of element number `offset` (i64) after `base`."""
    return llvm.getelementptr(base.type, base, [offset], element)


def load_word(base: ir.Value, offset: ir.Value, bits: int = 64) -> ir.Value:
    """An integer of an index array, widened to 64 bits."""
    word = llvm.load(integer(bits), element_pointer(base, offset, integer(bits)))
    return word if bits == 64 else arith.extsi(integer(64), word)


@dataclass(frozen=True)
class Array:
    """Row-major elements of `dtype` at a raw pointer, `row` elements per entity."""

    base: ir.Value
    dtype: DType
    row: int

    def start(self, entity: ir.Value) -> ir.Value:
        """The element offset of an entity."""
        return arith.muli(entity, constant_of(self.row, entity.type))

    def load(self, offset: ir.Value, count: int) -> ir.Value:
        """`count` consecutive elements from element `offset`, in register form."""
        element = stored_element(self.dtype)
        pointer = element_pointer(self.base, offset, element)
        raw = llvm.load(lanes_type(element, count), pointer, alignment=self.dtype.itemsize)
        return to_register(raw, self.dtype)

    def store(self, value: ir.Value, offset: ir.Value) -> None:
        """Store a register value at element `offset`."""
        pointer = element_pointer(self.base, offset, stored_element(self.dtype))
        llvm.store(to_memory(value, self.dtype), pointer, alignment=self.dtype.itemsize)

    def load_run(self, offset: ir.Value, count: int, mask: ir.Value | None) -> ir.Value:
        """`count` consecutive elements, one per lane; zero where masked."""
        if mask is None:
            return self.load(offset, count)
        type_ = ir.VectorType.get([count], stored_element(self.dtype))
        pointer = element_pointer(self.base, offset, stored_element(self.dtype))
        raw = llvm.masked_load(type_, pointer, mask, self.dtype.itemsize, constant_of(0, type_))
        return to_register(raw, self.dtype)

    def store_run(self, value: ir.Value, offset: ir.Value, mask: ir.Value | None) -> None:
        """Store lanes to consecutive elements, but not where masked."""
        if mask is None:
            self.store(value, offset)
            return
        pointer = element_pointer(self.base, offset, stored_element(self.dtype))
        llvm.masked_store(to_memory(value, self.dtype), pointer, mask, self.dtype.itemsize)

    def load_lanes(self, entities: ir.Value, mask: ir.Value | None, at: int = 0) -> ir.Value:
        """Element `at` of lanes of entities; zero where masked."""
        type_ = ir.VectorType.get(entities.type.shape, stored_element(self.dtype))
        raw = llvm.masked_gather(
            type_,
            self._lane_pointers(entities, at),
            _all_lanes(entities) if mask is None else mask,
            self.dtype.itemsize,
            constant_of(0, type_),
        )
        return to_register(raw, self.dtype)

    def store_lanes(
        self, value: ir.Value, entities: ir.Value, mask: ir.Value | None, at: int = 0
    ) -> None:
        """Store lanes to element `at` of lanes of entities, which are distinct."""
        llvm.masked_scatter(
            to_memory(value, self.dtype),
            self._lane_pointers(entities, at),
            _all_lanes(entities) if mask is None else mask,
            self.dtype.itemsize,
        )

    def _lane_pointers(self, entities: ir.Value, at: int) -> ir.Value:
        # 32-bit lanes are extended by the address computation itself: hardware does it for free.
        type_ = ir.VectorType.get(entities.type.shape, self.base.type)
        element = stored_element(self.dtype)
        row = ir.Type.parse(f"!llvm.array<{self.row} x {element}>")
        return llvm.getelementptr(type_, self.base, [entities, at], row)

    def prefetch(self, offset: ir.Value, count: int) -> None:
        """Ask for the cache lines of `count` elements from element `offset`."""
        for element in range(0, count, CACHE_LINE // self.dtype.itemsize):
            at = arith.addi(offset, i64(element))
            pointer = element_pointer(self.base, at, stored_element(self.dtype))
            llvm.prefetch(pointer)


def _all_lanes(like: ir.Value) -> ir.Value:
    return constant_of(True, ir.VectorType.get(like.type.shape, integer(1)))


def lane_numbers(count: int, bits: int) -> ir.Value:
    """0, 1, ... in the lanes of a vector of integers."""
    type_ = ir.VectorType.get([count], integer(bits))
    numbers = np.arange(count, dtype=f"i{bits // 8}")
    return arith.constant(type_, ir.DenseElementsAttr.get(numbers, type=type_))


def consecutive(first: ir.Value, count: int) -> ir.Value:
    """first, first + 1, ..., one per lane, as i64."""
    return first if count == 1 else arith.addi(splat(first, count), lane_numbers(count, 64))


def splat(value: ir.Value, count: int) -> ir.Value:
    """A scalar in `count` lanes."""
    return vector.broadcast(ir.VectorType.get([count], value.type), value)
