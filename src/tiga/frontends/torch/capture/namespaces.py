"""Where Python finds the attributes of an object, as far as they are a user's."""

import itertools
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any

import torch

from tiga.frontends.torch.capture.reading import is_library

TABLES = ("_parameters", "_buffers", "_modules")
"""Where a torch module keeps what is no plain attribute."""


def namespaces_of(owner: Any, name: str) -> Iterator[Mapping[str, Any]]:
    """Where Python looks for an attribute of an object, in order."""
    yield from _mappings(owner)
    if isinstance(owner, torch.nn.Module) and not isinstance(owner, type):
        yield from (vars(owner)[t] for t in TABLES if name in vars(owner)[t])


def _mappings(owner: Any) -> Iterator[Mapping[str, Any]]:
    """The same for every attribute, without the tables of a module."""
    instance: dict[str, Any] | None = getattr(owner, "__dict__", None)
    if isinstance(owner, type):
        classes: list[type] = [*owner.__mro__, *type.mro(type(owner))]
        yield from (vars(c) for c in classes if not is_library(c))
        return
    if instance is not None:
        yield instance
    yield from (vars(c) for c in type(owner).__mro__ if not is_library(c))


def had(owner: Any, names: set[str]) -> set[str]:
    """Those of the names, which are many, that an object may have attributes of."""
    if hasattr(type(owner), "__slots__"):
        return names
    state = getattr(owner, "__dict__", {})
    tables = [state.get(t, ()) for t in TABLES] if isinstance(owner, torch.nn.Module) else []
    return names.intersection(itertools.chain(*_mappings(owner), *tables))


def instance_names(owner: Any) -> set[str]:
    """The attributes of an object of a user's class."""
    if isinstance(owner, (type, ModuleType)) or is_library(type(owner)):
        return set()
    return {name for name in getattr(owner, "__dict__", ()) if isinstance(name, str)}
