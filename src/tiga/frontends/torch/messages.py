"""From what `edge` returns to one value per row."""

import itertools
from dataclasses import dataclass
from typing import Any

import torch

from tiga.errors import InvalidType, InvalidValue
from tiga.frontends.message_passing import Masked
from tiga.frontends.torch.dtypes import default_float
from tiga.frontends.torch.numbers import Operand, is_plain_number
from tiga.frontends.torch.tracer import Recorder, Traced
from tiga.frontends.trees import leaves_of, mapped
from tiga.ops.align import align, expand_to
from tiga.ops.contract import contract
from tiga.ops.feature import reshape, take
from tiga.ops.leaf import constant, stop_gradient, zeros_like
from tiga.ops.pointwise import cast, logical_and, logical_or, where
from tiga.reducers import Bound, CustomReducer, Messages, Multi, Reducer
from tiga.reducers.selection import ArgExtremum
from tiga.trace.node import Node, rewrite
from tiga.types import GLOBAL, Relation, Space, Type, bool_, int64

MOST_MASK_LANES = 64
EDGE_ORDER = "edge_order"


@dataclass(frozen=True)
class EdgeOrder:
    """The source of an input: for each edge in CSR order, its number in the order of the user."""


def to_entities(recorder: Recorder, value: Any, space: Space, function: str) -> Node:
    """A returned value as a node that every entity of a space has."""
    node = as_node(recorder, value, function)
    if node.type.space not in (GLOBAL, space):
        raise InvalidValue(f"`{function}` returned a value of {node.type.space}, not of {space}.")
    return expand_to(node, node.type.shape, space)


def as_node(recorder: Recorder, value: Any, function: str) -> Node:
    """What `edge` gave a function of ours, as a node of its trace."""
    if isinstance(value, Traced):
        recorder.require_own(value)
        assert value.node is not None
        return value.node
    if isinstance(value, torch.Tensor):
        node = recorder.lift(value).node
        assert node is not None
        return node
    if isinstance(value, Operand):
        recorder.require_own_number(value)
        dtype = default_float() if isinstance(value.value, float) else int64
        return cast(value.trace, dtype)
    if is_plain_number(value):
        dtype = default_float() if isinstance(value, float) else int64
        return constant(value, Type(dtype, (), GLOBAL))
    raise InvalidType(
        f"`{function}` returned {value!r} of type {type(value).__name__}; expected a tensor, or a "
        f"tuple or dict of tensors."
    )


def require_reducer(reducer: Any) -> Reducer:
    """The reducer of a kernel, if it is one."""
    if isinstance(reducer, Reducer):
        return reducer
    hint = " Call it: `reducer = tg.sum()`." if callable(reducer) else ""
    if isinstance(reducer, (tuple, list, dict)):
        hint = (
            " Several reducers of one message are `tg.multi(tg.sum(), tg.max())`; for a message "
            "each, call them in `edge`: `return tg.sum()(a), tg.max()(b)`."
        )
    raise InvalidType(f"`reducer` must be a tiga reducer such as tg.sum(); got {reducer!r}.{hint}")


def aggregate(recorder: Recorder, relation: Relation, reducer: Any, sent: Any) -> Any:
    """Reduce every message in what `edge` returned, in place."""
    reducer = require_reducer(reducer)
    if isinstance(sent, Masked) and not isinstance(sent.value, (torch.Tensor, Bound)):
        keep = sent.keep
        sent = mapped(lambda value: Masked(value, keep), sent.value)
    if not leaves_of(sent):
        raise InvalidType("`edge` returned no message; return a tensor.")
    addressed = mapped(lambda leaf: address(reducer, leaf), sent)
    return mapped(lambda leaf: _reduced(recorder, relation, *leaf), addressed)


@dataclass(frozen=True)
class Addressed:
    """A message with the one reducer that takes it, and the masks around it."""

    bound: Bound
    keeps: tuple[Any, ...]

    def __iter__(self) -> Any:
        return iter((self.bound, self.keeps))


def address(reducer: Reducer, leaf: Any) -> Any:
    """What `edge` returned in one place, for each reducer that takes it."""
    keeps = []
    while isinstance(leaf, Masked):
        keeps.append(leaf.keep)
        leaf = leaf.value
    bound = leaf if isinstance(leaf, Bound) else Bound(reducer, (leaf,))
    if isinstance(bound.reducer, Multi):
        parts = bound.reducer.bound(bound.messages[0])
        return mapped(lambda part: Addressed(part, tuple(keeps)), parts)
    return Addressed(bound, tuple(keeps))


def _reduced(recorder: Recorder, relation: Relation, bound: Bound, masks: Any) -> Any:
    takes = getattr(bound.reducer, "arguments", 1)
    if not isinstance(bound.reducer, CustomReducer) and takes != len(bound.messages):
        raise InvalidType(
            f"`edge` returned {len(bound.messages)} message, but "
            f"{type(bound.reducer).__name__} takes {takes}: return `self.reducer(score, value)`."
        )
    keeps, parts = list(masks), []
    for message in bound.messages:
        if isinstance(message, Masked):
            keeps.append(message.keep)
            message = message.value
        parts.append(to_entities(recorder, message, relation.edge, "edge"))
    bound.reducer.require([part.type for part in parts])
    position = None
    if isinstance(bound.reducer, ArgExtremum):
        position = recorder.input(EDGE_ORDER, Type(int64, (), relation.edge), EdgeOrder())
    if not keeps:
        return _rows(recorder, bound.reducer, Messages(relation, tuple(parts), position=position))
    keep = _mask(recorder, relation, keeps, max((p.type.shape for p in parts), key=len))
    guarded = guard_leaves(parts, keep)
    messages = Messages(relation, tuple(guarded), keep, position=position)
    return _rows(recorder, bound.reducer, messages)


def _rows(recorder: Recorder, reducer: Reducer, messages: Messages) -> Any:
    if isinstance(reducer, CustomReducer):
        from tiga.frontends.torch.custom import custom_rows

        return custom_rows(recorder, reducer, messages)
    return reducer.rows(messages)


def _mask(recorder: Recorder, relation: Relation, keeps: list[Any], shape: Any) -> Node:
    """All masks as one, with axes that broadcast to the largest message."""
    result: Node | None = None
    for keep in keeps:
        node = to_entities(recorder, keep, relation.edge, "tg.mask")
        if node.type.dtype != bool_:
            raise InvalidType(f"tg.mask: `keep` must hold bools; got {node.type.dtype}.")
        own = node.type.shape
        if 0 < len(own) < len(shape) and own == shape[: len(own)]:
            node = reshape(node, (*own, *(1,) * (len(shape) - len(own))))
        result = node if result is None else logical_and(*align(result, node))
    assert result is not None
    return result


def _any_lane(keep: Node) -> Node | None:
    """Whether any feature of an edge counts; None if there are too many to ask."""
    if keep.type.size > MOST_MASK_LANES:
        return None
    flat = reshape(keep, (keep.type.size,))
    lanes = [reshape(take(flat, 0, (i,)), ()) for i in range(keep.type.size)]
    return list(itertools.accumulate(lanes, logical_or))[-1]


def guard_leaves(parts: list[Node], keep: Node) -> list[Node]:
    """`parts` such that no derivative reaches a leaf from an edge that does not count.

    A cotangent of zero is not enough: 0 times an infinite derivative is NaN. So each value that
    enters the edge function passes derivatives only where the edge counts.
    """
    counts = _any_lane(keep)
    if counts is None:
        return parts

    def spread(x: Node) -> Node:
        return expand_to(counts, x.type.shape, x.type.space)

    def guard(x: Node) -> Node:
        return where(spread(x), x, stop_gradient(x))

    def rule(node: Node, inputs: tuple[Node, ...]) -> Node | None:
        if node.type.space != keep.type.space or not node.type.dtype.is_float:
            return None
        if node.op.by_index or node.op.is_read:
            return guard(node)
        if node.op.table is not None:  # the matrix also gets inputs of these edges
            x, matrix = inputs
            return guard(contract(where(spread(x), x, zeros_like(x)), matrix))
        return None

    return rewrite(parts, rule)
