"""Leaves of a trace: inputs, constants and the barrier that stops derivatives."""

from dataclasses import dataclass

import numpy as np

from tiga.ops.base import Op, Pointwise
from tiga.trace.node import Node
from tiga.trace.origin import Origin
from tiga.types import Type


@dataclass(frozen=True)
class Input(Op, name="input"):
    """An argument of the program. Its name is unique within the program."""

    label: str
    of: Type
    arity = 0
    origin = Origin.ARGUMENT

    def infer(self) -> Type:
        return self.of


@dataclass(frozen=True)
class Constant(Op, name="constant"):
    """One number, the same for every entity and element. `text` keeps its exact bits."""

    text: str
    of: Type
    arity = 0
    origin = Origin.NUMBER

    def infer(self) -> Type:
        return self.of

    @property
    def value(self) -> float | int | bool | complex:
        if self.of.dtype.kind == "f":
            return float.fromhex(self.text)
        if self.of.dtype.kind == "c":
            return complex(*map(float.fromhex, self.text.split(",")))
        return bool(int(self.text)) if self.of.dtype.kind == "b" else int(self.text)

    def reference(self) -> np.ndarray:
        return np.full((1, *self.of.shape), self.value, self.of.dtype.numpy)


@dataclass(frozen=True)
class StopGradient(Pointwise, name="stop_gradient"):
    """The identity, through which no derivative flows."""

    arity = 1
    exact = True
    identity = True

    def reference(self, x: np.ndarray) -> np.ndarray:
        return x

    def lower(self, b, x):
        return x

    def vjp(self, ct: Node, out: Node, x: Node) -> tuple[None]:
        return (None,)


def constant(value: float | int | bool | complex, type: Type) -> Node:
    """The constant node of `value`, rounded to the type's dtype."""
    if type.dtype.kind == "c":
        rounded = np.asarray(value, type.dtype.numpy)
        return Constant(f"{float(rounded.real).hex()},{float(rounded.imag).hex()}", type)()
    if type.dtype.kind == "f":
        return Constant(float(np.asarray(value, type.dtype.numpy)).hex(), type)()
    if type.dtype.kind == "b":
        return Constant(str(int(value != 0)), type)()
    assert not isinstance(value, complex), f"{value} as {type}"
    return Constant(str(int(value)), type)()


def zeros_like(node: Node) -> Node:
    """A zero of the type of a node."""
    return constant(0, node.type)


def ones_like(node: Node) -> Node:
    """A one of the type of a node."""
    return constant(1, node.type)


def is_constant(node: Node, value: float) -> bool:
    """Whether `node` is the constant `value`, the sign of zero included."""
    if node.op.origin is not Origin.NUMBER or node.op.value != value:
        return False
    held = node.op.value
    if isinstance(held, complex):
        # Adding a zero changes the sign of a complex zero's parts, whatever its own signs.
        return value != 0
    return bool(np.signbit(held) == np.signbit(value))


stop_gradient = StopGradient()
