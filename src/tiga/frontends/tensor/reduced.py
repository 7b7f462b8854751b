"""What `edge` sent, reduced: messages, masks and reducers to values of rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tiga.errors import InvalidType
from tiga.frontends.message_passing import Masked, PerEdge
from tiga.frontends.tensor.build import as_tensor
from tiga.frontends.tensor.core import Tensor
from tiga.frontends.tensor.custom import TracedReducer
from tiga.frontends.tensor.entities import NODES, Entities
from tiga.frontends.tensor.lazy import here
from tiga.frontends.trees import mapped
from tiga.ops.align import align, expand_to
from tiga.ops.feature import reshape
from tiga.ops.leaf import stop_gradient
from tiga.ops.pointwise import logical_and, where
from tiga.reducers import Bound, CustomReducer, Max, Mean, Messages, Min, Multi, Reducer, Sum
from tiga.trace.node import Node, rewrite
from tiga.types import Relation, bool_


@dataclass(frozen=True)
class Sent:
    """Messages of an edge with the one reducer that takes them, and the masks around them."""

    reducer: Reducer
    messages: tuple[Tensor, ...]
    keeps: tuple[Tensor, ...]
    traced: TracedReducer | None = None

    @property
    def values(self) -> tuple[Tensor, ...]:
        """All that the user gave."""
        made = () if self.traced is None else self.traced.values
        return (*self.messages, *self.keeps, *made)

    @property
    def form(self) -> tuple[Any, ...]:
        """What tells it from others beside its values."""
        how = self.reducer if self.traced is None else self.traced.form
        return how, len(self.messages), len(self.keeps)


_PLAIN = (Sum, Mean, Max, Min)
"""Reducers that take one message as it is."""


def address(reducer: Any, sent: Any) -> Any:
    """What `edge` returned, with the reducer of every message: a tree of `Sent`.

    Raises:
        InvalidType: there is no message, or one that its reducer does not take.
    """
    if sent.__class__ is Tensor and reducer.__class__ in _PLAIN:
        return Sent(reducer, (sent,), ())
    if not isinstance(reducer, Reducer):
        raise InvalidType(
            f"`reducer` must be a reducer such as tg.sum(), got {reducer!r} ({here()})."
        )
    if isinstance(sent, Masked) and isinstance(sent.value, (dict, tuple, list)):
        keep = sent.keep
        sent = mapped(lambda value: Masked(value, keep), sent.value)
    return mapped(lambda leaf: _sent(reducer, leaf), sent)


def _sent(reducer: Reducer, leaf: Any) -> Any:
    if leaf.__class__ is Tensor and reducer.__class__ in _PLAIN:
        return Sent(reducer, (leaf,), ())
    keeps: list[Any] = []
    while isinstance(leaf, Masked):
        keeps.append(leaf.keep)
        leaf = leaf.value
    bound = leaf if isinstance(leaf, Bound) else Bound(reducer, (leaf,))
    if isinstance(bound.reducer, Multi):
        parts = bound.reducer.bound(bound.messages[0])
        return mapped(lambda part: _addressed(part, keeps), parts)
    return _addressed(bound, keeps)


def _addressed(bound: Bound, keeps: list[Any]) -> Sent:
    messages, keeps = [], [as_tensor(keep, "tg.mask") for keep in keeps]
    for message in bound.messages:
        if isinstance(message, Masked):
            keeps.append(as_tensor(message.keep, "tg.mask"))
            message = message.value
        messages.append(as_tensor(message, "a message"))
    takes = getattr(bound.reducer, "arguments", 1)
    if not isinstance(bound.reducer, CustomReducer) and takes != len(messages):
        raise InvalidType(
            f"`edge` returned {len(messages)} message, but {type(bound.reducer).__name__} takes "
            f"{takes} ({here()}): return `self.reducer(score, value)`."
        )
    traced = None
    if isinstance(bound.reducer, CustomReducer):
        traced = TracedReducer(bound.reducer, messages, NODES)
    return Sent(bound.reducer, tuple(messages), tuple(keeps), traced)


def form_of(tree: Any) -> Any:
    """The structure of a tree of `Sent`, to look things up by."""
    if isinstance(tree, Sent):
        return tree.form
    if isinstance(tree, PerEdge):
        return PerEdge, tree.value
    if isinstance(tree, dict):
        return (dict, tuple([(key, form_of(value)) for key, value in tree.items()]))
    if isinstance(tree, (tuple, list)):
        return (type(tree), tuple(map(form_of, tree)))
    return None


def reduce_sent(
    sent: Sent, relation: Relation, edges: Entities, nodes: Entities, position: Node | None
) -> Any:
    """Messages as values of rows: one, or what a user's reducer returns."""
    parts = [edges.each(message._node) for message in sent.messages]
    keep = None
    if sent.keeps:
        keep = _mask([edges.each(k._node) for k in sent.keeps], parts)
        guarded = _guarded(parts, keep)
        edges = _replaced(edges, sent.messages, guarded)
        parts = guarded
    if sent.traced is not None:
        return sent.traced.rows(relation, edges, nodes, keep)
    return sent.reducer.rows(Messages(relation, tuple(parts), keep, position=position))


def _replaced(edges: Entities, messages: Sequence[Tensor], parts: Sequence[Node]) -> Entities:
    """The same values, but for messages that were guarded: what is lifted is made from these."""
    guarded = Entities(edges.space, edges.extent, edges.leaf)
    fixed = {n: v for n, v in edges.values.items() if not n.inputs}
    guarded.values.update(fixed)
    guarded.values.update(zip((m._node for m in messages), parts, strict=True))
    return guarded


def _mask(keeps: list[Node], parts: list[Node]) -> Node:
    """All masks as one, with axes that broadcast to the largest message."""
    shape = max((p.type.shape for p in parts), key=len)
    total: Node | None = None
    for keep in keeps:
        if keep.type.dtype != bool_:
            raise InvalidType(f"tg.mask: `keep` must hold bools, got {keep.type.dtype} ({here()}).")
        own = keep.type.shape
        if len(own) < len(shape) and own == shape[: len(own)]:
            keep = reshape(keep, (*own, *(1,) * (len(shape) - len(own))))
        total = keep if total is None else logical_and(*align(total, keep))
    assert total is not None
    return total


def _guarded(parts: list[Node], keep: Node) -> list[Node]:
    """`parts` such that no derivative reaches a leaf from an edge that does not count: zero times
    an infinite derivative would be NaN."""
    if keep.type.size != 1:
        return parts
    flag = reshape(keep, ())

    def rule(node: Node, inputs: tuple[Node, ...]) -> Node | None:
        on_edge = node.type.space == keep.type.space and node.type.dtype.is_float
        if not on_edge or not node.op.is_read:
            return None
        counts = expand_to(flag, node.type.shape, node.type.space)
        return where(counts, node, stop_gradient(node))

    return rewrite(parts, rule)
