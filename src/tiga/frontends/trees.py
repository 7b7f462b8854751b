"""Nested results of users' functions: one value, or tuples, lists and dicts of them."""

from collections.abc import Callable
from typing import Any


def mapped(apply: Callable[[Any], Any], tree: Any) -> Any:
    """A tree with a function applied to its leaves, in order."""
    if isinstance(tree, dict):
        return {key: mapped(apply, value) for key, value in tree.items()}
    if not isinstance(tree, (tuple, list)):
        return apply(tree)
    items = [mapped(apply, item) for item in tree]
    return type(tree)(*items) if _is_named(tree) else type(tree)(items)


def _is_named(tree: Any) -> bool:
    return isinstance(tree, tuple) and hasattr(tree, "_fields")


def leaves_of(tree: Any) -> list[Any]:
    """The leaves of a tree, in order."""
    if not isinstance(tree, (dict, tuple, list)):
        return [tree]
    found: list[Any] = []
    mapped(found.append, tree)
    return found


def numbered(tree: Any) -> Any:
    """The tree with each leaf replaced by its position."""
    count = iter(range(len(leaves_of(tree))))
    return mapped(lambda _: next(count), tree)


def described(tree: Any) -> Any:
    """The tree as nested tuples of plain constants: a leaf as it is, else the kind of container,
    the keys of a dict, and the items."""
    if isinstance(tree, dict):
        return "dict", tuple(tree), tuple(map(described, tree.values()))
    if isinstance(tree, (tuple, list)):
        kind = "list" if isinstance(tree, list) else "named" if _is_named(tree) else "tuple"
        return kind, tuple(range(len(tree))), tuple(map(described, tree))
    return tree


def rebuilt(apply: Callable[[Any], Any], description: Any, example: Any) -> Any:
    """The described tree with `apply` done to each leaf. `example` has containers at the same
    places, where it has any: a named tuple is of its type."""
    if not isinstance(description, tuple):
        return apply(description)
    kind, keys, children = description
    known = isinstance(example, (dict, tuple, list)) and len(example) == len(keys)
    items = [
        rebuilt(apply, child, example[key] if known else None)
        for key, child in zip(keys, children, strict=True)
    ]
    if kind == "dict":
        return dict(zip(keys, items, strict=True))
    if kind == "named":
        return type(example)(*items)
    return items if kind == "list" else tuple(items)
