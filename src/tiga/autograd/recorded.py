"""Gradients by structure: an expression that was differentiated before is not differentiated again.

What a derivative consists of depends on the ops, types and wiring of an expression, not on the
values in memory. It is recorded, and built from the record each time.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tiga.frontends.tensor.application import Application, Record, part_of
from tiga.frontends.tensor.lazy import Unbuilt
from tiga.frontends.tensor.planned import keep
from tiga.trace.node import Node
from tiga.trace.origin import Origin

MOST_NODES = 1024
"""Nodes of the largest expression that is looked up: a key refers to all ops of it."""

Derive = Callable[[], list[Node | None]]


@dataclass(frozen=True)
class Wiring:
    """What tells an expression from others but the values in memory, its nodes by number, and
    whether a value in it was written in place since it was used."""

    key: tuple[Any, ...]
    order: list[Node | Application]
    stale: bool


def wiring_of(groups: Sequence[Sequence[Node]]) -> Wiring | None:
    """The wiring of what `groups` of nodes need; None where no record is kept of it: it is large,
    or a call on a graph, which no record may keep alive."""
    roots = [node for group in groups for node in group]
    order: list[Any] = list({id(root): root for root in roots}.values())
    places = {id(node): place for place, node in enumerate(order)}
    parts: list[Any] = [*map(len, groups), *[places[id(root)] for root in roots]]
    stale = False
    add, known = parts.append, places.get
    for node in order:
        cell = node.cell
        if cell is not None and cell.stale:
            stale = True
        kind = node.__class__
        part = part_of(node) if kind is Unbuilt or kind is Application else None
        if part is not None:
            add(part.mark)
            children = part.children
        else:
            op, children = node.op, node.inputs
            if op.defers:
                return None
            add(None if op.origin is Origin.ARGUMENT else op)
            add(node.type)
        for child in children:
            key = id(child)
            place = known(key)
            if place is None:
                place = places[key] = len(order)
                order.append(child)
            add(place)
        if len(order) > MOST_NODES:
            return None
    return Wiring(tuple(parts), order, stale)


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
    keep(RECORDS, wiring.key, record)
    return record.build(wiring.order), wiring.stale
