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
    named = isinstance(tree, tuple) and hasattr(tree, "_fields")
    return type(tree)(*items) if named else type(tree)(items)


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
