"""Reducers over a monoid: maximum, minimum, product."""

from dataclasses import dataclass
from typing import ClassVar

from tiga.ops.align import expand_to
from tiga.ops.extremum import RowExtremum
from tiga.ops.leaf import constant
from tiga.ops.message import EdgeIndex, gather
from tiga.ops.monoid import MONOIDS
from tiga.ops.pointwise import cast, eq, logical_or, ne, where
from tiga.reducers.base import Messages, Reducer
from tiga.reducers.moments import accumulator
from tiga.trace.node import Node
from tiga.types import int64


@dataclass(frozen=True)
class Extremum(Reducer):
    """Shared by maximum and minimum: ties share the derivative evenly; empty rows are 0."""

    kind: ClassVar[str]
    takes = "numbers"

    def rows(self, messages: Messages) -> Node:
        (m,) = messages.parts
        if self.empty == "identity":
            fill = MONOIDS[self.kind].identity(m.type.dtype)
            return messages.total(self.kind, messages.kept(m, fill))
        extremum = RowExtremum(messages.relation, messages.side, self.kind, 0.0)
        return extremum(m, messages.mask(m))


@dataclass(frozen=True)
class Max(Extremum):
    """The largest message; 0 for an empty row, or -inf with `empty="identity"`."""

    kind = "max"


@dataclass(frozen=True)
class Min(Extremum):
    """The smallest message; 0 for an empty row, or inf with `empty="identity"`."""

    kind = "min"


@dataclass(frozen=True)
class ArgExtremum(Reducer):
    """Shared by argmax and argmin: the position of the first winning edge of each row, int64."""

    kind: ClassVar[str]
    takes = "numbers"

    def rows(self, messages: Messages) -> Node:
        (m,) = messages.parts
        m = messages.kept(m, MONOIDS[self.kind].identity(m.type.dtype))
        best = gather(messages.relation, messages.side, messages.total(self.kind, m))
        number = messages.position or EdgeIndex(messages.relation)()
        position = expand_to(number, m.type.shape, m.type.space)
        none = constant(MONOIDS["min"].identity(int64), position.type)
        # As in torch, what is no number counts as more, and as less, than any number.
        wins = logical_or(eq(m, best), ne(m, m)) if m.type.dtype.is_float else eq(m, best)
        winners = messages.kept(where(wins, position, none), none.op.value)
        first = messages.total("min", winners)
        absent = constant(-1, first.type)
        return where(eq(first, constant(none.op.value, first.type)), absent, first)


@dataclass(frozen=True)
class ArgMax(ArgExtremum):
    """The position of the edge with the largest message (the first of ties); -1 for empty rows."""

    kind = "max"


@dataclass(frozen=True)
class ArgMin(ArgExtremum):
    """The position of the edge with the smallest message (the first of ties); -1 for empty rows."""

    kind = "min"


@dataclass(frozen=True)
class Prod(Reducer):
    """The product of the messages; 1 for an empty row."""

    def rows(self, messages: Messages) -> Node:
        (m,) = messages.parts
        wide = cast(m, accumulator(m.type.dtype))
        product = messages.total("prod", messages.kept(wide, 1.0))
        return cast(product, m.type.dtype)
