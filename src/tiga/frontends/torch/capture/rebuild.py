"""Copies of user functions in which numbers are operands, so that arithmetic with them is seen."""

from collections.abc import Callable
from dataclasses import dataclass, field
from types import CellType, FunctionType
from typing import Any

from tiga.frontends.torch.capture.guards import MISSING, DefaultSlot, Place, Slot, cell_value
from tiga.frontends.torch.capture.reading import is_library, mentions

Replace = Callable[[Place, Any], Any]
"""From the place and value of a number to what stands for it; any other value stays itself."""


@dataclass
class Rebuilder:
    """Copies functions with their globals, closures and defaults; originals stay untouched."""

    replace: Replace
    functions: dict[int, FunctionType] = field(default_factory=dict)
    globals: dict[int, dict[str, Any]] = field(default_factory=dict)
    keep: list[Any] = field(default_factory=list)
    filled: list[tuple[str, Slot, Any]] = field(default_factory=list)
    """Names of functions' variables, where a copy has them, and what was put there."""

    def written(self) -> str | None:
        """A global, or a variable of an enclosing function, that a copy has assigned."""
        names = (name for name, place, value in self.filled if place.get() is not value)
        return next(names, None)

    def function(self, function: FunctionType) -> FunctionType:
        """The copy of a function; library functions are returned as they are."""
        if is_library(function):
            return function
        found = self.functions.get(id(function))
        if found is not None:
            return found
        self.keep.append(function)
        cells = tuple(CellType() for _ in function.__closure__ or ())
        copy = FunctionType(
            function.__code__,
            self._globals(function),
            function.__name__,
            self._defaults(function),
            cells or None,
        )
        copy.__kwdefaults__ = {
            name: self._value(Slot(function.__kwdefaults__, name), value)
            for name, value in (function.__kwdefaults__ or {}).items()
        } or None
        copy.__dict__.update(function.__dict__)
        copy.__qualname__, copy.__module__ = function.__qualname__, function.__module__
        self.functions[id(function)] = copy
        self._fill(function, cells)
        self._fill_globals(function)
        return copy

    def _value(self, place: Place, value: Any) -> Any:
        if isinstance(value, FunctionType):
            return self.function(value)
        return self.replace(place, value)

    def _fill(self, function: FunctionType, cells: tuple[CellType, ...]) -> None:
        names = function.__code__.co_freevars
        for name, own, cell in zip(names, function.__closure__ or (), cells, strict=True):
            value = cell_value(own)
            if value is not MISSING:
                cell.cell_contents = value = self._value(Slot(own), value)
                self.filled.append((name, Slot(cell), value))

    def _defaults(self, function: FunctionType) -> tuple[Any, ...] | None:
        defaults = function.__defaults__
        if defaults is None:
            return None
        places = (DefaultSlot(function, i) for i in range(len(defaults)))
        return tuple(self._value(p, v) for p, v in zip(places, defaults, strict=True))

    def _globals(self, function: FunctionType) -> dict[str, Any]:
        own = function.__globals__
        if id(own) not in self.globals:
            self.keep.append(own)
            self.globals[id(own)] = dict(own)
        return self.globals[id(own)]

    def _fill_globals(self, function: FunctionType) -> None:
        own, copy = function.__globals__, self._globals(function)
        for name in mentions(function.__code__).reads:
            if name in own:
                copy[name] = self._value(Slot(own, name), own[name])
                self.filled.append((name, Slot(copy, name), copy[name]))
