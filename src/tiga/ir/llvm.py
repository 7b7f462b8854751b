"""The ops of the llvm dialect that kernels on CPUs are written in.

The bindings have a Python class for each of the dialect's 344 ops, and import them all as soon as
they meet one of its pointers: a seventh of the first compiled call. Kernels need a dozen of these
ops, which are created here by name, and the bindings are told that this is the dialect's module.
"""

from collections.abc import Sequence

from torch_mlir import ir
from torch_mlir._mlir_libs import _mlir
from torch_mlir._mlir_libs._mlirDialectsLLVM import PointerType, translate_module_to_llvmir


def _stand_in() -> None:
    """Make this module what the bindings find when they look for the dialect's, unless they have
    looked before."""
    bindings = _mlir.globals
    searched = bindings.dialect_search_modules
    bindings.dialect_search_modules = [__package__]
    try:
        bindings._check_dialect_module_loaded("llvm")
    finally:
        bindings.dialect_search_modules = searched


_stand_in()


def _integer(number: int, bits: int) -> ir.Attribute:
    return ir.IntegerAttr.get(ir.IntegerType.get_signless(bits), number)


def _alignment(nbytes: int | None) -> dict[str, ir.Attribute]:
    return {} if nbytes is None else {"alignment": _integer(nbytes, 64)}


def _value(
    name: str, type_: ir.Type, operands: Sequence[ir.Value], attributes: dict[str, ir.Attribute]
) -> ir.Value:
    return ir.Operation.create(name, [type_], operands, attributes).result


def _effect(name: str, operands: Sequence[ir.Value], attributes: dict[str, ir.Attribute]) -> None:
    ir.Operation.create(name, (), operands, attributes)


def load(type_: ir.Type, address: ir.Value, *, alignment: int | None = None) -> ir.Value:
    """A value of `type_` in memory; aligned to its own size unless told otherwise."""
    return _value("llvm.load", type_, [address], _alignment(alignment))


def store(
    value: ir.Value, address: ir.Value, *, alignment: int | None = None, nontemporal: bool = False
) -> None:
    """Store a value; `nontemporal`, past the caches."""
    attributes = _alignment(alignment)
    if nontemporal:
        attributes["nontemporal"] = ir.UnitAttr.get()
    _effect("llvm.store", [value, address], attributes)


def alloca(type_: ir.Type, count: ir.Value, element: ir.Type, *, alignment: int) -> ir.Value:
    """The address of `count` elements on the stack."""
    attributes = {"elem_type": ir.TypeAttr.get(element), **_alignment(alignment)}
    return _value("llvm.alloca", type_, [count], attributes)


def inttoptr(type_: ir.Type, word: ir.Value) -> ir.Value:
    """An integer as an address."""
    return _value("llvm.inttoptr", type_, [word], {})


_DYNAMIC = -(2**31)
# Stands for an index that is a value, among those that are numbers.


def getelementptr(
    type_: ir.Type, base: ir.Value, indices: Sequence[ir.Value | int], element: ir.Type
) -> ir.Value:
    """The address of an element after `base`, by indices that are values or numbers."""
    values = [index for index in indices if not isinstance(index, int)]
    numbers = [index if isinstance(index, int) else _DYNAMIC for index in indices]
    attributes = {
        "rawConstantIndices": ir.DenseI32ArrayAttr.get(numbers),
        "elem_type": ir.TypeAttr.get(element),
    }
    return _value("llvm.getelementptr", type_, [base, *values], attributes)


def masked_load(
    type_: ir.Type, address: ir.Value, mask: ir.Value, alignment: int, instead: ir.Value
) -> ir.Value:
    """Consecutive elements, those of `instead` where masked."""
    operands = [address, mask, instead]
    return _value("llvm.intr.masked.load", type_, operands, {"alignment": _integer(alignment, 32)})


def masked_store(value: ir.Value, address: ir.Value, mask: ir.Value, alignment: int) -> None:
    """Store lanes to consecutive elements, but not where masked."""
    operands = [value, address, mask]
    _effect("llvm.intr.masked.store", operands, {"alignment": _integer(alignment, 32)})


def masked_gather(
    type_: ir.Type, addresses: ir.Value, mask: ir.Value, alignment: int, instead: ir.Value
) -> ir.Value:
    """An element per lane, each at an address of its own."""
    operands, attributes = [addresses, mask, instead], {"alignment": _integer(alignment, 32)}
    return _value("llvm.intr.masked.gather", type_, operands, attributes)


def masked_scatter(value: ir.Value, addresses: ir.Value, mask: ir.Value, alignment: int) -> None:
    """Store each lane at an address of its own."""
    operands = [value, addresses, mask]
    _effect("llvm.intr.masked.scatter", operands, {"alignment": _integer(alignment, 32)})


def prefetch(address: ir.Value) -> None:
    """Ask for a cache line that is soon read, and kept in all caches."""
    attributes = {"rw": _integer(0, 32), "hint": _integer(3, 32), "cache": _integer(1, 32)}
    _effect("llvm.intr.prefetch", [address], attributes)


def address_of(name: str) -> ir.Value:
    """The address of the module's function `name`."""
    attributes = {"global_name": ir.FlatSymbolRefAttr.get(name)}
    return _value("llvm.mlir.addressof", PointerType.get(), [], attributes)


def function(name: str, signature: ir.Type) -> ir.Block:
    """The first block of a new function of a type `!llvm.func<...>`; it has no arguments yet."""
    attributes = {"sym_name": ir.StringAttr.get(name), "function_type": ir.TypeAttr.get(signature)}
    made = ir.Operation.create("llvm.func", (), (), attributes, regions=1)
    return made.regions[0].blocks.append()


def return_() -> None:
    """The end of a function without results."""
    _effect("llvm.return", [], {})


__all__ = [
    "PointerType",
    "address_of",
    "alloca",
    "function",
    "getelementptr",
    "inttoptr",
    "load",
    "masked_gather",
    "masked_load",
    "masked_scatter",
    "masked_store",
    "prefetch",
    "return_",
    "store",
    "translate_module_to_llvmir",
]
