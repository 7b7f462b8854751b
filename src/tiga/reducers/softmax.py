"""Reducers over shifted exponentials: logsumexp and the softmax-weighted sum."""

from dataclasses import dataclass

from tiga.errors import InvalidValue
from tiga.ops.align import expand_to
from tiga.ops.feature import reshape
from tiga.ops.functions import abs_, exp, log
from tiga.ops.leaf import constant, ones_like, stop_gradient, zeros_like
from tiga.ops.message import gather
from tiga.ops.pointwise import add, cast, div, eq, gt, mul, ne, sub, where
from tiga.reducers.base import Messages, Reducer
from tiga.trace.node import Node

INFINITY = float("inf")


def finite_shift(peak: Node) -> Node:
    """An extremum of scores as what they are shifted by: 0 where it is infinite."""
    infinite = eq(abs_(peak), constant(INFINITY, peak.type))
    return where(infinite, zeros_like(peak), peak)


def shifted(messages: Messages, score: Node) -> tuple[Node, Node, Node]:
    """exp(score - row maximum) per edge, its row sum, and the maximum (0 where infinite).

    The shift cancels in every result, so no derivative flows through it.
    """
    score = messages.kept(cast(score, score.type.dtype.compute), -INFINITY)
    shift = finite_shift(stop_gradient(messages.total("max", score)))
    weight = exp(sub(score, gather(messages.relation, messages.side, shift)))
    return weight, messages.total("sum", weight), shift


@dataclass(frozen=True)
class LogSumExp(Reducer):
    """log(sum(exp(message))), without overflow; -inf for an empty row."""

    takes = "floats"

    def rows(self, messages: Messages) -> Node:
        (m,) = messages.parts
        _, total, shift = shifted(messages, m)
        some = ne(total, zeros_like(total))  # NaN stays
        value = add(log(where(some, total, ones_like(total))), shift)
        return cast(where(some, value, constant(-INFINITY, value.type)), m.type.dtype)


@dataclass(frozen=True)
class Softmax(Reducer):
    """The sum of values weighted by the softmax of their scores over the row; 0 if it is empty.

    `edge` returns `self.reducer(score, value)`. A score has the leading feature axes of its value:
    per edge (no axis), or per head. Scores of -inf count as masked.

    Example:
        >>> import torch, tiga as tg
        >>> class Attend(tg.MessagePassing):
        ...     reducer = tg.softmax()
        ...     def edge(self, src, dst, edge):
        ...         return self.reducer(edge.score, src.x)
        >>> graph = tg.Graph.from_coo([0, 1], [1, 1], num_dst=2)
        >>> x, score = torch.tensor([1.0, 3.0]), torch.tensor([0.0, 0.0])
        >>> Attend()(graph=graph, src={"x": x}, edge={"score": score})
        tensor([0., 2.])
    """

    arguments = 2
    takes = "floats"

    def rows(self, messages: Messages) -> Node:
        score, value = messages.parts
        shape, rank = score.type.shape, len(value.type.shape)
        heads = value.type.shape[: len(shape)]
        if len(shape) > rank or any(n not in (1, h) for n, h in zip(shape, heads, strict=True)):
            raise InvalidValue(
                f"scores of feature shape {shape} do not fit values of {value.type.shape}: "
                f"expected one score per edge, (), or one per head, the leading axes of the value."
            )
        padded = reshape(score, (*shape, *(1,) * (rank - len(shape))))
        weight, total, _ = shifted(messages, padded)
        wide = messages.kept(cast(value, value.type.dtype.compute), 0.0)
        spread_weight = expand_to(cast(weight, wide.type.dtype), wide.type.shape, wide.type.space)
        weighted = messages.total("sum", mul(spread_weight, wide))
        total = cast(total, wide.type.dtype)
        safe = where(gt(total, zeros_like(total)), total, ones_like(total))
        # A product has a derivative that edges recompute; that of a quotient would be stored.
        share = div(ones_like(safe), safe)
        out = mul(weighted, expand_to(share, weighted.type.shape, weighted.type.space))
        return cast(out, value.type.dtype)
