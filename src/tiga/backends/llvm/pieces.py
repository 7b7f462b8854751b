"""Pieces of a row or a sum, each at its own place of an array, and their fold in order."""

from collections.abc import Sequence

from torch_mlir import ir

from tiga.backends.llvm.lanes import constant_of
from tiga.backends.llvm.layout import ARITHMETIC
from tiga.backends.llvm.loops import loop
from tiga.backends.llvm.memory import Array, lanes_type, register_element
from tiga.backends.llvm.scope import KernelScope
from tiga.ops.monoid import MONOIDS
from tiga.trace.node import Node
from tiga.types import float32, float64


def store(array: Array, scope: KernelScope, node: Node, entity: ir.Value, value: ir.Value) -> None:
    """Write a value, or what the scope's window has of it, to the place of an entity."""
    array.store(value, scope.offset(array, node, entity))


def load(array: Array, scope: KernelScope, node: Node, entity: ir.Value) -> ir.Value:
    """What `store` wrote."""
    return array.load(scope.offset(array, node, entity), scope.layout.width(node.type))


def filled(scope: KernelScope, node: Node, number: float) -> ir.Value:
    """One number in every element of a value."""
    element = register_element(node.type.dtype)
    return constant_of(number, lanes_type(element, scope.layout.width(node.type)))


def fold(
    scope: KernelScope, node: Node, pieces: Array, low: ir.Value, high: ir.Value, kind: str
) -> ir.Value:  # fmt: skip
    """The pieces [low, high) of a value combined in their order, sums in double precision."""
    monoid, plain = MONOIDS[kind], node.type.dtype.compute
    dtype = float64 if kind == "sum" and plain == float32 else plain
    start = ARITHMETIC.cast(filled(scope, node, monoid.identity(node.type.dtype)), plain, dtype)

    def step(piece: ir.Value, carried: Sequence[ir.Value]) -> Sequence[ir.Value]:
        value = ARITHMETIC.cast(load(pieces, scope, node, piece), plain, dtype)
        return [monoid.combine(ARITHMETIC, carried[0], value)]

    return ARITHMETIC.cast(loop(low, high, 1, [start], step)[0], dtype, plain)
