"""What ops of whole tensors share: their meaning is on arrays without an entity axis."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from tiga.ops.base import Op, Pointwise
from tiga.trace.node import Node
from tiga.types import Type


@dataclass(frozen=True)
class Dense(Op):
    """An op of global values only; `compute` is its meaning on plain arrays."""

    def compute(self, *arrays: np.ndarray) -> np.ndarray:
        raise NotImplementedError

    def reference(self, *arrays: np.ndarray) -> np.ndarray:
        # Indexing would make numpy's scalars, whose memory is a copy, of arrays without axes.
        plain = [array.reshape(array.shape[1:]) for array in arrays]
        return np.asarray(self.compute(*plain))[None]


@dataclass(frozen=True)
class Deferred(Dense):
    """A call whose body each run is given, by its number: programs that differ in nothing but what
    the call works on, such as which graph, are one. `called` tells what it computes."""

    name: ClassVar[str] = "graph_call"
    widens = False
    called: Any
    number: int
    of: Type

    def infer(self, *types: Type) -> Type:
        return self.of


@dataclass(frozen=True)
class OuterCall(Dense):
    """A call on what is no part of the program, such as a graph, which no plan may keep alive."""

    widens = False
    defers = True

    @property
    def form(self) -> tuple[Any, ...]:
        """What a plan around it depends on: what is computed, whatever it works on."""
        raise NotImplementedError

    def deferred(self, number: int) -> Deferred:
        """The same on what each run is given."""
        return Deferred(self.form, number, self.infer())


@dataclass(frozen=True)
class LinearFirst(Dense):
    """Linear in the first operand; the others (index arrays) carry no derivative."""

    def jvp(self, tangents: Sequence[Node | None], out: Node, *inputs: Node) -> Sequence[Node]:
        return [] if tangents[0] is None else [self(tangents[0], *inputs[1:])]


@dataclass(frozen=True)
class NoDerivative(Dense):
    """A result that does not move with its operands: indices, truth values."""

    def vjp(self, ct: Node, out: Node, *inputs: Node) -> Sequence[Node | None]:
        return (None,) * len(inputs)

    def jvp(self, tangents: Sequence[Node | None], out: Node, *inputs: Node) -> Sequence[Node]:
        return []


@dataclass(frozen=True)
class Scalar(Pointwise):
    """Element by element with a numpy function; not in the closed set that backends translate."""
