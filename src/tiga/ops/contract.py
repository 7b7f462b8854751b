"""Products with a global matrix: a small contraction per entity, and its adjoint."""

from dataclasses import dataclass

import numpy as np

from tiga.ops.base import Op
from tiga.ops.feature import permute
from tiga.trace.node import Node
from tiga.trace.origin import Origin
from tiga.types import GLOBAL, Type


@dataclass(frozen=True)
class Contract(Op, name="contract"):
    """x [..., K] times a global matrix [K, M]: the same matrix for every entity."""

    arity = 2
    table = 1
    stands_alone = True

    def infer(self, x: Type, matrix: Type) -> Type:
        assert (matrix.space, len(matrix.shape)) == (GLOBAL, 2), f"contract with {matrix}"
        assert (x.shape[-1], x.dtype) == (matrix.shape[0], matrix.dtype), f"{x} times {matrix}"
        return x.with_shape((*x.shape[:-1], matrix.shape[1]))

    def inner_extent(self, x: Type, matrix: Type) -> int:
        return x.shape[-1]

    def reference(self, x: np.ndarray, matrix: np.ndarray) -> np.ndarray:
        return x @ matrix[0]

    def vjp(self, ct, out, x, matrix):
        return contract(ct, permute(matrix, (1, 0))), outer_sum(x, ct)

    def jvp(self, tangents, out, x, matrix):
        dx, dm = tangents
        parts = [] if dx is None else [contract(dx, matrix)]
        return parts if dm is None else [*parts, contract(x, dm)]


@dataclass(frozen=True)
class OuterSum(Op, name="outer_sum"):
    """Sum over entities (and leading feature axes) of x [..., K] times y [..., M]: [K, M]."""

    arity = 2
    origin = Origin.OUTER
    exchanges = True
    stands_alone = True

    def infer(self, x: Type, y: Type) -> Type:
        assert (x.space, x.shape[:-1], x.dtype) == (y.space, y.shape[:-1], y.dtype), f"{x}, {y}"
        return Type(x.dtype, (x.shape[-1], y.shape[-1]), GLOBAL)

    def reference(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return (x.reshape(-1, x.shape[-1]).T @ y.reshape(-1, y.shape[-1]))[None]

    def vjp(self, ct, out, x, y):
        return contract(y, permute(ct, (1, 0))), contract(x, ct)

    def jvp(self, tangents, out, x, y):
        dx, dy = tangents
        parts = [] if dx is None else [outer_sum(dx, y)]
        return parts if dy is None else [*parts, outer_sum(x, dy)]


def is_contract(node: Node) -> bool:
    """Whether a value is a product with a global matrix."""
    return isinstance(node.op, Contract)


def is_outer_sum(node: Node) -> bool:
    """Whether a value is a sum over entities of products of all elements with all others."""
    return isinstance(node.op, OuterSum)


def contract(x: Node, matrix: Node) -> Node:
    """`x @ matrix` along the last feature axis."""
    return Contract()(x, matrix)


def outer_sum(x: Node, y: Node) -> Node:
    """The matrix of products of `x` and `y` summed over entities."""
    return OuterSum()(x, y)
