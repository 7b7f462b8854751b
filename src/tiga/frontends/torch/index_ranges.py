"""Integer fields by which tables are indexed, checked before anything runs."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.weak import WeakIdKeyDictionary

from tiga.errors import InvalidIndex
from tiga.trace.node import Node
from tiga.trace.origin import Origin


@dataclass(frozen=True)
class IndexRange:
    """The least and largest value that a field or tensor may hold, and where it indexes."""

    source: Any
    low: int
    high: int
    where: str


def bounds_of(
    asked: list[tuple[Node, int, int, str]], inputs: Mapping[Node, Any]
) -> tuple[IndexRange, ...]:
    """The bounds of indices that are inputs themselves, read at an end or of another dtype.

    Computed indices cannot be checked before a kernel runs: out of range, they give rows of NaN.
    """
    found: dict[IndexRange, None] = {}
    for index, low, high, where in asked:
        while _only_moves(index):
            (index,) = index.inputs
        if index in inputs:
            found[IndexRange(inputs[index], low, high, where)] = None
    return tuple(found)


def _only_moves(index: Node) -> bool:
    """Whether a value is another of the same numbers, in another place, shape or type."""
    moved = index.op.origin in (Origin.END, Origin.GLOBAL)
    return moved or index.op.renames or index.op.converts


class Checked:
    """Which tensors are known to lie within bounds, until they are written to."""

    def __init__(self) -> None:
        self.known: Any = WeakIdKeyDictionary()

    def require(self, bound: IndexRange, tensor: torch.Tensor, name: str) -> None:
        """Refuse a tensor with a value out of bounds.

        Raises:
            InvalidIndex: naming the first such value, its position and the range.
        """
        version = 0 if tensor.is_inference() else tensor._version
        state = (version, bound.low, bound.high)
        if not tensor.is_inference() and self.known.get(tensor) == state:
            return
        if tensor.numel():
            least, largest = map(int, torch.aminmax(tensor))
            if least < bound.low or largest > bound.high:
                raise InvalidIndex(_message(bound, tensor, name))
        self.known[tensor] = state


def _message(bound: IndexRange, tensor: torch.Tensor, name: str) -> str:
    outside = (tensor < bound.low) | (tensor > bound.high)
    position = tuple(outside.nonzero()[0].tolist())
    shown = position[0] if len(position) == 1 else list(position)
    return (
        f"{bound.where}: `{name}` indexes a table, but position {shown} has value "
        f"{tensor[position].item()}, allowed range {bound.low}..{bound.high}."
    )
