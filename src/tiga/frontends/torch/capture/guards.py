"""Guards: what a capture read, and whether it is still the same."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import CellType
from typing import Any

import numpy as np
import torch

from tiga.reducers import Reducer

MISSING = object()
"""Stands for a name that is not there."""

_BY_VALUE = (
    int, float, bool, complex, str, bytes, type(None), torch.dtype, torch.device, Enum, Reducer,
    np.generic,
)  # fmt: skip


def same(value: Any, expected: Any) -> bool:
    """Whether two immutable values are equal, NaN included; others are equal only if identical."""
    if value is expected:
        return True
    if type(value) is not type(expected) or not isinstance(value, _BY_VALUE):
        return False
    if type(value) is float and value == 0.0 == expected:
        return math.copysign(1.0, value) == math.copysign(1.0, expected)
    return bool(value == expected) or bool(value != value and expected != expected)


@dataclass(frozen=True)
class Slot:
    """A place that holds a value: an item of a dict or sequence, or the content of a cell."""

    holder: Any
    key: Any = None

    def get(self) -> Any:
        """The value now; MISSING if it is gone."""
        if type(self.holder) is CellType:
            return cell_value(self.holder)
        try:
            return self.holder[self.key]
        except (KeyError, IndexError):
            return MISSING


@dataclass(frozen=True)
class DefaultSlot:
    """The default of a positional parameter of a function."""

    holder: Any
    key: int

    def get(self) -> Any:
        """The default now; MISSING if it is gone."""
        defaults = self.holder.__defaults__ or ()
        return defaults[self.key] if self.key < len(defaults) else MISSING


@dataclass(frozen=True)
class AttributeSlot:
    """An attribute, wherever Python finds it: on the instance or on its class."""

    holder: Any
    key: str

    def get(self) -> Any:
        """The attribute now; MISSING if it is gone."""
        return getattr(self.holder, self.key, MISSING)


def cell_value(cell: CellType) -> Any:
    """The content of a closure's cell; MISSING if it is empty."""
    try:
        return cell.cell_contents
    except ValueError:
        return MISSING


Place = Slot | DefaultSlot | AttributeSlot


@dataclass
class Guards:
    """Flat lists of checks, one loop each, because they run at every call.

    `items`: mapping, key, value that must be the same. `kinds`: slot and the type of a number, or
    torch.Tensor. `cells`: closure cell and value. `attributes`: object, name, value. `sequences`:
    mutable list or dict and its items as they were. `empty`: containers that were. `arrays`:
    buffer and its bytes. `values`: place and value. `facts`: a function and what it told.
    """

    items: list[tuple[Mapping[Any, Any], Any, Any]] = field(default_factory=list)
    kinds: list[tuple[Place, type]] = field(default_factory=list)
    cells: list[tuple[CellType, Any]] = field(default_factory=list)
    attributes: list[tuple[Any, str, Any]] = field(default_factory=list)
    sequences: list[tuple[Any, tuple[Any, ...]]] = field(default_factory=list)
    empty: list[Any] = field(default_factory=list)
    arrays: list[tuple[Any, bytes]] = field(default_factory=list)
    values: list[tuple[Place, Any]] = field(default_factory=list)
    facts: list[tuple[Callable[[], Any], Any]] = field(default_factory=list)

    def fact(self, tell: Callable[[], Any]) -> None:
        """Ask that a function tells what it tells now."""
        self.facts.append((tell, tell()))

    def hold(self) -> bool:
        """Whether everything read at capture is as it was."""
        for mapping, key, expected in self.items:
            value = mapping.get(key, MISSING)
            if value is not expected and not same(value, expected):
                return False
        for slot, kind in self.kinds:
            if not _is_kind(slot.get(), kind):
                return False
        return not any(self.empty) and self._rest_holds() and self._told_again()

    def _told_again(self) -> bool:
        return all(tell() == told for tell, told in self.facts)

    def _rest_holds(self) -> bool:
        for cell, expected in self.cells:
            value = cell_value(cell)
            if value is not expected and not same(value, expected):
                return False
        for owner, name, expected in self.attributes:
            value = getattr(owner, name, MISSING)
            if value is not expected and not same(value, expected):
                return False
        for sequence, expected in self.sequences:
            if not _same_items(items_of(sequence), expected):
                return False
        for slot, expected in self.values:
            if not same(slot.get(), expected):
                return False
        return all(bytes_of(array) == data for array, data in self.arrays)

    def changed(self) -> str:
        """What differs now, for `explain`; empty if nothing does."""
        for mapping, key, expected in self.items:
            if not same(mapping.get(key, MISSING), expected):
                return str(key)
        for slot, kind in self.kinds:
            if not _is_kind(slot.get(), kind):
                return str(getattr(slot, "key", ""))
        return (
            ""
            if self._rest_holds() and self._told_again() and not any(self.empty)
            else "a closure, attribute or container"
        )


def _is_kind(value: Any, kind: type) -> bool:
    return isinstance(value, torch.Tensor) if kind is torch.Tensor else type(value) is kind


def bytes_of(buffer: Any) -> bytes:
    """The bytes of an array or another buffer."""
    return buffer.tobytes() if hasattr(buffer, "tobytes") else bytes(buffer)


def metadata(place: Place) -> Any:
    """All of a tensor but its data; the type of anything else."""
    value = place.get()
    if not isinstance(value, torch.Tensor):
        return type(value)
    return value.dtype, value.shape, value.stride(), value.requires_grad, value.device


def items_of(container: Any) -> tuple[Any, ...]:
    """The items of a mutable container, flat: keys and values of a dict."""
    if isinstance(container, Mapping):
        return (*container.keys(), *container.values())
    return tuple(container)


def _same_items(items: tuple[Any, ...], expected: tuple[Any, ...]) -> bool:
    return len(items) == len(expected) and all(map(_same_item, items, expected))


def _same_item(value: Any, expected: Any) -> bool:
    # A tensor may be exchanged for another: it is fetched anew at every call.
    if isinstance(expected, torch.Tensor):
        return isinstance(value, torch.Tensor)
    return same(value, expected)
