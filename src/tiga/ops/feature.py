"""Ops along feature axes: data movement given as lane maps, and reductions."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from typing import ClassVar

import numpy as np

from tiga.ops.base import Linear, Op
from tiga.ops.leaf import constant, is_constant, zeros_like
from tiga.ops.monoid import COMBINED_BY
from tiga.ops.pointwise import add, cast, div, eq, mul
from tiga.trace.node import Node
from tiga.trace.origin import Origin
from tiga.types import Shape, Type


def own_lanes(shape: Shape) -> np.ndarray:
    """Every element's position in row-major order."""
    return np.arange(math.prod(shape)).reshape(shape)


@dataclass(frozen=True)
class Movement(Linear):
    """Moves elements within an entity. `lanes(shape)` gives, per output element in row-major
    order, the input element that it copies, or -1 for zero.

    Shapes of whole tensors may be huge: only per-entity code asks for lanes. `fills` says that
    some of them are -1, `keeps_order` that a shape stays as it is.
    """

    moves = True

    def target(self, shape: Shape) -> Shape:
        raise NotImplementedError

    def lanes(self, shape: Shape) -> np.ndarray:
        raise NotImplementedError

    def infer(self, x: Type) -> Type:
        return x.with_shape(self.target(x.shape))

    def fold(self, inputs):
        (x,) = inputs
        if x.op.origin is Origin.NUMBER and (is_constant(x, 0.0) or not self.fills):
            return constant(x.op.value, self.infer(x.type))
        shape = x.type.shape
        return x if self.target(shape) == shape and self.keeps_order(shape) else None

    def keeps_order(self, shape: Shape) -> bool:
        """Whether elements of `shape`, which is also the target, all stay in place."""
        return True

    def reference(self, x: np.ndarray) -> np.ndarray:
        shape = x.shape[1:]
        flat = x.reshape(len(x), math.prod(shape))
        padded = np.concatenate([flat, np.zeros((len(x), 1), x.dtype)], axis=-1)
        return padded[:, self.lanes(shape).ravel()].reshape(len(x), *self.target(shape))


@dataclass(frozen=True)
class Broadcast(Movement, name="broadcast"):
    """Repeat along new leading axes and axes of extent 1, as numpy broadcasts."""

    renames = True
    broadcasts = True
    to: Shape

    def target(self, shape: Shape) -> Shape:
        return self.to

    def lanes(self, shape: Shape) -> np.ndarray:
        return np.broadcast_to(own_lanes(shape), self.to)

    def reference(self, x: np.ndarray) -> np.ndarray:
        lead = (1,) * (len(self.to) - x.ndim + 1)
        return np.broadcast_to(x.reshape(len(x), *lead, *x.shape[1:]), (len(x), *self.to))

    def vjp(self, ct, out, x):
        shape = x.type.shape
        lead = len(self.to) - len(shape)
        for _ in range(lead):
            ct = feature_sum(ct, 0)
        for axis, extent in enumerate(shape):
            if extent == 1 and self.to[lead + axis] != 1:
                ct = reshape(feature_sum(ct, axis), with_axis(ct.type.shape, axis, 1))
        return (ct,)


def with_axis(shape: Shape, axis: int, extent: int) -> Shape:
    """A shape with another extent of one axis."""
    return (*shape[:axis], extent, *shape[axis + 1 :])


@dataclass(frozen=True)
class Reshape(Movement, name="reshape"):
    """The same elements in row-major order under another shape."""

    renames = True
    reshapes = True
    trends = (1,)
    to: Shape

    def target(self, shape: Shape) -> Shape:
        assert math.prod(shape) == math.prod(self.to), f"reshape {shape} to {self.to}"
        return self.to

    def lanes(self, shape: Shape) -> np.ndarray:
        return own_lanes(self.to)

    def reference(self, x: np.ndarray) -> np.ndarray:
        return x.reshape(len(x), *self.to)

    def fold(self, inputs):
        if isinstance(inputs[0].op, Reshape):
            return reshape(inputs[0].inputs[0], self.to)
        return super().fold(inputs)

    def vjp(self, ct, out, x):
        return (reshape(ct, x.type.shape),)


@dataclass(frozen=True)
class Permute(Movement, name="permute"):
    """Reorder feature axes."""

    renames = True
    axes: Shape

    def fold(self, inputs):
        (x,) = inputs
        if isinstance(x.op, Permute):
            return permute(x.inputs[0], tuple(x.op.axes[a] for a in self.axes))
        if x.op.exchanges and self.axes == (1, 0):
            return x.op(*reversed(x.inputs))
        return super().fold(inputs)

    def by_rows(self, x):
        return (True,) if self.axes[:1] == (0,) else None

    def target(self, shape: Shape) -> Shape:
        return tuple(shape[a] for a in self.axes)

    def lanes(self, shape: Shape) -> np.ndarray:
        return own_lanes(shape).transpose(self.axes)

    def keeps_order(self, shape: Shape) -> bool:
        moved = [axis for axis in self.axes if shape[axis] != 1]
        return moved == sorted(moved)

    def reference(self, x: np.ndarray) -> np.ndarray:
        return x.transpose(0, *(axis + 1 for axis in self.axes))

    def vjp(self, ct, out, x):
        return (permute(ct, tuple(int(a) for a in np.argsort(self.axes))),)


@dataclass(frozen=True)
class Take(Movement, name="take"):
    """Pick positions along one axis: slices, steps, flips and static index lists."""

    axis_fields = ("axis",)
    axis: int
    positions: Shape

    def target(self, shape: Shape) -> Shape:
        return with_axis(shape, self.axis, len(self.positions))

    def lanes(self, shape: Shape) -> np.ndarray:
        return own_lanes(shape).take(self.positions, axis=self.axis)

    def keeps_order(self, shape: Shape) -> bool:
        return self.positions == tuple(range(len(self.positions)))

    def reference(self, x: np.ndarray) -> np.ndarray:
        return x.take(self.positions, axis=self.axis + 1)

    def vjp(self, ct, out, x):
        extent = x.type.shape[self.axis]
        pieces = [
            put(take(ct, self.axis, tuple(range(start, start + len(run)))), self.axis, run, extent)
            for start, run in _unique_runs(self.positions)
        ]
        return (reduce(add, pieces),)


def _unique_runs(positions: Shape) -> list[tuple[int, Shape]]:
    """Split into consecutive pieces without repeated positions, each with its start."""
    runs: list[tuple[int, list[int]]] = [(0, [])]
    for at, position in enumerate(positions):
        if position in runs[-1][1]:
            runs.append((at, []))
        runs[-1][1].append(position)
    return [(start, tuple(run)) for start, run in runs]


@dataclass(frozen=True)
class Put(Movement, name="put"):
    """Zeros of a given extent along one axis, with the operand at distinct positions."""

    fills = True
    axis_fields = ("axis",)
    axis: int
    positions: Shape
    extent: int

    def keeps_order(self, shape: Shape) -> bool:
        return self.positions == tuple(range(self.extent))

    def target(self, shape: Shape) -> Shape:
        return with_axis(shape, self.axis, self.extent)

    def lanes(self, shape: Shape) -> np.ndarray:
        result = np.full(self.target(shape), -1)
        result[(slice(None),) * self.axis + (list(self.positions),)] = own_lanes(shape)
        return result

    def vjp(self, ct, out, x):
        return (take(ct, self.axis, self.positions),)


@dataclass(frozen=True)
class Concat(Op, name="concat"):
    """Join operands along one axis."""

    axis_fields = ("axis",)
    moves = True
    concatenates = True
    axis: int

    def fold(self, inputs):
        return inputs[0] if len(inputs) == 1 else None

    def infer(self, *types: Type) -> Type:
        extent = sum(t.shape[self.axis] for t in types)
        return types[0].with_shape(with_axis(types[0].shape, self.axis, extent))

    def lanes(self, shapes: Sequence[Shape]) -> np.ndarray:
        """Output elements as positions in the operands laid end to end."""
        start, parts = 0, []
        for shape in shapes:
            parts.append(own_lanes(shape) + start)
            start += math.prod(shape)
        return np.concatenate(parts, axis=self.axis)

    def reference(self, *arrays: np.ndarray) -> np.ndarray:
        entities = next((len(a) for a in arrays if len(a) != 1), 1)
        whole = [np.broadcast_to(a, (entities, *a.shape[1:])) for a in arrays]
        return np.concatenate(whole, axis=self.axis + 1)

    def _pieces(self, inputs: Sequence[Node]) -> list[Shape]:
        stops = np.cumsum([0, *(n.type.shape[self.axis] for n in inputs)])
        return [tuple(range(lo, hi)) for lo, hi in pairwise(stops)]

    def vjp(self, ct, out, *inputs):
        return [take(ct, self.axis, piece) for piece in self._pieces(inputs)]

    def jvp(self, tangents, out, *inputs):
        if all(t is None for t in tangents):
            return []
        filled = [zeros_like(x) if t is None else t for t, x in zip(tangents, inputs, strict=True)]
        return [self(*filled)]


def moved_lanes(node: Node) -> np.ndarray:
    """Per element of a movement's result, in its shape, the one that it copies of the operands laid
    end to end, or -1 for zero."""
    shapes = [n.type.shape for n in node.inputs]
    lanes = node.op.lanes(shapes if node.op.concatenates else shapes[0])
    return np.asarray(lanes).reshape(node.type.shape)


@dataclass(frozen=True)
class FeatureReduce(Op):
    """Reduce one feature axis by the pointwise op `combine`. The order is a fixed halving tree over
    the axis, so that the result has the same bits wherever it is computed."""

    reduces = True
    axis_fields = ("axis",)
    axis: int
    arity = 1
    combine: ClassVar[str]

    @property
    def selects(self) -> bool:
        return COMBINED_BY[self.combine].selects

    def infer(self, x: Type) -> Type:
        return x.with_shape(x.shape[: self.axis] + x.shape[self.axis + 1 :])

    def fold(self, inputs):
        (x,) = inputs
        return reshape(x, self.infer(x.type).shape) if x.type.shape[self.axis] == 1 else None

    def _broadcast_back(self, x: Node, like: Type) -> Node:
        return broadcast(reshape(x, with_axis(like.shape, self.axis, 1)), like.shape)


@dataclass(frozen=True)
class FeatureSum(FeatureReduce, name="feature_sum"):
    """Sum over one feature axis, added to 0: never -0."""

    combine = "add"

    def reference(self, x: np.ndarray) -> np.ndarray:
        return x.sum(axis=self.axis + 1) + x.dtype.type(0)

    def vjp(self, ct, out, x):
        return (self._broadcast_back(ct, x.type),)

    def jvp(self, tangents, out, x):
        return [] if tangents[0] is None else [self(tangents[0])]


@dataclass(frozen=True)
class FeatureExtremum(FeatureReduce):
    """Largest or smallest element; ties share the derivative evenly."""

    def reference(self, x: np.ndarray) -> np.ndarray:
        return COMBINED_BY[self.combine].ufunc.reduce(x, axis=self.axis + 1)

    def _share(self, out: Node, x: Node) -> Node:
        wins = cast(eq(x, self._broadcast_back(out, x.type)), x.type.dtype)
        return div(wins, self._broadcast_back(feature_sum(wins, self.axis), x.type))

    def vjp(self, ct, out, x):
        return (mul(self._broadcast_back(ct, x.type), self._share(out, x)),)

    def jvp(self, tangents, out, x):
        if tangents[0] is None:
            return []
        return [feature_sum(mul(tangents[0], self._share(out, x)), self.axis)]


@dataclass(frozen=True)
class FeatureMax(FeatureExtremum, name="feature_max"):
    """Maximum over one feature axis."""

    combine = "maximum"


@dataclass(frozen=True)
class FeatureMin(FeatureExtremum, name="feature_min"):
    """Minimum over one feature axis."""

    combine = "minimum"


def broadcast(x: Node, shape: Shape) -> Node:
    """`x` broadcast to `shape` as numpy does."""
    return Broadcast(tuple(shape))(x)


def reshape(x: Node, shape: Shape) -> Node:
    """`x` with its feature elements under another shape."""
    return Reshape(tuple(shape))(x)


def permute(x: Node, axes: Shape) -> Node:
    """`x` with its feature axes reordered."""
    return Permute(tuple(axes))(x)


def is_transpose(node: Node) -> bool:
    """Whether a value is a matrix with its axes exchanged."""
    return isinstance(node.op, Permute) and node.op.axes == (1, 0)


def take(x: Node, axis: int, positions: Shape) -> Node:
    """The given positions of `x` along a feature axis."""
    return Take(axis, tuple(positions))(x)


def put(x: Node, axis: int, positions: Shape, extent: int) -> Node:
    """`x` at distinct positions of a zero value of `extent` along an axis."""
    return Put(axis, tuple(positions), extent)(x)


def concat(axis: int, *parts: Node) -> Node:
    """The parts joined along a feature axis."""
    return Concat(axis)(*parts)


def feature_sum(x: Node, axis: int) -> Node:
    """The sum over a feature axis."""
    return FeatureSum(axis)(x)


def feature_max(x: Node, axis: int) -> Node:
    """The maximum over a feature axis."""
    return FeatureMax(axis)(x)


def feature_min(x: Node, axis: int) -> Node:
    """The minimum over a feature axis."""
    return FeatureMin(axis)(x)
