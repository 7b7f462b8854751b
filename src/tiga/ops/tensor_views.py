"""Strided pieces of an axis: slices of any step, and their adjoint."""

from dataclasses import dataclass

import numpy as np

from tiga.ops.feature import Concat, Movement, own_lanes, with_axis
from tiga.trace.node import Node
from tiga.types import Shape


def stepped(start: int, count: int, step: int) -> slice:
    """The slice of positions start, start + step, ..., `count` of them."""
    stop = start + count * step
    return slice(start, stop if stop >= 0 else None, step)


def along(axis: int, piece: slice) -> tuple[slice, ...]:
    """An index that takes `piece` of one axis."""
    return (*(slice(None),) * axis, piece)


@dataclass(frozen=True)
class Slice(Movement, name="slice"):
    """`count` positions of one axis from `start` on, `step` apart (it may be negative)."""

    axis_fields = ("axis",)
    axis: int
    start: int
    count: int
    step: int

    def target(self, shape: Shape) -> Shape:
        return with_axis(shape, self.axis, self.count)

    def keeps_order(self, shape: Shape) -> bool:
        return self.count <= 1 or (self.start == 0 and self.step == 1)

    def _piece(self, axis: int) -> tuple[slice, ...]:
        return along(axis, stepped(self.start, self.count, self.step))

    def lanes(self, shape: Shape) -> np.ndarray:
        return own_lanes(shape)[self._piece(self.axis)]

    def reference(self, x: np.ndarray) -> np.ndarray:
        return x[self._piece(self.axis + 1)]

    def vjp(self, ct, out, x):
        return (unslice(ct, self.axis, self.start, self.step, x.type.shape[self.axis]),)


@dataclass(frozen=True)
class Unslice(Movement, name="unslice"):
    """Zeros of `extent` along one axis, with the operand at start, start + step, ..."""

    fills = True
    axis_fields = ("axis",)
    axis: int
    start: int
    step: int
    extent: int

    def target(self, shape: Shape) -> Shape:
        return with_axis(shape, self.axis, self.extent)

    def keeps_order(self, shape: Shape) -> bool:
        return self.extent <= 1 or (self.start == 0 and self.step == 1)

    def _filled(self, x: np.ndarray, axis: int, nothing: int) -> np.ndarray:
        result = np.full(with_axis(x.shape, axis, self.extent), nothing, x.dtype)
        result[along(axis, stepped(self.start, x.shape[axis], self.step))] = x
        return result

    def lanes(self, shape: Shape) -> np.ndarray:
        return self._filled(own_lanes(shape), self.axis, -1)

    def reference(self, x: np.ndarray) -> np.ndarray:
        return self._filled(x, self.axis + 1, 0)

    def vjp(self, ct, out, x):
        return (slice_(ct, self.axis, self.start, x.type.shape[self.axis], self.step),)


def slice_(x: Node, axis: int, start: int, count: int, step: int = 1) -> Node:
    """`count` positions of `x` along an axis."""
    return Slice(axis, start, count, step)(x)


def unslice(x: Node, axis: int, start: int, step: int, extent: int) -> Node:
    """`x` at strided positions of a zero value."""
    return Unslice(axis, start, step, extent)(x)


@dataclass(frozen=True)
class Join(Concat, name="join"):
    """Operands after one another along an axis of any extent."""

    def vjp(self, ct, out, *inputs):
        parts, start = [], 0
        for x in inputs:
            count = x.type.shape[self.axis]
            parts.append(slice_(ct, self.axis, start, count))
            start += count
        return parts


def join(axis: int, *parts: Node) -> Node:
    """The parts joined along an axis."""
    return Join(axis)(*parts)
