"""Reducers over a monoid: maximum, minimum, product."""

from dataclasses import dataclass
from typing import ClassVar

from tiga.ops.monoid import MONOIDS
from tiga.ops.pointwise import cast
from tiga.reducers.base import Messages, Reducer
from tiga.reducers.moments import accumulator
from tiga.trace.node import Node


@dataclass(frozen=True)
class Extremum(Reducer):
    """Shared by maximum and minimum: ties share the derivative evenly; empty rows are 0."""

    kind: ClassVar[str]

    def rows(self, messages: Messages) -> Node:
        (m,) = messages.parts
        fill = MONOIDS[self.kind].identity(m.type.dtype)
        value = messages.total(self.kind, messages.kept(m, fill))
        return value if self.empty == "identity" else messages.unless_empty(value)


@dataclass(frozen=True)
class Max(Extremum):
    """The largest message; 0 for an empty row, or -inf with `empty="identity"`."""

    kind = "max"


@dataclass(frozen=True)
class Min(Extremum):
    """The smallest message; 0 for an empty row, or inf with `empty="identity"`."""

    kind = "min"


@dataclass(frozen=True)
class Prod(Reducer):
    """The product of the messages; 1 for an empty row."""

    def rows(self, messages: Messages) -> Node:
        (m,) = messages.parts
        wide = cast(m, accumulator(m.type.dtype))
        product = messages.total("prod", messages.kept(wide, 1.0))
        return cast(product, m.type.dtype)
