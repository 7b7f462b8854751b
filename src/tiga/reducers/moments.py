"""Sums and what follows from them: mean, variance, standard deviation."""

from dataclasses import dataclass, field

from tiga.ops.extremum import RowExtremum
from tiga.ops.functions import sqrt
from tiga.ops.leaf import constant, ones_like, zeros_like
from tiga.ops.moments import SquaredDeviations
from tiga.ops.pointwise import cast, div, eq, logical_or, maximum, sub, where
from tiga.reducers.base import Messages, Reducer
from tiga.trace.node import Node
from tiga.types import DType, int64


def accumulator(dtype: DType) -> DType:
    """The dtype in which sums of `dtype` accumulate."""
    return int64 if dtype.kind == "b" else dtype.compute


def _sum(messages: Messages) -> Node:
    (m,) = messages.parts
    wide = cast(m, accumulator(m.type.dtype))
    return messages.total("sum", messages.kept(wide, 0.0))


def _result(value: Node, message: Node) -> Node:
    return value if message.type.dtype.kind == "b" else cast(value, message.type.dtype)


def _mean(messages: Messages) -> Node:
    """The mean in the accumulator dtype; 0 for an empty row."""
    total = _sum(messages)
    number = messages.count(total)
    return div(total, maximum(number, ones_like(number)))


@dataclass(frozen=True)
class Sum(Reducer):
    """The sum of the messages; 0 for an empty row."""

    def rows(self, messages: Messages) -> Node:
        return _result(_sum(messages), messages.parts[0])


@dataclass(frozen=True)
class Mean(Reducer):
    """The mean of the messages; 0 for an empty row. Never overflows through its sum."""

    def rows(self, messages: Messages) -> Node:
        return _result(_mean(messages), messages.parts[0])


@dataclass(frozen=True)
class Var(Reducer):
    """The variance: mean squared distance from the mean, in two passes over the row.

    `correction` is subtracted from the count (0: population, 1: sample).
    """

    correction: int = field(default=0, kw_only=True)
    takes = "floats"

    def _variance(self, messages: Messages) -> Node:
        (m,) = messages.parts
        wide = cast(m, accumulator(m.type.dtype))
        moment = SquaredDeviations(messages.relation, messages.side)
        squares = moment(wide, messages.mask(wide))
        number = sub(messages.count(squares), constant(self.correction, squares.type))
        return div(squares, maximum(number, ones_like(number)))

    def rows(self, messages: Messages) -> Node:
        return _result(self._variance(messages), messages.parts[0])


@dataclass(frozen=True)
class Std(Var):
    """The standard deviation; its derivative where the messages of a row are equal is 0."""

    def rows(self, messages: Messages) -> Node:
        variance = self._variance(messages)
        zero = zeros_like(variance)
        # The mean of equal messages is rounded: their variance is a rounding error, not 0. One
        # condition for both is all that a gradient keeps beside the moments.
        is_zero = logical_or(self._are_equal(messages), eq(variance, zero))
        root = sqrt(where(is_zero, ones_like(variance), variance))
        return _result(where(is_zero, zero, root), messages.parts[0])

    def _are_equal(self, messages: Messages) -> Node:
        """Per row, whether its messages are all one number; infinite ones differ, as they have no
        deviation from their mean."""
        (m,) = messages.parts
        ends = (
            RowExtremum(messages.relation, messages.side, kind, 0.0)(m, messages.mask(m))
            for kind in ("max", "min")
        )
        span = sub(*ends)
        return eq(span, zeros_like(span))
