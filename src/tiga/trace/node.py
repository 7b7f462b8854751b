"""The trace: immutable, hash-consed nodes. One node is one op applied to earlier nodes."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from tiga.types import Type


class Node:
    """A value of a trace: `op` applied to `inputs`, with its inferred `type`.

    Nodes are interned: building the same op on the same inputs returns the same object, so `is`
    compares values and common subexpressions are shared from the start.
    """

    __slots__ = ("__weakref__", "inputs", "op", "type", "where")

    op: Any
    inputs: tuple["Node", ...]
    type: Type
    where: str | None
    cell: Any = None
    """The value, of a node of a native tensor that has it in memory."""

    def __init__(self, op: Any, inputs: tuple["Node", ...], type: Type, where: str | None) -> None:
        self.op = op
        self.inputs = inputs
        self.type = type
        self.where = where

    def __repr__(self) -> str:
        return f"<{self.op!r} : {self.type!r}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return intern, (self.op, self.inputs, self.type, self.where)


_interned: WeakValueDictionary[tuple[Any, ...], Node] = WeakValueDictionary()


def intern(op: Any, inputs: tuple[Node, ...], type: Type, where: str | None = None) -> Node:
    """The node of `op` on `inputs`, shared with every equal one that is alive."""
    key = (op, type, tuple(map(id, inputs)))
    found = _interned.get(key)
    if found is not None:
        return found
    return _interned.setdefault(key, Node(op, inputs, type, where))


def topological(outputs: Iterable[Node]) -> list[Node]:
    """All nodes that `outputs` need, each after its inputs, in a fixed order."""
    order: list[Node] = []
    seen: set[Node] = set()
    stack = [(node, False) for node in reversed(list(outputs))]
    while stack:
        node, expanded = stack.pop()
        if expanded:
            order.append(node)
            continue
        if node in seen:
            continue
        seen.add(node)
        stack.append((node, True))
        stack.extend((child, False) for child in reversed(node.inputs) if child not in seen)
    return order


T = TypeVar("T", bound=Hashable)


def reached(
    roots: Iterable[T],
    until: Callable[[T], bool] = lambda node: False,
    below: Callable[[T], Iterable[T]] = attrgetter("inputs"),
) -> Iterator[T]:
    """The roots and what lies below them, each once, in a fixed order, which is not that of
    `topological`. Nothing below those for which `until` holds is looked at."""
    seen: set[T] = set()
    stack = list(roots)
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        yield node
        if not until(node):
            stack.extend(below(node))


def substitute(outputs: Sequence[Node], replacements: dict[Node, Node]) -> list[Node]:
    """`outputs` rebuilt with each key of `replacements` exchanged for its value."""
    return rewrite(outputs, lambda node, inputs: None, replacements)


Rule = Callable[[Node, tuple[Node, ...]], Node | None]
"""`rule(node, new_inputs)`: a node to use instead, or None."""


def rewrite(
    outputs: Sequence[Node], rule: Rule, replacements: dict[Node, Node] | None = None
) -> list[Node]:
    """Rebuild `outputs` bottom up by a rule."""
    done: dict[Node, Node] = dict(replacements or {})
    for node in topological(outputs):
        if node in done:
            continue
        inputs = tuple(done[child] for child in node.inputs)
        replacement = rule(node, inputs)
        if replacement is None:
            same = all(new is old for new, old in zip(inputs, node.inputs, strict=True))
            replacement = node if same else node.op(*inputs, where=node.where)
        done[node] = replacement
    return [done[output] for output in outputs]


def users(order: Iterable[Node]) -> dict[Node, list[Node]]:
    """For each node of `order`, the nodes that read it."""
    readers: dict[Node, list[Node]] = {}
    for node in order:
        readers.setdefault(node, [])
        for child in node.inputs:
            readers.setdefault(child, []).append(node)
    return readers
