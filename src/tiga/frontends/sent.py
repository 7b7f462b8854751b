"""What `edge` sent: messages, the masks around them, and the reducers that they go to."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from tiga.errors import InvalidType, InvalidValue
from tiga.frontends.message_passing import Masked
from tiga.frontends.trees import leaves_of, mapped
from tiga.ops.align import align, expand_to
from tiga.ops.contract import contract
from tiga.ops.feature import reshape, take
from tiga.ops.leaf import stop_gradient, zeros_like
from tiga.ops.pointwise import logical_and, logical_or, where
from tiga.reducers import Bound, CustomReducer, Multi, Reducer
from tiga.trace.node import Node, rewrite
from tiga.types import Shape, bool_

MOST_MASK_LANES = 64

Place = Callable[[], str]
"""What an error says of the user's line, where the caller does not add it."""


def _nowhere() -> str:
    return ""


def require_reducer(reducer: Any, place: Place = _nowhere) -> Reducer:
    """The reducer of a kernel, if it is one."""
    if isinstance(reducer, Reducer):
        return reducer
    hint = " Call it: `reducer = tg.sum()`." if callable(reducer) else ""
    if isinstance(reducer, (tuple, list, dict)):
        hint = (
            " Several reducers of one message are `tg.multi(tg.sum(), tg.max())`; for a message "
            "each, call them in `edge`: `return tg.sum()(a), tg.max()(b)`."
        )
    raise InvalidType(
        f"`reducer` must be a tiga reducer such as tg.sum(); got {reducer!r}{place()}.{hint}"
    )


@dataclass(frozen=True)
class Addressed:
    """Messages with the one reducer that takes them, and the masks around them."""

    reducer: Reducer
    messages: tuple[Any, ...]
    keeps: tuple[Any, ...]

    def require_count(self, place: Place = _nowhere) -> None:
        """Refuse another number of messages than the reducer takes."""
        takes, count = getattr(self.reducer, "arguments", 1), len(self.messages)
        if not isinstance(self.reducer, CustomReducer) and takes != count:
            raise InvalidType(
                f"`edge` returned {count} message, but {type(self.reducer).__name__} takes "
                f"{takes}{place()}: return `self.reducer(score, value)`."
            )


def addressed(reducer: Any, sent: Any, place: Place = _nowhere) -> Any:
    """What `edge` returned, with the reducer of every message: a tree of `Addressed`.

    Raises:
        InvalidType: the reducer is none, or there is no message.
    """
    reducer = require_reducer(reducer, place)
    if isinstance(sent, Masked) and isinstance(sent.value, (dict, tuple, list)):
        keep = sent.keep
        sent = mapped(lambda value: Masked(value, keep), sent.value)
    if not leaves_of(sent):
        raise InvalidType(f"`edge` returned no message{place()}; return a tensor.")
    return mapped(lambda leaf: address(reducer, leaf), sent)


def address(reducer: Reducer, leaf: Any) -> Any:
    """What `edge` returned in one place, for each reducer that takes it."""
    leaf, keeps = _unmasked(leaf)
    bound = leaf if isinstance(leaf, Bound) else Bound(reducer, (leaf,))
    if isinstance(bound.reducer, Multi):
        parts = bound.reducer.bound(bound.messages[0])
        return mapped(lambda part: _of(part, keeps), parts)
    return _of(bound, keeps)


def _of(bound: Bound, keeps: list[Any]) -> Addressed:
    messages = [_unmasked(message) for message in bound.messages]
    inner = [keep for _, own in messages for keep in own]
    return Addressed(bound.reducer, tuple(m for m, _ in messages), (*keeps, *inner))


def _unmasked(value: Any) -> tuple[Any, list[Any]]:
    """What masks are around, and the masks."""
    keeps = []
    while isinstance(value, Masked):
        keeps.append(value.keep)
        value = value.value
    return value, keeps


def joint_mask(keeps: Sequence[Node], messages: Sequence[Node], place: Place = _nowhere) -> Node:
    """All masks as one, with axes that broadcast to the largest message."""
    shape = max((m.type.shape for m in messages), key=len)
    fitted = [_fitted(keep, shape, place) for keep in keeps]
    return reduce(lambda a, b: logical_and(*align(a, b)), fitted)


def _fitted(keep: Node, shape: Shape, place: Place) -> Node:
    if keep.type.dtype != bool_:
        raise InvalidType(f"tg.mask: `keep` must hold bools; got {keep.type.dtype}{place()}.")
    own = keep.type.shape
    if 0 < len(own) < len(shape) and own == shape[: len(own)]:
        return reshape(keep, (*own, *(1,) * (len(shape) - len(own))))
    pairs = zip(reversed(own), reversed(shape), strict=False)
    if any(a != b and 1 not in (a, b) for a, b in pairs):
        raise InvalidValue(
            f"tg.mask: `keep` has the feature axes {list(own)}, a message {list(shape)}{place()}: "
            f"give it a bool per edge, or axes that broadcast to those of the message. A tensor "
            f"that is no field has feature axes only: pass values of edges as fields."
        )
    return keep


def guard_leaves(parts: Sequence[Node], keep: Node) -> list[Node]:
    """`parts` such that no derivative reaches a leaf from an edge that does not count.

    A cotangent of zero is not enough: 0 times an infinite derivative is NaN. So each value that
    enters the edge function passes derivatives only where the edge counts.
    """
    counts = _any_lane(keep)
    if counts is None:
        return list(parts)

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


def _any_lane(keep: Node) -> Node | None:
    """Whether any feature of an edge counts; None if there are too many to ask."""
    if keep.type.size > MOST_MASK_LANES:
        return None
    flat = reshape(keep, (keep.type.size,))
    lanes = [reshape(take(flat, 0, (i,)), ()) for i in range(keep.type.size)]
    return reduce(logical_or, lanes)
