"""Gradients by structure: an expression that was differentiated before is not differentiated again.

What a derivative consists of depends on the ops, types and wiring of an expression, not on the
values in memory. It is recorded as steps on numbered nodes and built from them each time.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tiga.frontends.tensor.build import extent_of
from tiga.frontends.tensor.lazy import LazyNode, user_place
from tiga.trace.node import Node, topological
from tiga.types import Type

MOST_NODES = 1024
"""Nodes of the largest expression that is looked up: a key refers to all ops of it."""

MOST_RECORDS = 1024

Derive = Callable[[], list[Node | None]]


@dataclass(frozen=True)
class Wiring:
    """What tells an expression from others but the values in memory, its nodes by number, and
    whether a value in it was written in place since it was used."""

    key: tuple[Any, ...]
    order: list[Node]
    stale: bool


def wiring_of(groups: Sequence[Sequence[Node]]) -> Wiring | None:
    """The wiring of what `groups` of nodes need; None where no record is kept of it: it is large,
    or a call on a graph, which no record may keep alive."""
    roots = [node for group in groups for node in group]
    order: list[Node] = list({id(root): root for root in roots}.values())
    places = {id(node): place for place, node in enumerate(order)}
    parts: list[Any] = [*map(len, groups), *[places[id(root)] for root in roots]]
    stale = False
    for node in order:
        op = node.op
        if op.name == "graph_call" or len(order) > MOST_NODES:
            return None
        cell = getattr(node, "cell", None)
        stale = stale or (cell is not None and cell.stale)
        parts += (None if op.name == "input" else op, node.type)
        for child in node.inputs:
            place = places.get(id(child))
            if place is None:
                place = places[id(child)] = len(order)
                order.append(child)
            parts.append(place)
    return Wiring(tuple(parts), order, stale)


@dataclass(frozen=True)
class Step:
    """One node of a derivative: its inputs are numbers of nodes of the expression, then of the
    record's constants, then of steps before it."""

    op: Any
    type: Type
    inputs: tuple[int, ...]


@dataclass(frozen=True)
class Record:
    """The nodes that a derivative adds to an expression, and which of all are its results."""

    constants: tuple[Node, ...]
    steps: tuple[Step, ...]
    results: tuple[int | None, ...]

    @staticmethod
    def of(order: Sequence[Node], found: Sequence[Node | None]) -> "Record | None":
        """The record of a derivative; None if it holds values of its own in memory."""
        old = set(order)
        new = [n for n in topological([n for n in found if n is not None]) if n not in old]
        constants = tuple(node for node in new if not node.inputs)
        if any(node.op.name != "constant" for node in constants):
            return None
        made = [node for node in new if node.inputs]
        places = {node: place for place, node in enumerate((*order, *constants, *made))}
        steps = [Step(n.op, n.type, tuple(places[child] for child in n.inputs)) for n in made]
        return Record(
            constants, tuple(steps), tuple(None if n is None else places[n] for n in found)
        )

    def build(self, order: Sequence[Node]) -> list[Node | None]:
        """The derivative of an expression with these nodes."""
        nodes = [*order, *self.constants]
        sizes = [_size(node) for node in nodes]
        place = user_place()
        for op, type_, reads in [(s.op, s.type, s.inputs) for s in self.steps]:
            depth, largest = 0, type_.size
            for i in reads:
                deep, large = sizes[i]
                depth = deep if deep > depth else depth
                largest = large if large > largest else largest
            inputs = tuple([nodes[i] for i in reads])
            nodes.append(LazyNode(op, inputs, type_, place, depth + 1, largest))
            sizes.append((depth + 1, largest))
        return [None if i is None else nodes[i] for i in self.results]


def _size(node: Node) -> tuple[int, int]:
    """See `extent_of`."""
    if isinstance(node, LazyNode):
        return 0 if node.cell is not None else node.depth, node.largest
    return extent_of([node])


RECORDS: dict[Any, Record] = {}
"""Records by the key of their expression, the oldest first."""


def derived(groups: Sequence[Sequence[Node]], derive: Derive) -> tuple[list[Node | None], bool]:
    """What `derive` makes of groups of nodes, and whether a value that it reads may have been
    written in place since it was used."""
    wiring = wiring_of(groups)
    if wiring is None:
        return derive(), True
    record = RECORDS.get(wiring.key)
    if record is not None:
        return record.build(wiring.order), wiring.stale
    found = derive()
    record = Record.of(wiring.order, found)
    if record is None:
        return found, True
    RECORDS[wiring.key] = record
    if len(RECORDS) > MOST_RECORDS:
        del RECORDS[next(iter(RECORDS))]
    return record.build(wiring.order), wiring.stale
