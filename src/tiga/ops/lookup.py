"""Rows of a global table by integer values: embeddings of kinds, and the sums that they have as
derivative."""

from dataclasses import dataclass

import numpy as np

from tiga.ops.base import Op
from tiga.ops.pointwise import cast
from tiga.trace.node import Node
from tiga.trace.origin import Origin
from tiga.types import GLOBAL, Type, int64


def _known(index: np.ndarray, extent: int) -> np.ndarray:
    return (index >= 0) & (index < extent)


@dataclass(frozen=True)
class Lookup(Op, name="lookup"):
    """Row `index` of a global table [V, *K]: an int64 index [*I] gives [*I, *K].

    There is no memory to read for an index that is negative or not below V: its row is NaN, or 0
    in dtypes without NaN.
    """

    arity = 2
    table = 0
    by_index = True

    def infer(self, table: Type, index: Type) -> Type:
        assert table.space == GLOBAL, f"lookup in {table}"
        assert table.shape, f"lookup in {table}"
        assert index.dtype == int64, f"lookup by {index}"
        return Type(table.dtype, (*index.shape, *table.shape[1:]), index.space)

    def reference(self, table: np.ndarray, index: np.ndarray) -> np.ndarray:
        rows = table[0]
        known = _known(index, len(rows))
        padded = np.concatenate([rows, np.full_like(rows[:1], _missing(rows.dtype))])
        return padded[np.where(known, index, len(rows))]

    def vjp(self, ct, out, table, index):
        wide = cast(ct, ct.type.dtype.compute)
        return cast(index_sum(table.type.shape[0], index, wide), table.type.dtype), None

    def jvp(self, tangents, out, table, index):
        return [] if tangents[0] is None else [self(tangents[0], index)]


def _missing(dtype: np.dtype) -> float:
    return 0 if dtype.kind in "biu" else float("nan")


@dataclass(frozen=True)
class IndexSum(Op, name="index_sum"):
    """For each v below `extent`, the sum of the rows y [*I, *K] whose index [*I] is v, over all
    entities: [extent, *K], in a compute dtype. Other indices add to nothing."""

    extent: int
    arity = 2
    origin = Origin.OUTER
    by_index = True
    stands_alone = True

    def infer(self, index: Type, y: Type) -> Type:
        assert (index.space, index.dtype) == (y.space, int64), f"index_sum by {index} of {y}"
        assert y.shape[: len(index.shape)] == index.shape, f"index_sum by {index} of {y}"
        assert y.dtype == y.dtype.compute, f"index_sum of {y}"
        return Type(y.dtype, (self.extent, *y.shape[len(index.shape) :]), GLOBAL)

    def reference(self, index: np.ndarray, y: np.ndarray) -> np.ndarray:
        count = max(len(index), len(y))
        index = np.broadcast_to(index, (count, *index.shape[1:]))
        y = np.broadcast_to(y, (count, *y.shape[1:]))
        total = np.zeros((self.extent, *y.shape[index.ndim :]), y.dtype)
        self.add_to(total, index, y)
        return total[None]

    def add_to(self, total: np.ndarray, index: np.ndarray, y: np.ndarray) -> None:
        """Add more entities to a sum, in their order."""
        known = _known(index, self.extent)
        np.add.at(total, index[known], y[known])

    def vjp(self, ct, out, index, y):
        return None, lookup(ct, index)

    def jvp(self, tangents, out, index, y):
        return [] if tangents[1] is None else [self(index, tangents[1])]


def lookup(table: Node, index: Node) -> Node:
    """The rows of `table` that `index` names."""
    return Lookup()(table, index)


def index_sum(extent: int, index: Node, y: Node) -> Node:
    """The sums of the `y` of each index."""
    return IndexSum(extent)(index, y)
