"""Form row programs: decide for every value which walk computes it, in which phase.

A reduction belongs to a walk of its relation with its rows. What it needs of the *same* rows may
come from the same walk, one phase earlier; what it needs of the other end, of another walk or of
a library call must be stored by an earlier step. Values of nodes that need no walk are free: they
are recomputed where they are read, or stored first where recomputing costs more than reading.
"""

from dataclasses import dataclass, field

from tiga.errors import Unfusable
from tiga.passes.rows import LibraryCall, Phase, Plan, RowProgram, Step
from tiga.trace.node import Node, topological
from tiga.trace.program import Program
from tiga.types import Relation, Space

FREE = -1
"""The home of inputs, constants and of values computed from them without a walk."""

RECOMPUTE_COST = 4
"""A free value with an op of at least this cost is stored before it is read across edges."""

LIBRARY_OPS = ("contract", "outer_sum")


@dataclass
class Draft:
    """A step under construction."""

    space: Space
    relation: Relation | None = None
    side: str = "dst"
    library: Node | None = None
    phases: dict[int, list[Node]] = field(default_factory=dict)
    edge_stores: dict[int, list[Node]] = field(default_factory=dict)
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
        elif node.op.name == "reduce":
            self._place_reduce(node)
        elif node.op.name == "reduce_all":
            self._place_total(node)
        elif node.op.name in LIBRARY_OPS:
            self._place_library(node)
        else:
            self._place_row_value(node)

    def _edge_leaves(self, node: Node) -> tuple[Node, ...]:
        """The gathers, spreads and edge inputs that an edge value is made of."""
        if node.op.name in LIBRARY_OPS:
            raise Unfusable(f"{node.op.name} of an edge value", node.where)
        if node.op.name in ("gather", "spread", "input"):
            return (node,)
        found = (leaf for child in node.inputs for leaf in self.leaves[child])
        return tuple(dict.fromkeys(found))

    def _earliest(self, edge_value: Node, relation: Relation, side: str) -> int:
        """The first step index at which a walk may evaluate an edge value."""
        bound = 0
        for leaf in self.leaves[edge_value]:
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
        sources = (leaf.inputs[0] for leaf in self.leaves[edge_value] if leaf.inputs)
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
            local = draft.library is None and draft.space == space and child.op.name != "reduce_all"
            bound = max(bound, home if local else home + 1)
        return bound

    def place_output(self, node: Node) -> None:
        if node.type.space.kind == "edge":
            self._place_edge_output(node)
        elif self.home[node] == FREE:
            self.home[node] = self._rows_step(node.type.space, 0)
            self.phase[node] = 0

    def _place_edge_output(self, node: Node) -> None:
        relation = next(r for r in self.program.relations if r.edge == node.type.space)
        bounds = {side: self._earliest(node, relation, side) for side in ("dst", "src")}
        fits = [
            index
            for side, bound in bounds.items()
            for index in range(bound, len(self.drafts))
            if self._walks(index, relation, side)
        ]
        index = fits[0] if fits else self._walk_step(relation, "dst", bounds["dst"])
        phase = self._edge_phase(node, index)
        phase = max(phase, max(self.drafts[index].phases, default=0))
        self.drafts[index].edge_stores.setdefault(phase, []).append(node)

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
        if draft.library is None and node.op.name != "reduce_all":
            draft.stores[node] = None

    def _goals(self, draft: Draft) -> list[Node]:
        if draft.library is not None:
            return list(draft.library.inputs)
        loops = [m for nodes in draft.phases.values() for n in nodes for m in n.inputs]
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
            is_total = node.op.name == "reduce_all"
            if node.op.name == "input":
                draft.reads[node] = None
            elif home not in (FREE, index) or (is_total and home != index):
                draft.reads[node] = None
                self._need(node)
            elif node.op.name != "reduce":
                stack.extend(reversed(node.inputs))

    def _is_live(self, draft: Draft) -> bool:
        walks = draft.phases or draft.edge_stores
        return bool(draft.library is not None or draft.stores or draft.totals or walks)

    def _finish(self, draft: Draft) -> Step:
        if draft.library is not None:
            return LibraryCall(draft.library)
        last = max((*draft.phases, *draft.edge_stores), default=FREE)
        phases = tuple(
            Phase(tuple(draft.phases.get(p, ())), tuple(draft.edge_stores.get(p, ())))
            for p in range(last + 1)
        )
        return RowProgram(
            draft.space, draft.relation, draft.side, phases, tuple(draft.stores),
            tuple(draft.totals), tuple(draft.reads),
        )  # fmt: skip


def form(program: Program) -> Plan:
    """The plan of a canonical program: row programs and library calls in execution order."""
    return Former(program).form()
