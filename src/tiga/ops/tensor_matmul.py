"""Matrix products of whole tensors, by numpy's BLAS."""

from dataclasses import dataclass

import numpy as np

from tiga.ops.dense import Dense
from tiga.ops.feature import permute
from tiga.trace.node import Node
from tiga.types import Type


def transposed(x: Node) -> Node:
    """`x` with its last two axes exchanged."""
    rank = len(x.type.shape)
    return permute(x, (*range(rank - 2), rank - 1, rank - 2))


@dataclass(frozen=True)
class Matmul(Dense, name="matmul"):
    """a [..., N, K] times b [..., K, M], with the same leading axes."""

    arity = 2
    batches = True

    def infer(self, a: Type, b: Type) -> Type:
        fits = a.shape[:-2] == b.shape[:-2] and a.shape[-1] == b.shape[-2] and a.dtype == b.dtype
        assert fits, f"{a} times {b}"
        return a.with_shape((*a.shape[:-1], b.shape[-1]))

    def by_rows(self, a: Type, b: Type) -> tuple[bool, ...]:
        return True, len(b.shape) > 2

    def inner_extent(self, a: Type, b: Type) -> int:
        return a.shape[-1]

    def compute(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.matmul(a, b)

    def vjp(self, ct, out, a, b):
        return matmul(ct, transposed(b)), matmul(transposed(a), ct)

    def jvp(self, tangents, out, a, b):
        da, db = tangents
        parts = [] if da is None else [matmul(da, b)]
        return parts if db is None else [*parts, matmul(a, db)]


def matmul(a: Node, b: Node) -> Node:
    """The matrix product over the last two axes."""
    return Matmul()(a, b)
