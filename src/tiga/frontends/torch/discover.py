"""Find what `edge` and `node` can read: from their code to globals, closures, attributes, modules.

The walk follows names that the code mentions. It fills guards, and the tables of the tensors and
numbers it meets, each with the place from which every later call fetches it again.
"""

import dis
import functools
import inspect
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch

from tiga.frontends.torch.guards import (
    MISSING,
    AttributeSlot,
    DefaultSlot,
    Guards,
    Place,
    Slot,
    items_of,
)
from tiga.frontends.torch.numbers import is_plain_number
from tiga.reducers import CustomReducer, Multi, Reducer

PlaceKey = tuple[int, Any]

_PROGRAMS = "tiga._cli"
"""The demonstration's kernels are written as a user's are, and may change as theirs may."""

_LIBRARIES = frozenset(
    {"torch", "numpy", "tiga", "scipy", "ml_dtypes", "torch_mlir"} | set(sys.stdlib_module_names)
) - {"__main__"}
# Parts of a module's dict that have no say in its forward pass.
_IGNORED = frozenset(
    [
        "_non_persistent_buffers_set", "_is_full_backward_hook", "_state_dict_hooks",
        "_state_dict_pre_hooks", "_load_state_dict_pre_hooks", "_load_state_dict_post_hooks",
        "_forward_hooks_with_kwargs", "_forward_hooks_always_called",
        "_forward_pre_hooks_with_kwargs",
    ]
)  # fmt: skip
_READS_GLOBAL = ("LOAD_GLOBAL", "LOAD_NAME")
_ATOMS = (str, bytes, bool, int, float, complex, type(None), torch.dtype, torch.device, np.generic)


def is_library(value: Any) -> bool:
    """Whether a function, class or module belongs to Python, torch or numpy, and is trusted."""
    name = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
    name = name or "builtins"
    return name.partition(".")[0] in _LIBRARIES and not name.startswith(_PROGRAMS)


def place_key(place: Place) -> PlaceKey:
    """What tells one place from another."""
    return id(place.holder), place.key


@functools.lru_cache(maxsize=1024)
def names_in(code: CodeType) -> tuple[frozenset[str], frozenset[str]]:
    """Global names that code reads, and all names and strings that may name an attribute."""
    reads = {i.argval for i in dis.get_instructions(code) if i.opname in _READS_GLOBAL}
    mentioned = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            inner_reads, inner = names_in(constant)
            reads |= inner_reads
            mentioned |= inner
        elif isinstance(constant, str) and constant.isidentifier():
            mentioned.add(constant)
    return frozenset(reads), frozenset(mentioned)


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
            for owner, label in list(self.pending):
                for name in sorted(self.names):
                    self.attribute(owner, name, label)

    # places

    def slot(self, slot: Place, label: str, operand: bool) -> None:
        """A place found: a number or tensor becomes an input, anything else is guarded."""
        value = slot.get()
        if operand and is_plain_number(value):
            self.numbers.setdefault(place_key(slot), (label, slot))
            self.guards.kinds.append((slot, type(value)))
        elif isinstance(value, torch.Tensor):
            self.tensors.setdefault(id(value), (label, slot))
            self.keep.append(value)
            self.guards.kinds.append((slot, torch.Tensor))
        else:
            self._guard(slot, value)
            self.value(value, label, operand)

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
        self.object(value, label)

    def function(self, function: FunctionType, label: str, operand: bool) -> None:
        if is_library(function) or not self.first_time(function, operand):
            return
        self.guards.attributes.append((function, "__code__", function.__code__))
        reads, mentioned = names_in(function.__code__)
        self.names |= mentioned
        for name in sorted(reads):
            if name in function.__globals__:
                self.slot(Slot(function.__globals__, name), name, operand)
            else:
                self.guards.items.append((function.__globals__, name, MISSING))
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
        if isinstance(value, (dict, list, set)) and not value:
            self.guards.empty.append(value)
        elif not isinstance(value, (tuple, frozenset)):
            self.guards.sequences.append((value, items_of(value)))
        keys = value.keys() if isinstance(value, dict) else range(len(value))
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

    def array(self, value: np.ndarray, label: str, operand: bool) -> None:
        if self.first_time(value):
            self.guards.arrays.append((value, value.tobytes()))

    def namespace(self, value: Any, label: str, operand: bool) -> None:
        """A user's module or class: the attributes that code mentions."""
        if not is_library(value) and self.first_time(value):
            self.pending.append((value, label))

    def object(self, value: Any, label: str) -> None:
        """Any other object: the attributes that code mentions, and how it is called."""
        if is_library(type(value)) and not hasattr(value, "__dict__"):
            return
        if not self.first_time(value):
            return
        self.pending.append((value, label))
        call = inspect.getattr_static(type(value), "__call__", None)
        if isinstance(call, FunctionType):
            self.function(call, f"{label}.__call__", False)

    # attributes

    def attribute(
        self, owner: Any, name: str, label: str, operand: bool = False, required: bool = False
    ) -> None:
        """One attribute of an object, wherever Python finds it; `required` guards its absence."""
        if (id(owner), name) in self.attributes:
            return
        place = f"{label}.{name}"
        shadows: list[Mapping[str, Any]] = []
        for mapping in _namespaces(owner, name):
            if name in mapping:
                self.attributes.add((id(owner), name))
                if operand and is_plain_number(mapping[name]):
                    self.slot(AttributeSlot(owner, name), place, operand)
                    return
                self.guards.items += [(m, name, MISSING) for m in shadows]
                self._found(Slot(mapping, name), place, operand)
                return
            shadows.append(mapping)
        if required:
            self.guards.items += [(m, name, MISSING) for m in shadows]
        if hasattr(type(owner), "__slots__"):
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
        if value is not MISSING:
            self.guards.attributes.append((owner, name, value))
            self.value(value, place)

    # torch modules

    def module(self, module: torch.nn.Module, label: str, operand: bool = False) -> None:
        """The whole state of a module: parameters, buffers, flags, hooks, submodules."""
        if not self.first_time(module):
            return
        self.guards.attributes.append((module, "__class__", type(module)))
        self.value(type(module).forward, f"{label}.forward")
        state = vars(module)
        if "forward" not in state:
            self.guards.items.append((state, "forward", MISSING))
        for name, value in state.items():
            if name in ("_parameters", "_buffers", "_modules"):
                self.table(value, label)
            elif name not in _IGNORED and not name.startswith("_tiga"):
                self.state(state, name, value, f"{label}.{name}")
        self.pending.append((module, label))

    def state(self, state: dict[str, Any], name: str, value: Any, label: str) -> None:
        """One entry of a module's own dict; most are hook tables, and empty."""
        if name.startswith("_") and isinstance(value, dict) and not value:
            self.guards.empty.append(value)
        else:
            self.slot(Slot(state, name), label, False)

    def table(self, table: dict[str, Any], label: str) -> None:
        """Parameters, buffers or submodules, whichever names there are."""
        if not table:
            self.guards.empty.append(table)
            return
        self.guards.sequences.append((table, items_of(table)))
        for name, value in table.items():
            place = f"{label}.{name}"
            if isinstance(value, torch.Tensor):
                self.tensors.setdefault(id(value), (place, Slot(table, name)))
                self.keep.append(value)
            elif value is not None:
                self.value(value, place)


def _namespaces(owner: Any, name: str) -> Iterator[Mapping[str, Any]]:
    """Where Python looks for an attribute of an object, in order."""
    instance: dict[str, Any] | None = getattr(owner, "__dict__", None)
    if isinstance(owner, type):
        yield from (vars(c) for c in owner.__mro__ if not is_library(c))
        return
    if instance is not None:
        yield instance
    yield from (vars(c) for c in type(owner).__mro__ if not is_library(c))
    if isinstance(owner, torch.nn.Module):
        for table in ("_parameters", "_buffers", "_modules"):
            if name in vars(owner)[table]:
                yield vars(owner)[table]


_VISITS: tuple[tuple[Any, Any], ...] = (
    (FunctionType, Discovery.function),
    (MethodType, Discovery.method),
    (BuiltinFunctionType, lambda *_: None),
    (functools.partial, Discovery.partial),
    (torch.nn.Module, Discovery.module),
    (Reducer, Discovery.reducer),
    ((ModuleType, type), Discovery.namespace),
    ((dict, list, tuple, set, frozenset), Discovery.container),
    (np.ndarray, Discovery.array),
)
