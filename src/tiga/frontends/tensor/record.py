"""Expressions built once and written down: built again, no rule or check runs a second time."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, NamedTuple, TypeVar

from tiga.frontends.tensor.build import extent_of, result
from tiga.frontends.tensor.core import Tensor
from tiga.frontends.tensor.lazy import LazyNode, user_place
from tiga.frontends.tensor.planned import keep
from tiga.trace.node import Node
from tiga.trace.origin import Origin
from tiga.types import DType, Type

Function = TypeVar("Function", bound=Callable[..., Any])


class Step(NamedTuple):
    """One node: its inputs are numbers of given nodes, then of the record's constants, then of
    steps before it; `size` is that of its value."""

    op: Any
    type: Type
    inputs: tuple[int, ...]
    size: int


@dataclass(frozen=True)
class Record:
    """The nodes that were built on given ones, and which of all are the results."""

    constants: tuple[Node, ...]
    steps: tuple[Step, ...]
    results: tuple[int | None, ...]

    @staticmethod
    def of(given: Sequence[Node], found: Sequence[Node | None]) -> "Record | None":
        """The record of what was found from given nodes; None if it holds values of its own."""
        new = _above(given, [node for node in found if node is not None])
        constants = tuple(node for node in new if not node.inputs)
        if any(node.op.origin is not Origin.NUMBER for node in constants):
            return None
        made = [node for node in new if node.inputs]
        places = {node: place for place, node in enumerate((*given, *constants, *made))}
        steps = [
            Step(n.op, n.type, tuple(places[child] for child in n.inputs), n.type.size)
            for n in made
        ]
        results = [None if node is None else places[node] for node in found]
        return Record(constants, tuple(steps), tuple(results))

    def build(self, given: Sequence[Node]) -> list[Node | None]:
        """The same on other nodes."""
        nodes = [*given, *self.constants]
        depths: list[int] = []
        sizes: list[int] = []
        for node in nodes:
            if node.__class__ is LazyNode:
                depths.append(0 if node.cell is not None else node.depth)
                sizes.append(node.largest)
            else:
                depth, size = extent_of((node,)) if node.inputs else (1, node.type.size)
                depths.append(depth)
                sizes.append(size)
        place = user_place()
        for op, type_, inputs, largest in self.steps:
            # Most nodes have one or two inputs, and records are what long expressions consist of.
            if len(inputs) == 1:
                (i,) = inputs
                below: tuple[Node, ...] = (nodes[i],)
                depth, size = depths[i], sizes[i]
            elif len(inputs) == 2:
                i, j = inputs
                below = (nodes[i], nodes[j])
                depth = depths[i] if depths[i] > depths[j] else depths[j]
                size = sizes[i] if sizes[i] > sizes[j] else sizes[j]
            else:
                below = tuple([nodes[i] for i in inputs])
                depth = max([depths[i] for i in inputs])
                size = max([sizes[i] for i in inputs])
            largest = size if size > largest else largest
            nodes.append(LazyNode(op, below, type_, place, depth + 1, largest))
            depths.append(depth + 1)
            sizes.append(largest)
        return [None if i is None else nodes[i] for i in self.results]


def _above(given: Sequence[Node], found: Sequence[Node]) -> list[Node]:
    """The nodes that `found` need beside the given ones, each after its inputs."""
    order: list[Node] = []
    seen = set(given)
    stack = [(node, False) for node in reversed(found)]
    while stack:
        node, ready = stack.pop()
        if ready:
            order.append(node)
        elif node not in seen:
            seen.add(node)
            stack.append((node, True))
            stack.extend((child, False) for child in reversed(node.inputs))
    return order


def recorded(function: Function) -> Function:
    """A function from tensors and plain settings to one tensor, composed of many ops: recorded per
    types and settings. It must not look at values, nor return a view of an operand.

    Example:
        >>> import tiga as tg
        >>> @recorded
        ... def twice(x, scale=1.0):
        ...     return x * scale + x * scale
        >>> twice(tg.ones(2)).tolist(), twice(tg.ones(2), scale=3.0).tolist()
        ([2.0, 2.0], [6.0, 6.0])
    """
    records: dict[Any, Record] = {}

    @wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        values = (*args, *options.values())
        tensors = [v for v in values if v.__class__ is Tensor]
        key = (len(args), *options, *[_setting(v) for v in values])
        if None in key or len({id(t._node) for t in tensors}) < len(tensors):
            return function(*args, **options)
        given = [tensor._node for tensor in tensors]
        record = records.get(key)
        if record is not None:
            (node,) = record.build(given)
            assert node is not None
            return result(node, *tensors)
        made = function(*args, **options)
        record = Record.of(given, [made._node]) if made.__class__ is Tensor else None
        if record is not None and record.steps:
            keep(records, key, record)
        return made

    return call  # type: ignore[return-value]


_ABSENT = "absent"


def _setting(value: Any) -> Any:
    """What a record depends on of an argument; None if that cannot be told."""
    kind = value.__class__
    if kind is Tensor:
        return value._node.type
    if value is None:
        return _ABSENT
    if kind is float:
        return value.hex()
    if kind in (int, bool, str, DType):
        return kind, value
    if kind is tuple and all(v.__class__ is int for v in value):
        return value
    return None
