"""Nested results of `edge` and `node`: one value, or tuples, lists and dicts of them."""

from collections.abc import Callable, Iterator
from typing import Any


def _is_named(tree: Any) -> bool:
    return isinstance(tree, tuple) and hasattr(tree, "_fields")


def tree_map(apply: Callable[[Any], Any], tree: Any) -> Any:
    """The tree with `apply` done to each leaf."""
    if isinstance(tree, dict):
        return {key: tree_map(apply, value) for key, value in tree.items()}
    if not isinstance(tree, (tuple, list)):
        return apply(tree)
    items = [tree_map(apply, item) for item in tree]
    return type(tree)(*items) if _is_named(tree) else type(tree)(items)


def leaves(tree: Any) -> Iterator[Any]:
    """The leaves in order."""
    if isinstance(tree, dict):
        for value in tree.values():
            yield from leaves(value)
    elif isinstance(tree, (tuple, list)):
        for item in tree:
            yield from leaves(item)
    else:
        yield tree


def numbered(tree: Any) -> Any:
    """The tree with each leaf replaced by its position."""
    count = iter(range(sum(1 for _ in leaves(tree))))
    return tree_map(lambda _: next(count), tree)


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
