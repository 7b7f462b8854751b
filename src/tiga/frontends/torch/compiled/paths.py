"""How a place that `edge` or `node` reads is reached from the kernel.

torch's compiler guards what traced code reads. A trace of ours finds places in dicts and cells; a
path names the same place in steps that traced code can follow, so that the compiler sees the
tensor or number as an input of its own graph.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from types import FunctionType, MethodType, ModuleType
from typing import Any

import torch

from tiga.frontends.torch.capture.guards import AttributeSlot, DefaultSlot, Place
from tiga.frontends.torch.capture.reading import is_library

Step = tuple[str, Any]
Path = tuple[Step, ...]


def follow(kernel: Any, path: Path) -> Any:
    """The value at the end of a path; plain enough for torch's compiler to trace."""
    value = kernel
    for kind, key in path:
        if kind == "attribute":
            value = getattr(value, key)
        elif kind == "item":
            value = value[key]
        elif kind == "global":
            value = value.__globals__[key]
        elif kind == "cell":
            value = value.__closure__[key].cell_contents
        elif kind == "default":
            value = value.__defaults__[key]
    return value


def _of_function(function: FunctionType) -> Iterator[tuple[Step, Any]]:
    for i, cell in enumerate(function.__closure__ or ()):
        try:
            yield ("cell", i), cell.cell_contents
        except ValueError:
            continue
    names = set(function.__code__.co_names)
    for constant in function.__code__.co_consts:
        names |= set(getattr(constant, "co_names", ()))
    for name in sorted(names & function.__globals__.keys()):
        yield ("global", name), function.__globals__[name]


def _of_object(value: Any) -> Iterator[tuple[Step, Any]]:
    if isinstance(value, torch.nn.Module):
        for name, child in value._modules.items():
            yield ("attribute", name), child
    attributes = dict(getattr(value, "__dict__", {}))
    for cls in () if isinstance(value, ModuleType) else type(value).__mro__:
        if not is_library(cls):
            attributes = {**vars(cls), **attributes}
    for name, child in attributes.items():
        if name.startswith("__") or name in ("_parameters", "_buffers", "_modules"):
            continue
        if isinstance(child, FunctionType):
            child = getattr(value, name)
        yield ("attribute", name), child


def _children(value: Any) -> Iterator[tuple[Step, Any]]:
    """What one step leads to."""
    if isinstance(value, MethodType):
        yield ("attribute", "__func__"), value.__func__
    elif isinstance(value, FunctionType):
        yield from () if is_library(value) else _of_function(value)
    elif isinstance(value, Mapping):
        yield from ((("item", key), child) for key, child in value.items())
    elif isinstance(value, (list, tuple)):
        yield from ((("item", i), child) for i, child in enumerate(value))
    elif isinstance(value, type):
        return
    elif isinstance(value, torch.nn.Module) or not is_library(type(value)):
        yield from _of_object(value)


def _ends(value: Any, path: Path) -> Iterator[tuple[Any, Path]]:
    """Holders of places that lie at a value, by identity, with the path to it; see `_last`."""
    if isinstance(value, FunctionType):
        yield id(value.__globals__), path
        for i, cell in enumerate(value.__closure__ or ()):
            yield id(cell), (*path, ("cell", i))
    elif isinstance(value, torch.nn.Module):
        for table in (value._parameters, value._buffers, value._modules):
            yield id(table), path
    yield id(getattr(value, "__dict__", value)), path
    yield id(value), path


def _last(place: Place, value: Any) -> Path:
    """The step from the value that holds a place to its content."""
    if isinstance(place, AttributeSlot):
        return (("attribute", place.key),)
    if isinstance(place, DefaultSlot):
        return (("default", place.key),)
    if place.key is None:
        return ()
    if isinstance(value, FunctionType):
        return (("global", place.key),)
    return (("item" if value is place.holder else "attribute", place.key),)


def paths(kernel: Any, places: list[Place]) -> list[Path | None]:
    """The path from the kernel to each place; None where none was found."""
    wanted: dict[int, list[int]] = {}
    tensors: dict[int, list[int]] = {}
    for i, place in enumerate(places):
        wanted.setdefault(id(place.holder), []).append(i)
        tensors.setdefault(id(place.get()), []).append(i)
    found: dict[int, Path] = {}
    queue: deque[tuple[Any, Path]] = deque([(kernel, ())])
    seen: set[int] = set()
    while queue and len(found) < len(places):
        value, path = queue.popleft()
        if id(value) in seen and not isinstance(value, MethodType):
            continue
        seen.add(id(value))
        for holder, there in _ends(value, path):
            for i in wanted.get(holder, ()):
                found.setdefault(i, (*there, *_last(places[i], value)))
        if isinstance(value, torch.Tensor):
            for i in tensors.get(id(value), ()):
                found.setdefault(i, path)
            continue
        children = _of_object(value) if value is kernel else _children(value)
        queue.extend((child, (*path, step)) for step, child in children)
    return [found.get(i) for i in range(len(places))]
