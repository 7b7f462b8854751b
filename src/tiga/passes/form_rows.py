"""Form row programs: decide for every value which walk computes it, in which phase.

A reduction belongs to a walk of its relation with its rows. What it needs of the *same* rows may
come from the same walk, one phase earlier; what it needs of the other end, of another walk or of
a library call must be stored by an earlier step. Values of nodes that need no walk are free: they
are recomputed where they are read, or stored first where recomputing costs more than reading.
A scan is repeated in each walk that reads it; as only that walk can evaluate it, a reduction at
the other end of an edge value made from a scan is scattered from there. In a program that names no
end of its edges, they are rows like those of any space, and need no graph.
"""

from dataclasses import dataclass

from tiga.errors import Unfusable
from tiga.ops.message import gather
from tiga.passes.base import Pass
from tiga.passes.collect import Collector
from tiga.passes.draft import FREE, Draft
from tiga.passes.rows import Plan, ScanLoop
from tiga.trace.derivatives import RECOMPUTE_COST
from tiga.trace.node import Node, topological
from tiga.trace.origin import Origin
from tiga.trace.program import Program
from tiga.types import GLOBAL, Relation, Space, Type

WALKED = (Origin.ROW, Origin.TOTAL)
"""Where values off the edges come from that a walk leaves, or adds up."""

IN_REGISTERS = 64
"""Global values of more elements are not rearranged in registers but by a library call."""


def _is_library(node: Node) -> bool:
    if node.op.stands_alone:
        return True
    rearranges = node.op.moves or node.op.reduces
    sizes = (node.type.size, *(n.type.size for n in node.inputs))
    return node.type.space == GLOBAL and rearranges and max(sizes) > IN_REGISTERS


def _before_walks(program: Program) -> set[Node]:
    """Values that need no walk: placed first, so that every walk may read them."""
    early: set[Node] = set()
    for node in program.order:
        walked = node.op.origin in WALKED or node.type.space in program.edges
        if not walked and all(child in early for child in node.inputs):
            early.add(node)
    return early


def by_walks_after(program: Program) -> list[Node]:
    """The nodes in an order in which more and more may be placed: first those with the most loops
    over edges one after another to come, so that a sum which nothing waits for joins the walk of
    one that has to wait."""
    after = dict.fromkeys(program.order, 0)
    for node in reversed(program.order):
        after[node] += node.op.origin is Origin.ROW
        for child in node.inputs:
            after[child] = max(after[child], after[node])
    return sorted(program.order, key=after.__getitem__, reverse=True)


class Former:
    """Assigns homes (step indices) and phases to the nodes of one program.

    `late` holds values that are complete only when their whole step has run.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self.drafts: list[Draft] = []
        self.home: dict[Node, int] = {}
        self.phase: dict[Node, int] = {}
        self.late: set[Node] = set()
        self.leaves: dict[Node, tuple[Node, ...]] = {}
        self.scan_phase: dict[tuple[ScanLoop, int], int] = {}

    def form(self) -> Plan:
        early = _before_walks(self.program)
        for node in self.program.order:
            if node in early:
                self.place(node)
        for node in self.program.order:
            place = node.op.table
            if place is not None and node.inputs[place] in early:
                self._store(node.inputs[place])
        for node in by_walks_after(self.program):
            if node not in early:
                self.place(node)
        for node in dict.fromkeys(self.program.outputs):
            self.place_output(node)
        collector = Collector(self.program, self.drafts, self.home, self.phase, self.late)
        return Plan(self.program.inputs, self.program.outputs, collector.steps())

    # placing

    def place(self, node: Node) -> None:
        if node.type.space in self.program.edges:
            self.leaves[node] = self._edge_leaves(node)
        elif node.op.origin is Origin.OUTER and node.inputs[0].type.space in self.program.edges:
            self._place_edge_sum(node)
        elif node.op.origin is Origin.ROW:
            self._place_row_result(node)
        elif node.op.origin is Origin.TOTAL:
            self._place_total(node)
        elif _is_library(node):
            self._place_library(node)
        else:
            self._place_row_value(node)

    def _edge_leaves(self, node: Node) -> tuple[Node, ...]:
        """The gathers, spreads, scans, matrices and edge inputs that an edge value is made of."""
        if node.op.carries:
            return (node, *self._scan_leaves(node))
        place = node.op.table
        if place is not None:
            table, x = node.inputs[place], node.inputs[1 - place]
            self._store(table)
            return tuple(dict.fromkeys((*self.leaves[x], table)))
        if node.op.is_read:
            return (node,)
        found = (leaf for child in node.inputs for leaf in self.leaves[child])
        return tuple(dict.fromkeys(found))

    def _scan_leaves(self, node: Node) -> tuple[Node, ...]:
        """What the elements of a scan are made of, and its start as if each edge read it."""
        initial, *elements = node.inputs
        start = gather(node.op.relation, node.op.side, initial)
        read = (start,) if start.op.origin is Origin.END else ()
        return (*read, *(leaf for e in elements for leaf in self.leaves[e]))

    def _earliest(self, leaves: tuple[Node, ...], relation: Relation, side: str) -> int:
        """The first step index at which a walk may evaluate an edge value with these leaves."""
        bound = 0
        for leaf in leaves:
            if leaf.type.space == GLOBAL:
                bound = max(bound, self.home[leaf] + 1)
            elif leaf.op.origin in (Origin.END, Origin.GLOBAL):
                bound = max(bound, self._leaf_bound(leaf, relation, side))
        return bound

    def _leaf_bound(self, leaf: Node, relation: Relation, side: str) -> int:
        (source,) = leaf.inputs
        same_rows = leaf.op.origin is Origin.END and leaf.op.side == side
        if not same_rows:
            self._store_if_costly(source)
        home = self.home[source]
        if home == FREE:
            return 0
        joins = same_rows and source not in self.late and self.drafts[home].walks(relation, side)
        return home if joins else home + 1

    def _store_if_costly(self, node: Node) -> None:
        """Store a free value read across edges when it is dearer to recompute than to read."""
        if self.home[node] != FREE or not node.inputs:
            return
        inner = [n for n in topological([node]) if n.inputs]
        work = max(n.op.cost for n in inner)
        arguments = (n for n in topological([node]) if n.op.origin is Origin.ARGUMENT)
        read = sum(n.type.row_bytes for n in arguments)
        if work >= RECOMPUTE_COST or read > node.type.row_bytes:
            self._store(node)

    def _walk_step(self, relation: Relation, side: str, bound: int) -> int:
        """A walk of `relation` with rows at `side`, at or after step `bound`."""
        for index in range(bound, len(self.drafts)):
            if self.drafts[index].walks(relation, side):
                return index
        self.drafts.append(Draft(relation.end(side), relation, side))
        return len(self.drafts) - 1

    def _rows_step(self, of: Type, bound: int) -> int:
        """A step at or after `bound` with rows of the space of a value.

        Large global values share a step only with their own size: values of several sizes do not
        fit windows of features, and are too wide to be taken whole.
        """
        group = of.size if of.space == GLOBAL and of.size > IN_REGISTERS else 0
        for index in range(bound, len(self.drafts)):
            draft = self.drafts[index]
            if draft.has_rows(of.space) and draft.group == group:
                return index
        self.drafts.append(Draft(of.space, group=group))
        return len(self.drafts) - 1

    def _edge_phase(self, leaves: tuple[Node, ...], index: int) -> int:
        """The first phase of step `index` that can evaluate an edge value; its scans are added."""
        phase = 0
        for leaf in leaves:
            if leaf.op.carries:
                phase = max(phase, self._settle(ScanLoop.of(leaf), index))
            elif leaf.inputs and leaf.type.space != GLOBAL:
                (source,) = leaf.inputs
                inside = self.home[source] == index
                phase = max(phase, self.phase[source] + 1 if inside else 0)
        return phase

    def _settle(self, scan: ScanLoop, index: int) -> int:
        """The phase of step `index` that carries the scan."""
        known = self.scan_phase.get((scan, index))
        if known is not None:
            return known
        draft = self.drafts[index]
        phase = self._edge_phase(self._scan_leaves(scan.before), index)
        while any(other.reverse != scan.reverse for other in draft.phase(phase).scans):
            phase += 1
        draft.phase(phase).scans.append(scan)
        self.scan_phase[scan, index] = phase
        return phase

    def _scan_side(self, leaves: tuple[Node, ...]) -> str | None:
        """The rows whose walk must evaluate an edge value, if it is made from a scan."""
        sides = {leaf.op.side for leaf in leaves if leaf.op.carries}
        if len(sides) > 1:
            raise Unfusable("an edge value made from scans of both its ends")
        return sides.pop() if sides else None

    def _place_row_result(self, node: Node) -> None:
        is_scan = node.op.carries
        leaves = self._scan_leaves(node) if is_scan else self.leaves[node.inputs[0]]
        relation = node.op.relation
        side = self._scan_side(leaves) or node.op.side
        index = self._walk_step(relation, side, self._earliest(leaves, relation, side))
        if is_scan and side != node.op.side:
            raise Unfusable("a scan of one end over a scan of the other")
        phase = (
            self._settle(ScanLoop.of(node), index) if is_scan else self._edge_phase(leaves, index)
        )
        self.home[node], self.phase[node] = index, phase
        if is_scan:
            return
        into = self.drafts[index].phase(phase)
        if side == node.op.side:
            into.reductions.append(node)
        elif node.op.kind == "sum":
            into.scatters.append(node)
            self.late.add(node)
        else:
            raise Unfusable(f"a {node.op.kind} at one end over a scan of the other")

    def _place_total(self, node: Node) -> None:
        (value,) = node.inputs
        home = self.home[value]
        if home == FREE or value in self.late or not self.drafts[home].has_rows(value.type.space):
            home = self._rows_step(value.type, home + 1)
        self.drafts[home].totals.append(node)
        self.home[node], self.phase[node] = home, 0
        self.late.add(node)

    def _place_library(self, node: Node) -> None:
        for child in node.inputs:
            self._store(child)
        self.drafts.append(Draft(node.type.space, library=node))
        self.home[node], self.phase[node] = len(self.drafts) - 1, 0

    def _store(self, node: Node) -> None:
        """Make a free value an array, unless it is an input already."""
        if self.home[node] == FREE and node.op.origin is not Origin.ARGUMENT:
            self.home[node] = self._rows_step(node.type, 0)
            self.phase[node] = FREE

    def _place_row_value(self, node: Node) -> None:
        if node.op.table is not None:
            self._store(node.inputs[node.op.table])
        bound = max((self.home[child] for child in node.inputs), default=FREE)
        if bound == FREE:
            self.home[node], self.phase[node] = FREE, FREE
            return
        index = self._rows_step(node.type, self._ready(node.inputs, node.type.space))
        inside = [self.phase[c] for c in node.inputs if self.home[c] == index]
        self.home[node], self.phase[node] = index, max(inside, default=FREE)

    def _ready(self, inputs: tuple[Node, ...], space: Space) -> int:
        """The first step with rows of `space` that may read all inputs."""
        bound = 0
        for child in inputs:
            home = self.home[child]
            if home == FREE:
                continue
            local = self.drafts[home].has_rows(space) and child not in self.late
            bound = max(bound, home if local else home + 1)
        return bound

    def place_output(self, node: Node) -> None:
        if node.op.origin is Origin.ARGUMENT:
            return
        if not node.type.size:
            self._place_library(node)
        elif node.type.space in self.program.edges:
            index, phase = self._place_edge_values((node,))
            self.drafts[index].phase(phase).stores.append(node)
        elif self.home[node] == FREE:
            self.home[node] = self._rows_step(node.type, 0)
            self.phase[node] = FREE

    def _place_edge_sum(self, node: Node) -> None:
        index, phase = self._place_edge_values(node.inputs)
        self.drafts[index].phase(phase).outer_sums.append(node)
        self.home[node], self.phase[node] = index, FREE
        self.late.add(node)

    def _place_edge_values(self, values: tuple[Node, ...]) -> tuple[int, int]:
        """A walk, and its last phase that is ready, for edge values that no reduction takes."""
        relation = self.program.edges[values[0].type.space]
        leaves = tuple(leaf for value in values for leaf in self.leaves[value])
        forced = self._scan_side(leaves)
        sides = ("dst", "src") if forced is None else (forced,)
        bounds = {side: self._earliest(leaves, relation, side) for side in sides}
        fits = [
            index
            for side, bound in bounds.items()
            for index in range(bound, len(self.drafts))
            if self.drafts[index].walks(relation, side)
        ]
        index = fits[0] if fits else self._walk_step(relation, sides[0], bounds[sides[0]])
        return index, max(self._edge_phase(leaves, index), self.drafts[index].last_phase)


@dataclass(frozen=True)
class FormRows(Pass, name="gf-form-rows"):
    """Decide which walk computes what: a plan of row programs and library calls."""

    def __call__(self, form: Program) -> Plan:
        return Former(form).form()
