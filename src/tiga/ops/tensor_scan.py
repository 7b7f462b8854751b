"""Scans along one axis of a whole tensor, and positions along it.

Sums, products and linear recurrences are closed under differentiation: the derivative of each is a
recurrence in the other direction, with no division, so zeros change nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tiga.ops.dense import Dense, NoDerivative
from tiga.ops.leaf import constant
from tiga.ops.pointwise import add, mul
from tiga.ops.tensor_views import join, slice_, unslice
from tiga.trace.node import Node
from tiga.trace.origin import Origin
from tiga.types import GLOBAL, Shape, Type, int64

Together = Callable[..., Node]
"""What joins parts along an axis."""


def _wider(dtype: np.dtype) -> np.dtype:
    """The type that carries numbers of a type along an axis."""
    return np.result_type(dtype, np.float64) if dtype.kind in "fc" else dtype


@dataclass(frozen=True)
class AxisScan(Dense):
    """Something carried along an axis, from its start or (`reverse`) its end."""

    carries = True
    axis_fields = ("axis",)
    axis: int
    reverse: int = 0

    def infer(self, *types: Type) -> Type:
        assert all(t == types[0] for t in types), f"{self.name} on {types}"
        return types[0]

    def fold(self, inputs):
        return inputs[-1] if inputs[-1].type.shape[self.axis] == 1 else None

    def _forwards(self, x: np.ndarray) -> np.ndarray:
        return np.flip(x, self.axis) if self.reverse else x


@dataclass(frozen=True)
class CumSum(AxisScan, name="cumsum"):
    """Inclusive sums along an axis."""

    combine = "add"
    arity = 1

    def compute(self, x: np.ndarray) -> np.ndarray:
        total = np.cumsum(self._forwards(x), axis=self.axis, dtype=_wider(x.dtype))
        return self._forwards(total).astype(x.dtype)

    def vjp(self, ct, out, x):
        return (CumSum(self.axis, 1 - self.reverse)(ct),)

    def jvp(self, tangents, out, x):
        return [] if tangents[0] is None else [self(tangents[0])]


@dataclass(frozen=True)
class CumProd(AxisScan, name="cumprod"):
    """Products along an axis of what is up to each element, itself included."""

    combine = "mul"
    arity = 1

    def compute(self, x: np.ndarray) -> np.ndarray:
        product = np.cumprod(self._forwards(x), axis=self.axis, dtype=_wider(x.dtype))
        return self._forwards(product).astype(x.dtype)

    def expand(self, x: Node) -> Node:
        return doubled_product(x, self.axis, self.reverse)

    def _before(self, out: Node) -> Node:
        """The products of what is before each element."""
        return shifted(out, self.axis, self.reverse, 1)

    def vjp(self, ct, out, x):
        later = shifted(x, self.axis, 1 - self.reverse)
        total = Recurrence(self.axis, 1 - self.reverse)(later, ct)
        return (mul(self._before(out), total),)

    def jvp(self, tangents, out, x):
        if tangents[0] is None:
            return []
        return [Recurrence(self.axis, self.reverse)(x, mul(tangents[0], self._before(out)))]


@dataclass(frozen=True)
class Recurrence(AxisScan, name="linear_recurrence"):
    """y = a y + b along an axis, where the y on the right is the one before (0 at first)."""

    arity = 2

    def expand(self, a: Node, b: Node) -> Node:
        return doubled_recurrence(a, b, self.axis, self.reverse)

    def compute(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        factors, terms = (np.moveaxis(self._forwards(x), self.axis, 0) for x in (a, b))
        y = terms.astype(_wider(b.dtype))
        for place in range(1, len(terms)):
            y[place] += factors[place] * y[place - 1]
        return self._forwards(np.moveaxis(y, 0, self.axis)).astype(b.dtype)

    def vjp(self, ct, out, a, b):
        later = shifted(a, self.axis, 1 - self.reverse)
        total = Recurrence(self.axis, 1 - self.reverse)(later, ct)
        return mul(total, shifted(out, self.axis, self.reverse)), total

    def jvp(self, tangents, out, a, b):
        da, db = tangents
        parts = [] if db is None else [db]
        if da is not None:
            parts.append(mul(da, shifted(out, self.axis, self.reverse)))
        return [Recurrence(self.axis, self.reverse)(a, part) for part in parts]


@dataclass(frozen=True)
class Positions(NoDerivative, name="positions"):
    """The position of each element along an axis."""

    arity = 0
    origin = Origin.POSITION
    axis: int
    shape: Shape

    def infer(self) -> Type:
        return Type(int64, self.shape, GLOBAL)

    def compute(self) -> np.ndarray:
        after = (1,) * (len(self.shape) - self.axis - 1)
        return np.broadcast_to(np.arange(self.shape[self.axis]).reshape(-1, *after), self.shape)


def shifted(x: Node, axis: int, reverse: int, first: int = 0) -> Node:
    """At each position the element before it in the direction of a scan; `first` where there is
    none."""
    count = x.type.shape[axis]
    if count == 0:
        return x
    rest = slice_(x, axis, reverse, count - 1)
    if not first:
        return unslice(rest, axis, 1 - reverse, 1, count)
    shape = (*x.type.shape[:axis], 1, *x.type.shape[axis + 1 :])
    one = constant(first, x.type.with_shape(shape))
    return join(axis, rest, one) if reverse else join(axis, one, rest)


def product_of_others(x: Node, axis: int) -> Node:
    """The product of all other elements along an axis: of those before and those after."""
    before = shifted(CumProd(axis)(x), axis, 0, 1)
    return mul(before, shifted(CumProd(axis, 1)(x), axis, 1, 1))


def halved_product(x: Node, axis: int, together: Together = join) -> Node:
    """The product along an axis, kept at extent 1, as a tree of products of halves."""
    while x.type.shape[axis] > 1:
        count = x.type.shape[axis]
        half = count // 2
        pairs = mul(slice_(x, axis, 0, half), slice_(x, axis, half, half))
        rest = [slice_(x, axis, 2 * half, 1)] if count % 2 else []
        x = together(axis, pairs, *rest)
    return x


def doubled_recurrence(a: Node, b: Node, axis: int, reverse: int) -> Node:
    """The recurrence y = a y + b by doubling: maps over 1, 2, 4, ... elements after one another."""
    count, step = b.type.shape[axis], 1

    def parts(x: Node) -> tuple[Node, Node, Node]:
        """The first `step` elements in the scan's direction, the others, and those before them."""
        rest = count - step
        if reverse:
            return (
                slice_(x, axis, rest, step),
                slice_(x, axis, 0, rest),
                slice_(x, axis, step, rest),
            )
        return slice_(x, axis, 0, step), slice_(x, axis, step, rest), slice_(x, axis, 0, rest)

    def whole(first: Node, later: Node) -> Node:
        return join(axis, later, first) if reverse else join(axis, first, later)

    while step < count:
        (first_a, later_a, before_a), (first_b, later_b, before_b) = parts(a), parts(b)
        b = whole(first_b, add(later_b, mul(later_a, before_b)))
        a = whole(first_a, mul(later_a, before_a))
        step *= 2
    return b


def doubled_product(x: Node, axis: int, reverse: int, together: Together = join) -> Node:
    """Products up to each element, by doubling."""
    count, step = x.type.shape[axis], 1
    while step < count:
        rest = count - step
        if reverse:
            later = mul(slice_(x, axis, 0, rest), slice_(x, axis, step, rest))
            x = together(axis, later, slice_(x, axis, rest, step))
        else:
            later = mul(slice_(x, axis, step, rest), slice_(x, axis, 0, rest))
            x = together(axis, slice_(x, axis, 0, step), later)
        step *= 2
    return x
