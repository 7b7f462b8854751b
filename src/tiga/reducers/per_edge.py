"""Reducers whose result is a value per edge: a message as it is, or among those of its row."""

from dataclasses import dataclass

from tiga.ops.leaf import ones_like, zeros_like
from tiga.ops.message import gather
from tiga.ops.pointwise import cast, div, gt, mul, where
from tiga.reducers.base import Messages, Reducer
from tiga.reducers.softmax import shifted
from tiga.trace.node import Node


@dataclass(frozen=True)
class Each(Reducer):
    """Every message as it is, `[E, ...]` in the order of edge fields; 0 where it is masked.

    What `node` is given of it can be returned, but not computed with: it has a row per edge.

    Example:
        >>> import torch, tiga as tg
        >>> class Difference(tg.MessagePassing):
        ...     def edge(self, src, dst, edge):
        ...         step = src.x - dst.x
        ...         return tg.each()(step), tg.sum()(step)
        >>> graph = tg.Graph.from_coo([0, 1, 2], [1, 0, 0], num_dst=3)
        >>> Difference()(graph=graph, ndata={"x": torch.tensor([1.0, 2.0, 4.0])})
        (tensor([-1.,  1.,  3.]), tensor([ 4., -1.,  0.]))
    """

    def rows(self, messages: Messages) -> Node:
        return messages.kept(messages.parts[0], 0.0)


@dataclass(frozen=True)
class EdgeSoftmax(Reducer):
    """The softmax of the messages over each row, per edge `[E, ...]`; 0 where one is masked.

    Gives attention weights themselves; `tg.softmax()` sums values weighted by them.

    Raises:
        InvalidType: a message is no float.

    Example:
        >>> import torch, tiga as tg
        >>> class Weights(tg.MessagePassing):
        ...     reducer = tg.edge_softmax()
        ...     def edge(self, src, dst, edge):
        ...         return edge.score
        >>> graph = tg.Graph.from_coo([0, 1, 0], [0, 0, 1], num_dst=2)
        >>> Weights()(graph=graph, src={}, edge={"score": torch.zeros(3)})
        tensor([0.5000, 0.5000, 1.0000])
    """

    takes = "floats"

    def rows(self, messages: Messages) -> Node:
        (score,) = messages.parts
        weight, total, _ = shifted(messages, score)
        safe = where(gt(total, zeros_like(total)), total, ones_like(total))
        share = gather(messages.relation, messages.side, div(ones_like(safe), safe))
        return cast(mul(weight, share), score.type.dtype)
