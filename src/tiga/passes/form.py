"""Form row programs: decide for every value which walk computes it, in which phase.

A reduction belongs to a walk of its relation with its rows. What it needs of the *same* rows may
come from the same walk, one phase earlier; what it needs of the other end, of another walk or of
a library call must be stored by an earlier step. Values of nodes that need no walk are free: they
are recomputed where they are read, or stored first where recomputing costs more than reading.
"""

from dataclasses import dataclass, field

from tiga.passes.rows import LibraryCall, Phase, Plan, RowProgram, Step
from tiga.trace.node import Node, topological
from tiga.trace.program import Program
from tiga.types import GLOBAL, Relation, Space

FREE = -1
"""The home of inputs, constants and of values computed from them without a walk."""

RECOMPUTE_COST = 4
"""A free value with an op of at least this cost is stored before it is read across edges."""

LIBRARY_OPS = ("contract", "outer_sum")

IN_REGISTERS = 64
"""Global values of more elements are not rearranged in registers but by a library call."""


TOTALS = ("reduce_all", "outer_sum")
"""Ops whose result is complete only after all rows of a step."""


def _is_library(node: Node) -> bool:
    if node.op.name in LIBRARY_OPS:
        return True
    rearranges = hasattr(node.op, "lanes") or hasattr(node.op, "combine")
    sizes = (node.type.size, *(n.type.size for n in node.inputs))
    return node.type.space == GLOBAL and rearranges and max(sizes) > IN_REGISTERS


@dataclass
class Draft:
    """A step under construction."""

    space: Space
    relation: Relation | None = None
    side: str = "dst"
    library: Node | None = None
    phases: dict[int, list[Node]] = field(default_factory=dict)
    edge_stores: dict[int, list[Node]] = field(default_factory=dict)
    outer_sums: dict[int, list[Node]] = field(default_factory=dict)
    totals: list[Node] = field(default_factory=list)
    stores: dict[Node, None] = field(default_factory=dict)
    reads: dict[Node, None] = field(default_factory=dict)


class Former:
    """Assigns homes (step indices) and phases to the nodes of one program."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.drafts: list[Draft] = []
        self.home: dict[Node, int] = {}
        self.phase: dict[Node, int] = {}
        self.leaves: dict[Node, tuple[Node, ...]] = {}

    def form(self) -> Plan:
        for node in self.program.order:
            self.place(node)
        for node in dict.fromkeys(self.program.outputs):
            self.place_output(node)
        steps = self.collect()
        return Plan(self.program.inputs, self.program.outputs, steps)

    # placing

    def place(self, node: Node) -> None:
        if node.type.space.kind == "edge":
            self.leaves[node] = self._edge_leaves(node)
        elif node.op.name == "outer_sum" and node.inputs[0].type.space.kind == "edge":
            self._place_edge_sum(node)
        elif node.op.name == "reduce":
            self._place_reduce(node)
        elif node.op.name == "reduce_all":
            self._place_total(node)
        elif _is_library(node):
            self._place_library(node)
        else:
            self._place_row_value(node)

    def _edge_leaves(self, node: Node) -> tuple[Node, ...]:
        """The gathers, spreads, matrices and edge inputs that an edge value is made of."""
        if node.op.name == "contract":
            x, matrix = node.inputs
            self._store(matrix)
            return tuple(dict.fromkeys((*self.leaves[x], matrix)))
        if node.op.name in ("gather", "spread", "input"):
            return (node,)
        found = (leaf for child in node.inputs for leaf in self.leaves[child])
        return tuple(dict.fromkeys(found))

    def _earliest(self, edge_value: Node, relation: Relation, side: str) -> int:
        """The first step index at which a walk may evaluate an edge value."""
        bound = 0
        for leaf in self.leaves[edge_value]:
            if leaf.type.space == GLOBAL:
                bound = max(bound, self.home[leaf] + 1)
                continue
            if leaf.op.name == "input":
                continue
            (source,) = leaf.inputs
            same_rows = leaf.op.name == "gather" and leaf.op.side == side
            if not same_rows:
                self._store_if_costly(source)
            home = self.home[source]
            joins = home != FREE and same_rows and self._walks(home, relation, side)
            bound = max(bound, home if joins else home + 1)
        return bound

    def _walks(self, index: int, relation: Relation | None, side: str) -> bool:
        draft = self.drafts[index]
        return draft.library is None and (draft.relation, draft.side) == (relation, side)

    def _store_if_costly(self, node: Node) -> None:
        """Store a free value read across edges when it is dearer to recompute than to read."""
        if self.home[node] != FREE or not node.inputs:
            return
        inner = [n for n in topological([node]) if n.inputs]
        work = max(getattr(n.op, "cost", 1) for n in inner)
        read = sum(n.type.row_bytes for n in topological([node]) if n.op.name == "input")
        if work >= RECOMPUTE_COST or read > node.type.row_bytes:
            self.home[node] = self._rows_step(node.type.space, 0)
            self.phase[node] = 0

    def _walk_step(self, relation: Relation, side: str, bound: int) -> int:
        for index in range(bound, len(self.drafts)):
            if self._walks(index, relation, side):
                return index
        self.drafts.append(Draft(relation.end(side), relation, side))
        return len(self.drafts) - 1

    def _rows_step(self, space: Space, bound: int) -> int:
        """A step at or after `bound` whose rows are `space`."""
        for index in range(bound, len(self.drafts)):
            if self.drafts[index].library is None and self.drafts[index].space == space:
                return index
        self.drafts.append(Draft(space))
        return len(self.drafts) - 1

    def _edge_phase(self, edge_value: Node, index: int) -> int:
        """The first phase of step `index` that can evaluate an edge value."""
        read = (n for n in self.leaves[edge_value] if n.op.name in ("gather", "spread"))
        sources = (leaf.inputs[0] for leaf in read)
        inside = [self.phase[s] for s in sources if self.home[s] == index]
        return max((p + 1 for p in inside), default=0)

    def _place_reduce(self, node: Node) -> None:
        relation, side = node.op.relation, node.op.side
        (message,) = node.inputs
        bound = self._earliest(message, relation, side)
        index = self._walk_step(relation, side, bound)
        phase = self._edge_phase(message, index)
        self.home[node], self.phase[node] = index, phase
        self.drafts[index].phases.setdefault(phase, []).append(node)

    def _place_total(self, node: Node) -> None:
        (value,) = node.inputs
        home = self.home[value]
        if home == FREE or self.drafts[home].space != value.type.space:
            home = self._rows_step(value.type.space, home + 1)
        self.drafts[home].totals.append(node)
        self.home[node], self.phase[node] = home, 0

    def _place_library(self, node: Node) -> None:
        for child in node.inputs:
            self._store(child)
        self.drafts.append(Draft(node.type.space, library=node))
        self.home[node], self.phase[node] = len(self.drafts) - 1, 0

    def _store(self, node: Node) -> None:
        """Make a free value an array, unless it is an input already."""
        if self.home[node] == FREE and node.op.name != "input":
            self.home[node] = self._rows_step(node.type.space, 0)
            self.phase[node] = 0

    def _place_row_value(self, node: Node) -> None:
        bound = max((self.home[child] for child in node.inputs), default=FREE)
        if bound == FREE:
            self.home[node], self.phase[node] = FREE, FREE
            return
        ready = self._ready(node.inputs, node.type.space)
        index = self._rows_step(node.type.space, ready)
        inside = [self.phase[c] for c in node.inputs if self.home[c] == index]
        self.home[node], self.phase[node] = index, max(inside, default=FREE)

    def _ready(self, inputs: tuple[Node, ...], space: Space) -> int:
        """The first step with rows of `space` that may read all inputs."""
        bound = 0
        for child in inputs:
            home = self.home[child]
            if home == FREE:
                continue
            draft = self.drafts[home]
            local = draft.library is None and draft.space == space and child.op.name not in TOTALS
            bound = max(bound, home if local else home + 1)
        return bound

    def place_output(self, node: Node) -> None:
        if node.type.space.kind == "edge":
            self._place_edge_output(node)
        elif self.home[node] == FREE:
            self.home[node] = self._rows_step(node.type.space, 0)
            self.phase[node] = 0

    def _place_edge_output(self, node: Node) -> None:
        index, phase = self._place_edge_values((node,))
        self.drafts[index].edge_stores.setdefault(phase, []).append(node)

    def _place_edge_sum(self, node: Node) -> None:
        index, phase = self._place_edge_values(node.inputs)
        self.drafts[index].outer_sums.setdefault(phase, []).append(node)
        self.home[node], self.phase[node] = index, FREE

    def _place_edge_values(self, values: tuple[Node, ...]) -> tuple[int, int]:
        """A walk, and its last phase that is ready, for edge values that no reduction takes."""
        space = values[0].type.space
        relation = next(r for r in self.program.relations if r.edge == space)
        bounds = {
            side: max(self._earliest(value, relation, side) for value in values)
            for side in ("dst", "src")
        }
        fits = [
            index
            for side, bound in bounds.items()
            for index in range(bound, len(self.drafts))
            if self._walks(index, relation, side)
        ]
        index = fits[0] if fits else self._walk_step(relation, "dst", bounds["dst"])
        ready = max(self._edge_phase(value, index) for value in values)
        return index, max(ready, max(self.drafts[index].phases, default=0))

    # collecting

    def collect(self) -> tuple[Step, ...]:
        for output in self.program.outputs:
            if output.type.space.kind != "edge":
                self._need(output)
        for index in reversed(range(len(self.drafts))):
            self._collect_reads(index)
        return tuple(self._finish(d) for d in self.drafts if self._is_live(d))

    def _need(self, node: Node) -> None:
        draft = self.drafts[self.home[node]]
        if draft.library is None and node.op.name not in TOTALS:
            draft.stores[node] = None

    def _goals(self, draft: Draft) -> list[Node]:
        if draft.library is not None:
            return list(draft.library.inputs)
        loops = [
            m
            for reading in (draft.phases, draft.outer_sums)
            for nodes in reading.values()
            for n in nodes
            for m in n.inputs
        ]
        edges = [n for nodes in draft.edge_stores.values() for n in nodes]
        totals = [n.inputs[0] for n in draft.totals]
        return [*loops, *edges, *draft.stores, *totals]

    def _collect_reads(self, index: int) -> None:
        """Find the arrays that step `index` reads, and have their steps store them."""
        draft = self.drafts[index]
        seen: set[Node] = set()
        stack = list(reversed(self._goals(draft)))
        while stack:
            node = stack.pop()
            if node in seen:
                continue
            seen.add(node)
            home = self.home.get(node, FREE)
            is_total = node.op.name in TOTALS
            if node.op.name == "input":
                draft.reads[node] = None
            elif home not in (FREE, index) or (is_total and home != index):
                draft.reads[node] = None
                self._need(node)
            elif node.op.name != "reduce":
                stack.extend(reversed(node.inputs))

    def _is_live(self, draft: Draft) -> bool:
        walks = draft.phases or draft.edge_stores or draft.outer_sums
        return bool(draft.library is not None or draft.stores or draft.totals or walks)

    def _finish(self, draft: Draft) -> Step:
        if draft.library is not None:
            return LibraryCall(draft.library)
        parts = (draft.phases, draft.edge_stores, draft.outer_sums)
        last = max((phase for part in parts for phase in part), default=FREE)
        phases = tuple(
            Phase(*(tuple(part.get(phase, ())) for part in parts)) for phase in range(last + 1)
        )
        return RowProgram(
            draft.space, draft.relation, draft.side, phases, tuple(draft.stores),
            tuple(draft.totals), tuple(draft.reads),
        )  # fmt: skip


def form(program: Program) -> Plan:
    """The plan of a canonical program: row programs and library calls in execution order."""
    return Former(program).form()
