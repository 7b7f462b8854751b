"""Ops that say something to the compiler: a gradient that is asked for, values worth keeping."""

from dataclasses import dataclass

import numpy as np

from tiga.ops.dense import Dense
from tiga.trace.node import Node
from tiga.types import Type


@dataclass(frozen=True)
class Grad(Dense, name="grad"):
    """The gradient of an output for its cotangent, with respect to an input: a request, which the
    pass `gf-tensor-vjp` replaces by the gradient's ops."""

    arity = 3

    def infer(self, output: Type, cotangent: Type, x: Type) -> Type:
        assert output == cotangent, f"cotangent {cotangent} of {output}"
        return x


@dataclass(frozen=True)
class Marker(Dense):
    """The identity; what it marks is kept apart from what reads it."""

    arity = 1
    identity = True
    batches = True

    def infer(self, x: Type) -> Type:
        return x

    def compute(self, x: np.ndarray) -> np.ndarray:
        return x

    def vjp(self, ct: Node, out: Node, x: Node) -> tuple[Node]:
        return (ct,)

    def jvp(self, tangents, out, x):
        return [] if tangents[0] is None else [tangents[0]]


@dataclass(frozen=True)
class CheckpointCandidate(Marker, name="checkpoint_candidate"):
    """A forward value that the backward program reads: to be saved, or to be computed again."""


@dataclass(frozen=True)
class Checkpoint(Marker, name="checkpoint"):
    """A forward value that is saved for the backward program."""


@dataclass(frozen=True)
class Spill(Marker, name="checkpoint_spill"):
    """A forward value that is saved for the backward program outside of memory."""
