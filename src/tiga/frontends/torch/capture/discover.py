"""Find what `edge` and `node` can read: from their code to globals, closures, attributes, modules.

The walk follows names that the code mentions. It fills guards, and the tables of the tensors and
numbers it meets, each with the place from which every later call fetches it again.
"""

import array
import ctypes
import functools
import inspect
import os
import threading
import weakref
from collections import ChainMap, UserDict, UserList, deque
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import (
    BuiltinFunctionType,
    CellType,
    FunctionType,
    MappingProxyType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
)
from typing import Any

import numpy as np
import torch

from tiga.frontends.torch.capture.guards import (
    MISSING,
    AttributeSlot,
    DefaultSlot,
    Guards,
    Place,
    Slot,
    bytes_of,
    cell_value,
    items_of,
)
from tiga.frontends.torch.capture.module_state import visit_module
from tiga.frontends.torch.capture.namespaces import had, instance_names, namespaces_of
from tiga.frontends.torch.capture.numbers import is_plain_number
from tiga.frontends.torch.capture.opaque import (
    GENERATORS,
    hidden_names,
    is_iterator,
    names_of,
    reached,
    unrepeatable,
)
from tiga.frontends.torch.capture.reading import implicit_methods, imported, is_library, mentions
from tiga.reducers import CustomReducer, Multi, Reducer

PlaceKey = tuple[int, Any]

_CONTAINERS = (
    dict, list, tuple, set, frozenset, deque, MappingProxyType, ChainMap, UserDict, UserList
)  # fmt: skip
_BUFFERS = (
    np.ndarray, array.array, bytearray, memoryview, ctypes._SimpleCData, ctypes.Array,
    ctypes.Structure, ctypes.Union,
)  # fmt: skip
_ATOMS = (str, bytes, bool, int, float, complex, type(None), torch.dtype, torch.device, np.generic)


def place_key(place: Place) -> PlaceKey:
    """What tells one place from another."""
    return id(place.holder), place.key


_REFLECTION = frozenset({"getattr", "vars", "__dict__", "attrgetter"})
"""What reads attributes that no name in the code may tell of."""

_LOOKS_UP_NAMES = frozenset({"eval", "exec", "globals"})
"""What reads globals whose names are strings in the code."""

_NAMESPACES = frozenset({"types", "argparse"})
"""Modules of Python's whose objects hold nothing but what users put there."""

_ENVIRONMENT = frozenset({"environ", "getenv"})


@dataclass
class Discovery:
    """The state of one walk, and its result.

    `numbers` are the labels and places of numbers that become operands, by `place_key`; `tensors`
    maps the identity of a tensor to its label and place.
    """

    guards: Guards = field(default_factory=Guards)
    numbers: dict[PlaceKey, tuple[str, Place]] = field(default_factory=dict)
    tensors: dict[int, tuple[str, Place]] = field(default_factory=dict)
    keep: list[Any] = field(default_factory=list)
    names: set[str] = field(default_factory=set)
    seen: set[tuple[int, bool]] = field(default_factory=set)
    pending: list[tuple[Any, str]] = field(default_factory=list)
    attributes: set[tuple[int, str]] = field(default_factory=set)
    iterators: list[str] = field(default_factory=list)
    clocks: list[Any] = field(default_factory=list)
    generators: list[Any] = field(default_factory=list)
    asks_for_grad_mode: bool = False

    def first_time(self, value: Any, operand: bool = False) -> bool:
        """Whether a value is met for the first time; it is kept alive for its identity's sake."""
        key = (id(value), operand)
        if key in self.seen:
            return False
        self.seen.add(key)
        self.keep.append(value)
        return True

    def settle(self) -> None:
        """Look up newly mentioned names on the objects met before, until nothing is new."""
        before = -1
        while before != len(self.names) + len(self.pending):
            before = len(self.names) + len(self.pending)
            reflects = self.names & _REFLECTION
            for owner, label in list(self.pending):
                own = instance_names(owner) if reflects else ()
                hidden = hidden_names(owner, self.names)
                for name in sorted(had(owner, self.names.union(own, hidden))):
                    self.attribute(owner, name, label)
        if self.names & _ENVIRONMENT and self.first_time(os.environ):
            self.guards.fact(lambda: dict(os.environ))

    # places

    def slot(self, slot: Place, label: str, operand: bool) -> None:
        """A place found: a number or tensor becomes an input, anything else is guarded."""
        value = slot.get()
        if operand and is_plain_number(value):
            self.numbers.setdefault(place_key(slot), (label, slot))
            self.guards.kinds.append((slot, type(value)))
        elif isinstance(value, torch.Tensor):
            self.tensor(slot, value, label)
            self.guards.kinds.append((slot, torch.Tensor))
        else:
            self._guard(slot, value)
            self.value(value, label, operand)

    def tensor(self, slot: Place, value: torch.Tensor, label: str) -> None:
        """A tensor found: calls fetch it from its first place, the others must hold the same."""
        _, first = self.tensors.setdefault(id(value), (label, slot))
        if place_key(first) != place_key(slot):
            self.guards.fact(lambda: first.get() is slot.get())
        elif self.first_time(value) and vars(value):
            self.pending.append((value, label))
        self.keep.append(value)

    def _guard(self, slot: Place, value: Any) -> None:
        if isinstance(slot, Slot) and isinstance(slot.holder, Mapping):
            self.guards.items.append((slot.holder, slot.key, value))
        elif isinstance(slot, Slot) and type(slot.holder) is CellType:
            self.guards.cells.append((slot.holder, value))
        elif isinstance(slot, DefaultSlot):
            self.guards.values.append((slot, value))

    # values

    def value(self, value: Any, label: str, operand: bool = False) -> None:
        """Guard what can be read through a value."""
        if value is MISSING or isinstance(value, _ATOMS):
            return
        for kinds, visit in _VISITS:
            if isinstance(value, kinds):
                visit(self, value, label, operand)
                return
        if is_iterator(value):
            self.iterators.append(label)
            return
        self.names |= names_of(value)
        self.object(value, label)

    def function(self, function: FunctionType, label: str, operand: bool) -> None:
        if not self.first_time(function, operand):
            return
        if is_library(function):
            self.library_function(function, label)
            return
        self.guards.attributes.append((function, "__code__", function.__code__))
        if vars(function):
            self.pending.append((function, label))
            self.value(vars(function).get("registry"), label)  # of functools.singledispatch
        for found in reached(function):
            self.value(found, label)
        self._globals(function, operand)
        free = function.__code__.co_freevars
        for name, cell in zip(free, function.__closure__ or (), strict=True):
            if name != "__class__":
                self.slot(Slot(cell), f"{label}.{name}", operand)
        parameters = function.__code__.co_varnames[: function.__code__.co_argcount]
        defaults = function.__defaults__ or ()
        for i, name in enumerate(parameters[len(parameters) - len(defaults) :]):
            self.slot(DefaultSlot(function, i), f"{label}.{name}", operand)
        for name in function.__kwdefaults__ or {}:
            self.slot(Slot(function.__kwdefaults__, name), f"{label}.{name}", operand)

    def _globals(self, function: FunctionType, operand: bool) -> None:
        reads, names, *_ = mentions(function.__code__)
        self.names |= names
        for module in imported(function):
            self.value(module, module.__name__)
        for name in sorted(reads | names if reads & _LOOKS_UP_NAMES else reads):
            if name in function.__globals__:
                self.slot(Slot(function.__globals__, name), name, operand and name in reads)
            elif name in reads:
                self.guards.items.append((function.__globals__, name, MISSING))

    def library_function(self, function: FunctionType, label: str) -> None:
        """The functions that one of a library was made for, as by `torch.vmap`."""
        self.clock(function)
        for cell in function.__closure__ or ():
            value = cell_value(cell)
            if isinstance(value, (FunctionType, MethodType, functools.partial, torch.nn.Module)):
                self.value(value, label)

    def builtin(self, function: Any, label: str, operand: bool) -> None:
        """A function in C, which may be a method of what is to be looked into."""
        if function is torch.is_grad_enabled:
            self.asks_for_grad_mode = True
            self.guards.fact(torch.is_grad_enabled)
        owner = function.__self__
        if not self.clock(function) and not isinstance(owner, (ModuleType, type)):
            self.value(owner, label)

    def clock(self, function: Any) -> bool:
        """Whether a function gives something else whenever it is called."""
        if unrepeatable(function) is None:
            return False
        self.clocks.append(function)
        return True

    def generator(self, value: Any, label: str, operand: bool) -> None:
        """A generator of random numbers, whose state tells whether it was drawn from."""
        if self.first_time(value):
            self.generators.append(value)

    def method(self, method: MethodType, label: str, operand: bool) -> None:
        self.value(method.__func__, label, operand)
        self.value(method.__self__, f"{label}.self")

    def partial(self, value: Any, label: str, operand: bool) -> None:
        self.value(value.func, label)
        self.value(value.args, label)
        self.value(value.keywords, label)

    def container(self, value: Any, label: str, operand: bool) -> None:
        if not self.first_time(value):
            return
        if not is_library(type(value)):
            self._holder(value, label)
        if isinstance(value, (dict, list, set)) and not value:
            self.guards.empty.append(value)
        elif not isinstance(value, (tuple, frozenset)):
            self.guards.sequences.append((value, items_of(value)))
        keys = value.keys() if isinstance(value, Mapping) else range(len(value))
        if isinstance(value, (set, frozenset)):
            return
        for key in keys:
            item = value[key]
            place = f"{label}[{key!r}]"
            if isinstance(item, torch.Tensor):
                self.slot(Slot(value, key), place, False)
            else:
                self.value(item, place)

    def reducer(self, value: Reducer, label: str, operand: bool) -> None:
        """The methods of a reducer that a user wrote, and of those in a `multi`."""
        if isinstance(value, Multi):
            parts = value.parts.values() if isinstance(value.parts, dict) else value.parts
            for part in parts:
                self.value(part, label)
        if not isinstance(value, CustomReducer) or not self.first_time(value):
            return
        for name in ("identity", "lift", "combine", "finalize"):
            self.attribute(value, name, label, required=True)
        self.pending.append((value, label))

    def buffer(self, value: Any, label: str, operand: bool) -> None:
        if not self.first_time(value):
            return
        self.guards.arrays.append((value, bytes_of(value)))
        if isinstance(value, np.ndarray) and value.dtype.hasobject:
            for item in value.flat:
                self.value(item, label)

    def reference(self, value: "weakref.ref[Any]", label: str, operand: bool) -> None:
        self.value(value(), label)

    def variable(self, value: ContextVar[Any], label: str, operand: bool) -> None:
        if self.first_time(value):
            self.guards.fact(lambda: value.get(MISSING))
            self.value(value.get(MISSING), label)

    def namespace(self, value: Any, label: str, operand: bool) -> None:
        """A user's module or class: the attributes that code mentions."""
        if not is_library(value) and self.first_time(value):
            self.pending.append((value, label))

    def object(self, value: Any, label: str) -> None:
        """Any other object: the attributes that code mentions, and how it is called."""
        if is_library(type(value)) and not hasattr(value, "__dict__"):
            return
        if self.first_time(value):
            self._holder(value, label)

    def _holder(self, value: Any, label: str) -> None:
        self.pending.append((value, label))
        own = getattr(value, "__dict__", None)
        if own is not None:
            self.value(own.get("__wrapped__"), label)
        if is_library(type(value)) and type(value).__module__ not in _NAMESPACES:
            return
        self.guards.attributes.append((value, "__class__", type(value)))
        if own is not None and not isinstance(value, threading.local):
            self.guards.fact(functools.partial(tuple, own))  # an attribute may be asked for
        for cls in type(value).__mro__:
            for name in () if is_library(cls) else implicit_methods(cls):
                self.attribute(cls, name, label)

    # attributes

    def attribute(
        self, owner: Any, name: str, label: str, operand: bool = False, required: bool = False
    ) -> None:
        """One attribute of an object, wherever Python finds it; `required` guards its absence."""
        if (id(owner), name) in self.attributes:
            return
        place = f"{label}.{name}"
        if isinstance(owner, threading.local):  # each thread has a dict of its own
            self._slotted(owner, name, place)
            return
        shadows: list[Mapping[str, Any]] = []
        for mapping in namespaces_of(owner, name):
            if name in mapping:
                self.attributes.add((id(owner), name))
                if isinstance(mapping[name], MemberDescriptorType) and not isinstance(owner, type):
                    self._slotted(owner, name, place)
                    return
                if operand and is_plain_number(mapping[name]):
                    self.slot(AttributeSlot(owner, name), place, operand)
                    return
                self.guards.items += [(m, name, MISSING) for m in shadows]
                self._found(Slot(mapping, name), place, operand)
                return
            shadows.append(mapping)
        if required:
            self.guards.items += [(m, name, MISSING) for m in shadows]
        found = inspect.getattr_static(type(owner), name, None)
        if isinstance(found, MemberDescriptorType) and not isinstance(owner, type):
            self._slotted(owner, name, place)

    def _found(self, slot: Slot, place: str, operand: bool) -> None:
        self.slot(slot, place, operand)
        found = slot.get()
        if isinstance(found, property):
            self.value(found.fget, place)
        if isinstance(found, (staticmethod, classmethod)):
            self.value(found.__func__, place)

    def _slotted(self, owner: Any, name: str, place: str) -> None:
        value = getattr(owner, name, MISSING)
        if isinstance(value, torch.Tensor):
            self.slot(AttributeSlot(owner, name), place, False)
        elif value is not MISSING:
            self.guards.attributes.append((owner, name, value))
            self.value(value, place)


_VISITS: tuple[tuple[Any, Any], ...] = (
    (FunctionType, Discovery.function),
    (MethodType, Discovery.method),
    (BuiltinFunctionType, Discovery.builtin),
    (GENERATORS, Discovery.generator),
    (functools.partial, Discovery.partial),
    (torch.nn.Module, visit_module),
    (Reducer, Discovery.reducer),
    ((ModuleType, type), Discovery.namespace),
    (_CONTAINERS, Discovery.container),
    (_BUFFERS, Discovery.buffer),
    (weakref.ref, Discovery.reference),
    (ContextVar, Discovery.variable),
)
