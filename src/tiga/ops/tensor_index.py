"""Elements picked and added up at positions that are themselves values; order along an axis.

Positions below 0 count from the end of their axis; those that do not exist are refused.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tiga.ops.dense import LinearFirst, NoDerivative
from tiga.trace.node import Node
from tiga.types import Shape, Type, int64


@dataclass(frozen=True)
class Pick(LinearFirst):
    """Elements of the first operand at positions along `axis` that the second holds."""

    arity = 2
    widens = False
    per_line: ClassVar[bool]
    """Whether each line along the axis has positions of its own."""
    axis_fields = ("axis",)
    axis: int


@dataclass(frozen=True)
class AddAt(LinearFirst):
    """Zeros of `extent` along `axis`, with the first operand added at positions that the second
    holds, in the order of its elements."""

    arity = 2
    per_line: ClassVar[bool]
    """Whether each line along the axis has positions of its own."""
    axis_fields = ("axis",)
    axis: int
    extent: int


@dataclass(frozen=True)
class IndexTake(Pick, name="index_take"):
    """x at the positions of an integer tensor along one axis; its axes replace that axis."""

    per_line = False

    def infer(self, x: Type, index: Type) -> Type:
        return x.with_shape((*x.shape[: self.axis], *index.shape, *x.shape[self.axis + 1 :]))

    def by_rows(self, *types: Type) -> tuple[bool, ...] | None:
        if self.axis == 0:
            return (False, True) if types[1].shape else None
        return True, False

    def compute(self, x: np.ndarray, index: np.ndarray) -> np.ndarray:
        return np.take(x, index, axis=self.axis)

    def vjp(self, ct, out, x, index):
        return IndexAdd(self.axis, x.type.shape[self.axis])(ct, index), None


@dataclass(frozen=True)
class Reorder(LinearFirst, name="reorder"):
    """x in another order along its first axis: at the positions `order`, which holds each once;
    `back` is the order that undoes it."""

    arity = 3
    widens = False

    def infer(self, x: Type, order: Type, back: Type) -> Type:
        assert order == back, f"{order} undone by {back}"
        assert order.shape == x.shape[:1], f"{order} of {x}"
        return x

    def compute(self, x: np.ndarray, order: np.ndarray, back: np.ndarray) -> np.ndarray:
        return np.take(x, order, axis=0)

    def vjp(self, ct, out, x, order, back):
        return Reorder()(ct, back, order), None, None


@dataclass(frozen=True)
class IndexAdd(AddAt, name="index_add"):
    """Values added at the positions of an integer tensor, whose axes become the one axis."""

    per_line = False

    def infer(self, values: Type, index: Type) -> Type:
        after = self.axis + len(index.shape)
        assert values.shape[self.axis : after] == index.shape, f"{values} at {index}"
        return values.with_shape((*values.shape[: self.axis], self.extent, *values.shape[after:]))

    def by_rows(self, *types: Type) -> tuple[bool, ...] | None:
        return None if self.axis == 0 else (True, False)

    def compute(self, values: np.ndarray, index: np.ndarray) -> np.ndarray:
        after = self.axis + index.ndim
        flat = values.reshape(*values.shape[: self.axis], index.size, *values.shape[after:])
        shape = (self.extent, *flat.shape[: self.axis], *flat.shape[self.axis + 1 :])
        total = np.zeros(shape, values.dtype)
        np.add.at(total, index.reshape(-1), np.moveaxis(flat, self.axis, 0))
        return np.moveaxis(total, 0, self.axis)

    def vjp(self, ct, out, values, index):
        return IndexTake(self.axis)(ct, index), None


@dataclass(frozen=True)
class TakeAlong(Pick, name="take_along"):
    """Per line along one axis, x at the line's own positions."""

    per_line = True

    def infer(self, x: Type, index: Type) -> Type:
        return x.with_shape(index.shape)

    def compute(self, x: np.ndarray, index: np.ndarray) -> np.ndarray:
        return np.take_along_axis(x, index, axis=self.axis)

    def vjp(self, ct, out, x, index):
        return AddAlong(self.axis, x.type.shape[self.axis])(ct, index), None


@dataclass(frozen=True)
class AddAlong(AddAt, name="add_along"):
    """Per line along one axis, values added at the line's own positions."""

    per_line = True

    def infer(self, values: Type, index: Type) -> Type:
        assert values.shape == index.shape, f"{values} at {index}"
        shape = (*values.shape[: self.axis], self.extent, *values.shape[self.axis + 1 :])
        return values.with_shape(shape)

    def compute(self, values: np.ndarray, index: np.ndarray) -> np.ndarray:
        shape = (*values.shape[: self.axis], self.extent, *values.shape[self.axis + 1 :])
        total = np.zeros(shape, values.dtype)
        grid: list[np.ndarray] = list(np.indices(values.shape, sparse=True))
        grid[self.axis] = index
        np.add.at(total, tuple(grid), values)
        return total

    def vjp(self, ct, out, values, index):
        return TakeAlong(self.axis)(ct, index), None


@dataclass(frozen=True)
class ArgSort(NoDerivative, name="argsort"):
    """Positions that sort x along an axis, equal elements in their order; NaN comes last."""

    arity = 1
    axis_fields = ("axis",)
    axis: int
    descending: int = 0

    def infer(self, x: Type) -> Type:
        return x.with_dtype(int64)

    def compute(self, x: np.ndarray) -> np.ndarray:
        if not self.descending:
            return np.argsort(x, axis=self.axis, kind="stable")
        backwards = np.argsort(np.flip(x, self.axis), axis=self.axis, kind="stable")
        return x.shape[self.axis] - 1 - np.flip(backwards, self.axis)


@dataclass(frozen=True)
class SearchSorted(NoDerivative, name="search_sorted"):
    """Where values would go in sorted x: before (`right` = 0) or after equal elements."""

    arity = 2
    right: int

    def infer(self, x: Type, values: Type) -> Type:
        return values.with_dtype(int64)

    def compute(self, x: np.ndarray, values: np.ndarray) -> np.ndarray:
        return np.searchsorted(x, values, side="right" if self.right else "left")


def index_take(x: Node, index: Node, axis: int) -> Node:
    """`x` at integer positions along an axis."""
    return IndexTake(axis)(x, index)


def linear_positions(extents: Shape) -> tuple[int, ...]:
    """How far apart neighbours along each axis are, in elements of a row-major array."""
    steps, step = [], 1
    for extent in reversed(extents):
        steps.append(step)
        step *= extent
    return tuple(reversed(steps))
