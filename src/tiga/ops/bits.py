"""Booleans as bits of words: what a run keeps of conditions for its gradient."""

import math
from dataclasses import dataclass

import numpy as np

from tiga.ops.base import Op
from tiga.ops.feature import reshape
from tiga.trace.node import Node
from tiga.types import Shape, Type, bool_, int32

WORD = 32
"""Bits of a word."""


def words(size: int) -> int:
    """How many words hold so many bits."""
    return -(-size // WORD)


@dataclass(frozen=True)
class Bits(Op):
    """Between booleans and words of `WORD` bits: element i is bit `i % WORD` of word `i // WORD`.
    Without derivative, as neither is a float."""

    arity = 1

    def vjp(self, ct, out, x):
        return (None,)

    def jvp(self, tangents, out, x):
        return []


@dataclass(frozen=True)
class PackBits(Bits, name="pack_bits"):
    """Booleans, in row-major order, as bits of words: bool [*shape] gives int32 [words]. Bits that
    are left over are 0."""

    packs = True

    def infer(self, x: Type) -> Type:
        assert x.dtype == bool_, f"bits of {x}"
        return Type(int32, (words(x.size),), x.space)

    def reference(self, x: np.ndarray) -> np.ndarray:
        count = len(x)
        flat = x.reshape(count, math.prod(x.shape[1:]))
        room: np.ndarray = np.zeros((count, words(flat.shape[1]) * WORD), np.uint8)
        room[:, : flat.shape[1]] = flat
        return np.packbits(room, axis=1, bitorder="little").view("<i4").astype(np.int32)

    def expand(self, x: Node) -> Node | None:
        """The same of a flat value."""
        return None if len(x.type.shape) == 1 else self(reshape(x, (x.type.size,)))


@dataclass(frozen=True)
class UnpackBits(Bits, name="unpack_bits"):
    """The inverse of `PackBits`: int32 [words] gives bool [*to]."""

    unpacks = True
    to: Shape

    def infer(self, x: Type) -> Type:
        size = math.prod(self.to)
        assert x.dtype == int32, f"bits in {x}"
        assert x.shape == (words(size),), f"{size} bits in {x}"
        return Type(bool_, self.to, x.space)

    def reference(self, x: np.ndarray) -> np.ndarray:
        count, size = len(x), math.prod(self.to)
        octets = np.ascontiguousarray(x, "<i4").view(np.uint8).reshape(count, 4 * x.shape[1])
        flat = np.unpackbits(octets, axis=1, count=size, bitorder="little")
        return flat.astype(bool).reshape(count, *self.to)

    def expand(self, x: Node) -> Node | None:
        """The same as a flat value under another shape."""
        if len(self.to) == 1:
            return None
        return reshape(UnpackBits((math.prod(self.to),))(x), self.to)


def pack_bits(x: Node) -> Node:
    """Booleans as bits of words."""
    return PackBits()(x)


def unpack_bits(x: Node, to: Shape) -> Node:
    """The booleans of a shape that are the bits of words."""
    return UnpackBits(tuple(to))(x)
