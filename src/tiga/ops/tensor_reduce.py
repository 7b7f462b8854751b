"""Reductions over any axes of a whole tensor."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tiga.ops.base import Op
from tiga.ops.dense import Dense, NoDerivative
from tiga.ops.feature import broadcast, reshape
from tiga.ops.leaf import constant
from tiga.ops.monoid import COMBINED_BY
from tiga.ops.pointwise import cast, div, eq, logical_or, mul, ne, where
from tiga.ops.tensor_scan import Positions, halved_product, product_of_others
from tiga.trace.node import Node
from tiga.types import Shape, Type, bool_, int8, int32, int64

SEQUENCE = 128
"""Elements that are added in sequence where there are no more of them."""

BLOCK = 32
"""Elements that are added in sequence where there are more, before their sums are added so."""


def kept_shape(shape: Shape, axes: Shape) -> Shape:
    """`shape` with the reduced axes at extent 1."""
    return tuple(1 if axis in axes else extent for axis, extent in enumerate(shape))


def runs(shape: Shape, axes: Shape) -> list[tuple[int, ...]]:
    """The reduced axes in runs between which nothing is kept; axes of extent 1 join any."""
    found: list[list[int]] = []
    kept_between = True
    for axis, extent in enumerate(shape):
        if axis in axes:
            if kept_between:
                found.append([])
            found[-1].append(axis)
            kept_between = False
        elif extent != 1:
            kept_between = True
    return [tuple(run) for run in found]


def broadcast_back(x: Node, axes: Shape, like: Type) -> Node:
    """A reduced value, at every element that it was reduced from."""
    return broadcast(reshape(x, kept_shape(like.shape, axes)), like.shape)


@dataclass(frozen=True)
class Reduction(Dense):
    """Reduces the axes `axes`, which are distinct and ascending."""

    arity = 1
    reduces = True
    axis_fields = ("axes",)
    axes: Shape

    @property
    def selects(self) -> bool:
        return self.combine is not None and COMBINED_BY[self.combine].selects

    def infer(self, x: Type) -> Type:
        assert self.axes == tuple(sorted(set(self.axes))), f"axes {self.axes}"
        kept = [extent for axis, extent in enumerate(x.shape) if axis not in self.axes]
        return x.with_shape(tuple(kept))

    def fold(self, inputs):
        (x,) = inputs
        if all(x.type.shape[axis] == 1 for axis in self.axes):
            return reshape(x, self.infer(x.type).shape)
        return None


@dataclass(frozen=True)
class Sum(Reduction, name="sum_axes"):
    """The sum over axes, by blocks whose sums are added by pairs."""

    combine = "add"

    def compute(self, x: np.ndarray) -> np.ndarray:
        if x.dtype.kind not in "fc":
            return x.sum(axis=self.axes, dtype=x.dtype)
        return pairwise(x, self.axes)

    def vjp(self, ct, out, x):
        return (broadcast_back(ct, self.axes, x.type),)

    def jvp(self, tangents, out, x):
        return [] if tangents[0] is None else [self(tangents[0])]


def pairwise(x: np.ndarray, axes: Shape) -> np.ndarray:
    """The sum over `axes`; the error grows with the logarithm of their extent."""
    if x.ndim - 1 in axes and x.flags.c_contiguous and len(axes) == 1:
        return x.sum(axis=-1)  # numpy itself adds by pairs along contiguous memory
    kept = [axis for axis in range(x.ndim) if axis not in axes]
    moved = x.transpose(*axes, *kept)
    count = int(np.prod([x.shape[axis] for axis in axes], dtype=np.int64))
    parts = moved.reshape(count, *(x.shape[axis] for axis in kept))
    while len(parts) > SEQUENCE:
        whole = len(parts) // BLOCK * BLOCK
        blocks = parts[:whole].reshape(whole // BLOCK, BLOCK, *parts.shape[1:]).sum(axis=1)
        rest = parts[whole:].sum(axis=0, keepdims=True)
        parts = np.concatenate([blocks, rest]) if whole < len(parts) else blocks
    return parts.sum(axis=0)


@dataclass(frozen=True)
class Extremum(Reduction):
    """The largest or smallest element, NaN if there is one; ties share the derivative evenly."""

    def _share(self, out: Node, x: Node) -> Node:
        wins = cast(eq(x, broadcast_back(out, self.axes, x.type)), x.type.dtype)
        return div(wins, broadcast_back(sum_axes(wins, self.axes), self.axes, x.type))

    def vjp(self, ct, out, x):
        return (mul(broadcast_back(ct, self.axes, x.type), self._share(out, x)),)

    def jvp(self, tangents, out, x):
        if tangents[0] is None:
            return []
        return [sum_axes(mul(tangents[0], self._share(out, x)), self.axes)]


@dataclass(frozen=True)
class Max(Extremum, name="max_axes"):
    """The maximum over axes."""

    combine = "maximum"

    def compute(self, x: np.ndarray) -> np.ndarray:
        return x.max(axis=self.axes)


@dataclass(frozen=True)
class Min(Extremum, name="min_axes"):
    """The minimum over axes."""

    combine = "minimum"

    def compute(self, x: np.ndarray) -> np.ndarray:
        return x.min(axis=self.axes)


@dataclass(frozen=True)
class Prod(Reduction, name="prod_axes"):
    """The product along one axis. Its derivative divides by nothing: it is exact with any zeros."""

    combine = "mul"

    def compute(self, x: np.ndarray) -> np.ndarray:
        return np.asarray(x.prod(axis=self.axes, dtype=x.dtype))

    def expand(self, x: Node) -> Node:
        """The product as a tree of products of halves."""
        return reshape(halved_product(x, self.axes[0]), self.infer(x.type).shape)

    def _others(self, x: Node) -> Node:
        (axis,) = self.axes
        return product_of_others(x, axis)

    def vjp(self, ct, out, x):
        return (mul(broadcast_back(ct, self.axes, x.type), self._others(x)),)

    def jvp(self, tangents, out, x):
        if tangents[0] is None:
            return []
        return [sum_axes(mul(tangents[0], self._others(x)), self.axes)]


@dataclass(frozen=True)
class ArgExtremum(NoDerivative):
    """The position of an extremum along one axis: the first of ties, or of NaNs."""

    arity = 1
    extremum: ClassVar[type[Extremum]]
    """The extremum whose position it is."""
    axis_fields = ("axis",)
    axis: int

    def fold(self, inputs):
        (x,) = inputs
        return constant(0, self.infer(x.type)) if x.type.shape[self.axis] == 1 else None

    def expand(self, x: Node) -> Node:
        """The least position whose element is the extremum, or is NaN as it is."""
        axes = (self.axis,)
        x = cast(x, int8) if x.type.dtype == bool_ else x
        found = eq(x, broadcast_back(self.extremum(axes)(x), axes, x.type))
        if x.type.dtype.is_float:
            found = logical_or(found, ne(x, x))
        # Half as wide where they fit: twice as many lanes.
        extent = x.type.shape[self.axis]
        places = cast(Positions(self.axis, x.type.shape)(), int32 if extent < 2**31 else int64)
        nowhere = constant(extent, places.type)
        return cast(Min(axes)(where(found, places, nowhere)), int64)

    def infer(self, x: Type) -> Type:
        return Type(int64, x.shape[: self.axis] + x.shape[self.axis + 1 :], x.space)


@dataclass(frozen=True)
class ArgMax(ArgExtremum, name="argmax"):
    """The position of the maximum."""

    extremum = Max

    def compute(self, x: np.ndarray) -> np.ndarray:
        return x.argmax(axis=self.axis)


@dataclass(frozen=True)
class ArgMin(ArgExtremum, name="argmin"):
    """The position of the minimum."""

    extremum = Min

    def compute(self, x: np.ndarray) -> np.ndarray:
        return x.argmin(axis=self.axis)


@dataclass(frozen=True)
class Quantifier(NoDerivative):
    """Whether a truth value holds over axes."""

    arity = 1
    over_numbers: ClassVar[type[Extremum]]
    """The same of whole numbers, 1 for true."""
    axis_fields = ("axes",)
    axes: Shape

    @property
    def joined_by(self) -> str | None:
        return self.over_numbers.combine

    def expand(self, x: Node) -> Node:
        return cast(self.over_numbers(self.axes)(cast(x, int8)), bool_)

    def infer(self, x: Type) -> Type:
        assert x.dtype == bool_, f"{self.name} of {x}"
        kept = [extent for axis, extent in enumerate(x.shape) if axis not in self.axes]
        return x.with_shape(tuple(kept))


@dataclass(frozen=True)
class AllTrue(Quantifier, name="all_axes"):
    """Whether every element is true."""

    over_numbers = Min

    def compute(self, x: np.ndarray) -> np.ndarray:
        return np.asarray(x.all(axis=self.axes))


@dataclass(frozen=True)
class AnyTrue(Quantifier, name="any_axes"):
    """Whether some element is true."""

    over_numbers = Max

    def compute(self, x: np.ndarray) -> np.ndarray:
        return np.asarray(x.any(axis=self.axes))


def sum_axes(x: Node, axes: Shape) -> Node:
    """The sum over axes; `x` itself over none."""
    return Sum(tuple(axes))(x) if axes else x


REDUCTIONS: dict[str, type[Op]] = {
    "sum": Sum,
    "max": Max,
    "min": Min,
    "all": AllTrue,
    "any": AnyTrue,
}
"""Reductions over any axes by their array name."""
