"""Compile one lane-wise function to machine code and run it over numpy arrays."""

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from torch_mlir import ir
from torch_mlir.dialects import arith, llvm, scf

from tiga.backends.llvm.engine import Library, compile_module
from tiga.backends.llvm.lanes import constant_of
from tiga.types import DType, bool_

Body = Callable[..., ir.Value]


def _mlir_element(dtype: DType) -> ir.Type:
    """How a dtype lies in memory: bytes of bool are i8, and bf16 is its bits."""
    spelling = {"bool": "i8", "uint8": "i8", "bfloat16": "i16"}.get(dtype.name, dtype.mlir)
    return ir.Type.parse(spelling)


@dataclass(frozen=True)
class Compiled:
    """A compiled function of arrays, in vectors of `lanes` (0: scalars)."""

    library: Library
    dtypes: tuple[DType, ...]
    result: DType
    lanes: int

    def __call__(self, *arrays: np.ndarray) -> np.ndarray:
        step = max(1, self.lanes)
        size = arrays[0].size
        padded = -(-size // step) * step
        inputs = [np.zeros(padded, dtype.numpy) for dtype in self.dtypes]
        for buffer, array in zip(inputs, arrays, strict=True):
            buffer[:size] = array
        out = np.zeros(padded, self.result.numpy)
        pointers = (ctypes.c_void_p * (len(inputs) + 1))(
            *[buffer.ctypes.data for buffer in (*inputs, out)]
        )
        prototype = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
        prototype(self.library.address("kernel"))(ctypes.addressof(pointers), 0, padded)
        return out[:size]


def _vector(element: ir.Type, lanes: int) -> ir.Type:
    return ir.VectorType.get([lanes], element) if lanes else element


def _loaded(base: ir.Value, index: ir.Value, dtype: DType, lanes: int) -> ir.Value:
    element = _mlir_element(dtype)
    address = _address(base, index, element)
    value = llvm.load(_vector(element, lanes), address, alignment=dtype.itemsize)
    if dtype != bool_:
        return value
    return arith.trunci(_vector(ir.IntegerType.get_signless(1), lanes), value)


def _store(value: ir.Value, address: ir.Value, dtype: DType, lanes: int) -> None:
    if dtype == bool_:
        value = arith.extui(_vector(ir.IntegerType.get_signless(8), lanes), value)
    llvm.store(value, address, alignment=dtype.itemsize)


def compiled(body: Body, dtypes: Sequence[DType], result: DType, lanes: int) -> Compiled:
    """`body(values...)` as a loop over arrays."""
    with ir.Context(), ir.Location.unknown():
        module = ir.Module.create()
        pointer, i64 = llvm.PointerType.get(), ir.IntegerType.get_signless(64)
        with ir.InsertionPoint(module.body):
            signature = ir.Type.parse("!llvm.func<void (ptr, i64, i64)>")
            function = llvm.LLVMFuncOp("kernel", ir.TypeAttr.get(signature))
        block = function.body.blocks.append(pointer, i64, i64)
        with ir.InsertionPoint(block):
            args, low, high = block.arguments
            bases = []
            for i in range(len(dtypes) + 1):
                slot = llvm.getelementptr(pointer, args, [], [i], pointer, None)
                bases.append(llvm.load(pointer, slot))
            loop = scf.ForOp(low, high, constant_of(max(1, lanes), i64))
            with ir.InsertionPoint(loop.body):
                _loop_body(body, bases, loop.induction_variable, dtypes, result, lanes)
                scf.yield_([])
            llvm.return_()
        module.operation.verify()
        return Compiled(compile_module(module), tuple(dtypes), result, lanes)


def _address(base: ir.Value, index: ir.Value, element: ir.Type) -> ir.Value:
    dynamic = -(2**31)
    return llvm.getelementptr(llvm.PointerType.get(), base, [index], [dynamic], element, None)


def _loop_body(
    body: Body,
    bases: Sequence[ir.Value],
    index: ir.Value,
    dtypes: Sequence[DType],
    result: DType,
    lanes: int,
) -> None:
    values = [
        _loaded(base, index, dtype, lanes) for base, dtype in zip(bases[:-1], dtypes, strict=True)
    ]
    target = _address(bases[-1], index, _mlir_element(result))
    _store(body(*values), target, result, lanes)
