"""From what `edge` returns to one value per row."""

from dataclasses import dataclass
from typing import Any

import torch

from tiga.errors import InvalidType, InvalidValue
from tiga.frontends.sent import Addressed, addressed, guard_leaves, joint_mask
from tiga.frontends.torch.capture.numbers import Operand, is_plain_number
from tiga.frontends.torch.capture.tracer import Recorder, Traced
from tiga.frontends.torch.dtypes import default_float
from tiga.frontends.trees import mapped
from tiga.ops.align import expand_to
from tiga.ops.leaf import constant
from tiga.ops.pointwise import cast
from tiga.reducers import CustomReducer, Messages, Reducer
from tiga.reducers.selection import ArgExtremum
from tiga.trace.node import Node
from tiga.types import GLOBAL, Relation, Space, Type, int64

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


def aggregate(recorder: Recorder, relation: Relation, reducer: Any, sent: Any) -> Any:
    """Reduce every message in what `edge` returned, in place."""
    return mapped(lambda one: _reduced(recorder, relation, one), addressed(reducer, sent))


def _reduced(recorder: Recorder, relation: Relation, one: Addressed) -> Any:
    one.require_count()
    parts = [to_entities(recorder, m, relation.edge, "edge") for m in one.messages]
    one.reducer.require([part.type for part in parts])
    position = None
    if isinstance(one.reducer, ArgExtremum):
        position = recorder.input(EDGE_ORDER, Type(int64, (), relation.edge), EdgeOrder())
    keep = None
    if one.keeps:
        keeps = [to_entities(recorder, k, relation.edge, "tg.mask") for k in one.keeps]
        keep = joint_mask(keeps, parts)
        parts = guard_leaves(parts, keep)
    return _rows(recorder, one.reducer, Messages(relation, tuple(parts), keep, position=position))


def _rows(recorder: Recorder, reducer: Reducer, messages: Messages) -> Any:
    if isinstance(reducer, CustomReducer):
        from tiga.frontends.torch.capture.custom import custom_rows

        return custom_rows(recorder, reducer, messages)
    return reducer.rows(messages)
