"""Parameters of a call. What is in lists, tuples and dicts of them counts as parameters, too."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class ParamSource:
    """A parameter of the call, or what is in one at a path of keys."""

    name: str
    path: tuple[Any, ...] = ()

    def of(self, params: Mapping[str, Any]) -> Any:
        """The value among the parameters of a call."""
        return item_at(params[self.name], self.path)

    def item(self, key: Any) -> "ParamSource":
        """What is in it at a key."""
        return ParamSource(self.name, (*self.path, key))

    @property
    def label(self) -> str:
        """What a user calls it."""
        return self.name + "".join(f"[{key!r}]" for key in self.path)


def item_at(value: Any, path: tuple[Any, ...]) -> Any:
    """What is in a value at a path of keys."""
    for key in path:
        value = value[key]
    return value


def is_tree(value: Any) -> bool:
    """Whether a value counts by what is in it: a list, tuple or dict, but none of a user's."""
    kind = type(value)
    return kind in (list, tuple, dict) or (issubclass(kind, tuple) and hasattr(kind, "_fields"))


def keys_of(tree: Any) -> Iterable[Any]:
    """The keys of a list, tuple or dict."""
    return tuple(tree) if type(tree) is dict else range(len(tree))


def leaves(params: Mapping[str, Any]) -> Iterator[tuple[ParamSource, Any]]:
    """Every parameter that is no list, tuple or dict, and what is in those."""
    pending = [(ParamSource(name), value) for name, value in params.items()]
    while pending:
        source, value = pending.pop()
        if is_tree(value):
            pending += [(source.item(key), value[key]) for key in keys_of(value)]
        else:
            yield source, value


def rebuilt(source: ParamSource, value: Any, leaf: Callable[[ParamSource, Any], Any]) -> Any:
    """A parameter with something else for each of its leaves."""
    if not is_tree(value):
        return leaf(source, value)
    parts = {key: rebuilt(source.item(key), value[key], leaf) for key in keys_of(value)}
    return tree_of(type(value), parts)


def tree_of(kind: Any, parts: dict[Any, Any]) -> Any:
    """A list, tuple or dict of parts by their keys."""
    if kind is dict:
        return parts
    return kind(parts.values()) if kind in (list, tuple) else kind(*parts.values())


def form_of(value: Any) -> Any:
    """What the signature of a call has of a parameter: dtypes, shapes, types and keys."""
    if isinstance(value, torch.Tensor):
        return value.dtype, value.shape
    if not is_tree(value):
        return type(value)
    return type(value), tuple((key, form_of(value[key])) for key in keys_of(value))
