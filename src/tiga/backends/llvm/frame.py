"""Kernels that are written by hand: their arguments by name, loops and conditions on `Lanes`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch_mlir import ir
from torch_mlir.dialects import llvm, scf

from tiga.backends.llvm import loops
from tiga.backends.llvm.arguments import Arguments
from tiga.backends.llvm.lanes import Lanes, integer, resized_integer
from tiga.backends.llvm.memory import Array, element_pointer, i64, load_word
from tiga.types import float64

Values = Sequence[Lanes]


@dataclass(frozen=True)
class Words:
    """Integers at an address, 64 bits wide in registers."""

    base: ir.Value
    bits: int

    def load(self, at: Lanes) -> Lanes:
        return Lanes(load_word(self.base, at.value, self.bits))

    def store(self, value: Lanes, at: Lanes) -> None:
        pointer = element_pointer(self.base, at.value, integer(self.bits))
        llvm.store(resized_integer(value, self.bits).value, pointer)


@dataclass(frozen=True)
class Frame(Arguments):
    """The arguments of a kernel, whose slots are these in order."""

    slots: tuple[str, ...]

    def position(self, name: object) -> int:
        return self.slots.index(str(name))

    def number(self, name: str) -> Lanes:
        """A whole number."""
        return Lanes(self.word(name))

    def real(self, name: str) -> Lanes:
        """A float64, of which the slot has the bits."""
        return Lanes(self.load(name, ir.F64Type.get()))

    def words(self, name: str, bits: int = 64) -> Words:
        """The integers at an address."""
        return Words(self.pointer(name), bits)

    def reals(self, name: str) -> Callable[[Lanes], Lanes]:
        """The float64 values at an address, by position."""
        array = Array(self.pointer(name), float64, 1)
        return lambda at: Lanes(array.load(at.value, 1))


def each(low: Lanes, high: Lanes, carried: Values, body: Callable[..., Values]) -> Values:
    """`carried = body(position, *carried)` for positions low, ..., high - 1."""

    def step(at: ir.Value, values: Sequence[ir.Value]) -> Sequence[ir.Value]:
        return [v.value for v in body(Lanes(at), *map(Lanes, values))]

    return [
        Lanes(v) for v in loops.loop(low.value, high.value, 1, [v.value for v in carried], step)
    ]


def for_each(low: Lanes, high: Lanes, body: Callable[[Lanes], None]) -> None:
    """`body(position)` for the same positions; nothing is carried."""
    loops.for_each(low.value, high.value, 1, lambda at: body(Lanes(at)))


def only_if(condition: Lanes, body: Callable[[], None]) -> None:
    """`body` where a condition holds."""
    with ir.InsertionPoint(scf.IfOp(condition.value).then_block):
        body()
        scf.yield_([])


def number(value: int) -> Lanes:
    """A whole number that is known."""
    return Lanes(i64(value))
