"""Where a row program reads its arrays: at its rows, at the edges' other ends, or on the edges."""

from collections.abc import Iterator
from dataclasses import dataclass

from tiga.passes.rows import RowProgram
from tiga.trace.node import Node, reached
from tiga.trace.origin import Origin
from tiga.types import GLOBAL, Relation

ROW, OTHER, EDGE = "row", "other", "edge"
"""Where a value is read: the coordinates of a walk."""


@dataclass(frozen=True)
class Roles:
    """The arrays, and the degrees (relation and side), that are read at each place."""

    rows: frozenset[Node]
    others: frozenset[Node]
    edges: frozenset[Node]
    row_degrees: frozenset[tuple[Relation, str]]
    other_degrees: frozenset[tuple[Relation, str]]


def roles_of(program: RowProgram) -> Roles:
    """Every array that the program reads, by where it is read; global values are in none."""
    found: dict[str, set[Node]] = {ROW: set(), OTHER: set(), EDGE: set()}
    degrees: dict[str, set[tuple[Relation, str]]] = {ROW: set(), OTHER: set()}
    reads = set(program.reads)

    def below(at: tuple[Node, str]) -> list[tuple[Node, str]]:
        node, place = at
        inner = [child for child in node.inputs if child.type.space != GLOBAL]
        return [(child, _place(program, node, child, place)) for child in inner]

    goals = ((node, place) for node, place in _goals(program) if node.type.space != GLOBAL)
    for node, place in reached(goals, lambda at: at[0] in reads, below):
        if node in reads:
            found[place].add(node)
        elif node.op.origin is Origin.DEGREE:
            degrees[place].add((node.op.relation, node.op.side))
    rows, others, edges = (frozenset(found[place]) for place in (ROW, OTHER, EDGE))
    return Roles(rows, others, edges, frozenset(degrees[ROW]), frozenset(degrees[OTHER]))


def _goals(program: RowProgram) -> Iterator[tuple[Node, str]]:
    for node in (*program.stores, *(n.inputs[0] for n in program.totals)):
        yield node, ROW
    entity = ROW if program.relation is None else EDGE  # of outer sums, say
    for phase in program.phases:
        yield from ((node, entity) for node in phase.edge_values)
        yield from ((node, ROW) for node in phase.reductions)
        yield from ((scan.initial, ROW) for scan in phase.scans)


def _place(program: RowProgram, node: Node, child: Node, place: str) -> str:
    """Where a child of a node that is evaluated at `place` is."""
    if program.relation is not None and child.type.space == program.relation.edge:
        return EDGE
    if node.op.origin is Origin.END:
        return ROW if node.op.side == program.side else OTHER
    if place == EDGE or node.op.origin is Origin.ROW:
        return ROW  # the start of a scan
    return place
