"""The arguments of a kernel under construction: a table of 8-byte slots with names."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field

from torch_mlir import ir

from tiga.backends.llvm.lanes import integer
from tiga.backends.llvm.memory import element_pointer, i64
from tiga.ir import llvm


@dataclass(frozen=True)
class Arguments(ABC):
    """Each slot is loaded once, at the kernel's entry."""

    table: ir.Value
    loaded: dict[object, ir.Value] = field(default_factory=dict, kw_only=True)

    @abstractmethod
    def position(self, name: object) -> int:
        """The number of a slot."""

    def load(self, name: object, type_: ir.Type) -> ir.Value:
        """What a slot holds."""
        if name not in self.loaded:
            with ir.InsertionPoint.at_block_begin(self.table.owner):
                address = element_pointer(self.table, i64(self.position(name)), integer(64))
                self.loaded[name] = llvm.load(type_, address)
        return self.loaded[name]

    def word(self, name: object) -> ir.Value:
        """A whole number."""
        return self.load(name, integer(64))

    def pointer(self, name: object) -> ir.Value:
        """An address."""
        return self.load(name, llvm.PointerType.get())

    def allocate(self, element: ir.Type, count: int) -> ir.Value:
        """Scratch of `count` elements on the kernel's stack."""
        with ir.InsertionPoint.at_block_begin(self.table.owner):
            return llvm.alloca(llvm.PointerType.get(), i64(count), element, alignment=64)
