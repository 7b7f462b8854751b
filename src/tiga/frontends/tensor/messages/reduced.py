"""What `edge` sent, reduced: messages, masks and reducers to values of rows."""

from collections.abc import Sequence
from typing import Any

from tiga.frontends.message_passing import PerEdge
from tiga.frontends.sent import Addressed, addressed, guard_leaves, joint_mask
from tiga.frontends.tensor.build import as_tensor
from tiga.frontends.tensor.core import Tensor
from tiga.frontends.tensor.lazy import here
from tiga.frontends.tensor.messages.custom import TracedReducer
from tiga.frontends.tensor.messages.entities import NODES, Entities
from tiga.frontends.trees import mapped
from tiga.reducers import CustomReducer, Max, Mean, Messages, Min, Reducer, Sum
from tiga.trace.node import Node
from tiga.types import Relation


class Sent:
    """Messages of an edge with the one reducer that takes them, and the masks around them.
    `values` is all that the user gave."""

    __slots__ = ("keeps", "messages", "reducer", "traced", "values")

    def __init__(
        self,
        reducer: Reducer,
        messages: tuple[Tensor, ...],
        keeps: tuple[Tensor, ...] = (),
        traced: TracedReducer | None = None,
    ) -> None:
        self.reducer, self.messages, self.keeps, self.traced = reducer, messages, keeps, traced
        made = () if traced is None else traced.values
        self.values: tuple[Tensor, ...] = (*messages, *keeps, *made)

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
        return Sent(reducer, (sent,))
    return mapped(_sent, addressed(reducer, sent, _line))


def _line() -> str:
    return f" ({here()})"


def _sent(one: Addressed) -> Sent:
    messages = tuple(as_tensor(message, "a message") for message in one.messages)
    keeps = tuple(as_tensor(keep, "tg.mask") for keep in one.keeps)
    one.require_count(_line)
    if isinstance(one.reducer, CustomReducer):
        return Sent(one.reducer, messages, keeps, TracedReducer(one.reducer, messages, NODES))
    return Sent(one.reducer, messages, keeps)


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
    sent.reducer.require([part.type for part in parts], _line)
    keep = None
    if sent.keeps:
        keep = joint_mask([edges.each(k._node) for k in sent.keeps], parts, _line)
        guarded = guard_leaves(parts, keep)
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
