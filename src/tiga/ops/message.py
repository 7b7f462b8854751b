"""All that moves values between spaces: gather, reduce, spread, reduce_all, and row facts."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from tiga.ops.base import Linear, Op
from tiga.ops.leaf import constant, is_constant, ones_like, zeros_like
from tiga.ops.monoid import MONOIDS, Monoid
from tiga.ops.pointwise import cast, div, eq, le, maximum, mul, sub, where
from tiga.ops.winners import WINS
from tiga.trace.node import Node
from tiga.trace.origin import Origin
from tiga.types import GLOBAL, DType, Relation, Space, Type, bool_, int64


class Topology(Protocol):
    """What the oracle needs of a relation: both ends of every edge, in edge order."""

    def end(self, side: str) -> np.ndarray: ...

    def extent(self, side: str) -> int: ...


@dataclass(frozen=True)
class Gather(Linear, name="gather"):
    """Node value to edges: each edge reads the node at its `side` end."""

    relation: Relation
    side: str
    origin = Origin.END

    def infer(self, x: Type) -> Type:
        assert x.space == self.relation.end(self.side), f"gather {self.side} of {x}"
        return x.with_space(self.relation.edge)

    def fold(self, inputs):
        (x,) = inputs
        return constant(x.op.value, self.infer(x.type)) if x.op.origin is Origin.NUMBER else None

    def reference(self, x: np.ndarray, topology: Topology) -> np.ndarray:
        ends = topology.end(self.side)
        return x[ends] if len(x) != 1 else x[np.zeros_like(ends)]

    def vjp(self, ct, out, x):
        return (sum_to(self.relation, self.side, ct),)


@dataclass(frozen=True)
class Reduce(Op, name="reduce"):
    """Edge values to nodes: combine those of the edges at each node's `side` end.

    An empty row yields the identity. Sums and products take operands in a compute dtype.
    """

    relation: Relation
    side: str
    kind: str
    arity = 1
    origin = Origin.ROW

    @property
    def monoid(self) -> Monoid:
        return MONOIDS[self.kind]

    @property
    def selects(self) -> bool:
        return self.monoid.selects

    def infer(self, m: Type) -> Type:
        assert m.space == self.relation.edge, f"reduce of {m}"
        assert self.monoid.selects or m.dtype == m.dtype.compute, f"{self.kind} of {m}"
        return m.with_space(self.relation.end(self.side))

    def fold(self, inputs):
        if self.kind == "sum" and is_constant(inputs[0], 0.0):
            return constant(0.0, self.infer(inputs[0].type))
        return None

    def reference(self, m: np.ndarray, topology: Topology) -> np.ndarray:
        rows = topology.end(self.side)
        m = np.broadcast_to(m, (len(rows), *m.shape[1:]))
        dtype = m.dtype
        kind = dtype.kind if dtype.kind in "iub" else "f"
        fill = self.monoid.identity_value
        if kind in "iu" and not np.isfinite(fill):
            fill = np.iinfo(dtype).max if fill > 0 else np.iinfo(dtype).min
        out = np.full((topology.extent(self.side), *m.shape[1:]), fill, dtype)
        self.monoid.ufunc.at(out, rows, m)
        return out

    def _gather(self, x: Node) -> Node:
        return Gather(self.relation, self.side)(x)

    def _winners(self, out: Node, m: Node) -> tuple[Node, Node]:
        """Which messages equal the row's result, and how many do, at least 1."""
        wins = WINS[self.kind](m, self._gather(out))
        ones = cast(wins, m.type.dtype.compute)
        count = Reduce(self.relation, self.side, "sum")(ones)
        return wins, maximum(count, ones_like(count))

    def vjp(self, ct, out, m):
        if self.kind == "sum":
            return (self._gather(ct),)
        if self.kind == "prod":
            return (mul(self._gather(ct), ExclusiveProd(self.relation, self.side)(m)),)
        wins, count = self._winners(out, m)
        share = cast(div(cast(ct, count.type.dtype), count), ct.type.dtype)
        gathered = self._gather(share)
        return (where(wins, gathered, zeros_like(gathered)),)

    def jvp(self, tangents, out, m):
        (t,) = tangents
        if t is None:
            return []
        if self.kind == "sum":
            return [self(t)]
        total = Reduce(self.relation, self.side, "sum")
        if self.kind == "prod":
            return [total(mul(t, ExclusiveProd(self.relation, self.side)(m)))]
        wins, count = self._winners(out, m)
        picked = where(wins, t, zeros_like(t))
        return [cast(div(total(cast(picked, count.type.dtype)), count), out.type.dtype)]


@dataclass(frozen=True)
class OfCounted(Op):
    """A value per row of those of its messages that count: the second input says which, as bool
    values of the messages' shape."""

    relation: Relation
    side: str
    arity = 2
    origin = Origin.ROW

    def infer(self, m: Type, keep: Type) -> Type:
        assert m.space == self.relation.edge, f"{self.name} of {m}"
        assert keep == m.with_dtype(bool_), f"{keep} is no mask of {m}"
        return m.with_space(self.relation.end(self.side))


@dataclass(frozen=True)
class ExclusiveProd(Op, name="exclusive_prod"):
    """Per edge, the product of the other messages of its row: exact with any number of zeros.

    It expands to row state: the product P of the nonzero messages and the number of zeros. Its
    derivative does the same with the sums S = sum(ct / m) over nonzeros and Z = sum(ct) over
    zeros: with no zero, P / m (S - ct / m); at one zero, P S at it and P Z / m elsewhere; at two,
    P (Z - ct) at each of them.
    """

    relation: Relation
    side: str
    arity = 1

    def infer(self, m: Type) -> Type:
        return m

    def reference(self, m: np.ndarray, topology: Topology) -> np.ndarray:
        out = np.empty_like(np.broadcast_to(m, (len(topology.end(self.side)), *m.shape[1:])))
        rows = topology.end(self.side)
        for row in np.unique(rows):
            at = np.flatnonzero(rows == row)
            for position, edge in enumerate(at):
                out[edge] = np.prod(m[np.delete(at, position)], axis=0)
        return out

    def _row(self, kind: str, m: Node) -> Node:
        return Gather(self.relation, self.side)(Reduce(self.relation, self.side, kind)(m))

    def _state(self, m: Node) -> tuple[Node, Node, Node, Node]:
        """is_zero, m with zeros replaced by 1, product of nonzeros, number of zeros (gathered)."""
        one = ones_like(m)
        is_zero = eq(m, zeros_like(m))
        safe = where(is_zero, one, m)
        zeros = self._row("sum", where(is_zero, one, zeros_like(m)))
        return is_zero, safe, self._row("prod", safe), zeros

    def expand(self, m: Node) -> Node:
        """The same value in gathers, reductions and pointwise ops."""
        is_zero, safe, product, zeros = self._state(m)
        one, none = ones_like(m), zeros_like(m)
        # One number and one flag per row serve every edge: the others are all nonzero at the
        # only zero, and everywhere if there is none.
        others = where(le(zeros, one), product, none)
        elsewhere = where(eq(zeros, none), div(others, safe), none)
        return where(is_zero, others, elsewhere)

    def vjp(self, ct, out, m):
        is_zero, safe, product, zeros = self._state(m)
        none = zeros_like(m)
        one, two = ones_like(m), constant(2, m.type)
        ratio = where(is_zero, none, div(ct, safe))
        nonzero_sum = self._row("sum", ratio)
        zero_sum = self._row("sum", where(is_zero, ct, none))
        scaled = div(product, safe)
        no_zero = mul(scaled, sub(nonzero_sum, ratio))
        one_zero = where(is_zero, mul(product, nonzero_sum), mul(scaled, zero_sum))
        two_zeros = where(is_zero, mul(product, sub(zero_sum, ct)), none)
        some = where(eq(zeros, one), one_zero, where(eq(zeros, two), two_zeros, none))
        return (where(le(zeros, none), no_zero, some),)

    def jvp(self, tangents, out, m):
        """The matrix of partial derivatives is symmetric, so the cotangent rule serves."""
        return [] if tangents[0] is None else list(self.vjp(tangents[0], out, m))


@dataclass(frozen=True)
class Degree(Op, name="degree"):
    """Number of edges at each node's `side` end, as a number of `dtype`; no derivative."""

    relation: Relation
    side: str
    dtype: DType
    arity = 0
    origin = Origin.DEGREE

    def infer(self) -> Type:
        return Type(self.dtype, (), self.relation.end(self.side))

    def reference(self, topology: Topology) -> np.ndarray:
        counts = np.bincount(topology.end(self.side), minlength=topology.extent(self.side))
        return counts.astype(self.dtype.numpy)


@dataclass(frozen=True)
class Spread(Linear, name="spread"):
    """A global value given to every entity of a space."""

    space: Space
    origin = Origin.GLOBAL

    def infer(self, x: Type) -> Type:
        assert x.space == GLOBAL, f"spread of {x}"
        return x.with_space(self.space)

    def fold(self, inputs):
        (x,) = inputs
        if self.space == GLOBAL:
            return x
        return constant(x.op.value, self.infer(x.type)) if x.op.origin is Origin.NUMBER else None

    def reference(self, x: np.ndarray) -> np.ndarray:
        return x

    def vjp(self, ct, out, x):
        return (cast(ReduceAll()(cast(ct, ct.type.dtype.compute)), x.type.dtype),)


@dataclass(frozen=True)
class ReduceAll(Linear, name="reduce_all"):
    """The sum over all entities of a space, in a compute dtype and a fixed order."""

    origin = Origin.TOTAL

    def infer(self, x: Type) -> Type:
        assert x.space != GLOBAL, f"reduce_all of {x}"
        assert x.dtype == x.dtype.compute, f"reduce_all of {x}"
        return x.with_space(GLOBAL)

    def reference(self, x: np.ndarray) -> np.ndarray:
        return x.sum(axis=0, keepdims=True)

    def vjp(self, ct, out, x):
        return (Spread(x.type.space)(ct),)


@dataclass(frozen=True)
class EdgeIndex(Op, name="edge_index"):
    """The position of each edge in CSR order, as int64; no derivative."""

    relation: Relation
    arity = 0
    origin = Origin.POSITION

    def infer(self) -> Type:
        return Type(int64, (), self.relation.edge)

    def reference(self, topology: Topology) -> np.ndarray:
        return np.arange(len(topology.end("dst")))


def gather(relation: Relation, side: str, x: Node) -> Node:
    """`x`, a node value at `side`, read by every edge."""
    return Gather(relation, side)(x)


def reduce(relation: Relation, side: str, kind: str, m: Node) -> Node:
    """The messages `m` combined at each node of `side`."""
    return Reduce(relation, side, kind)(m)


def is_edge_sum(node: Node) -> bool:
    """Whether a value is the sum of the messages of each node's edges."""
    return isinstance(node.op, Reduce) and node.op.kind == "sum"


def sum_to(relation: Relation, side: str, m: Node) -> Node:
    """The sum of `m` at `side`, accumulated in the compute dtype and rounded once."""
    total = Reduce(relation, side, "sum")(cast(m, m.type.dtype.compute))
    return cast(total, m.type.dtype)


def degree(relation: Relation, side: str, dtype: DType) -> Node:
    """The number of edges at each node of `side`."""
    return Degree(relation, side, dtype)()


def spread(x: Node, space: Space) -> Node:
    """`x` itself, or a global value given to every entity of `space`."""
    return x if x.type.space == space else Spread(space)(x)


def reduce_all(x: Node) -> Node:
    """The sum of `x` over its space."""
    return ReduceAll()(x)


__all__: Sequence[str] = (
    "Degree", "EdgeIndex", "ExclusiveProd", "Gather", "OfCounted", "Reduce", "ReduceAll", "Spread",
    "Topology", "degree", "gather", "is_edge_sum", "reduce", "reduce_all", "spread", "sum_to",
)  # fmt: skip
