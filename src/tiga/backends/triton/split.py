"""Split row programs of which kernels compute the parts better than the whole.

Sums of outer products get a walk of their own: a matrix of sums beside the products and sums of
rows takes more registers than there are. Totals of walks get a step of their own: a program with
few tiles in turn hides less of what it waits for, and pages of a graph in a file know no order of
all rows but their own. Values of rows that mix features, before or after a walk whose edge values
do not, get steps too: then the walk may take windows.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from tiga.backends.triton.schedule import flat_size, in_registers, is_window_safe
from tiga.passes.rows import Phase, Plan, RowProgram, Step
from tiga.passes.schedule import cone
from tiga.passes.wide_sums import LARGEST
from tiga.trace.node import Node, reached
from tiga.trace.origin import Origin
from tiga.types import GLOBAL, Space

TOGETHER = 2 * LARGEST
"""Elements of matrices that one walk sums side by side."""

FREE = (Origin.ARGUMENT, Origin.NUMBER, Origin.DEGREE, Origin.GLOBAL)
"""Where values come from that every kernel has without an array that a step must store for it."""


def split(plan: Plan) -> Plan:
    """An equal plan of the steps that kernels are written for."""
    steps = [part for step in plan.steps for part in _parts(step)]
    return replace(plan, steps=tuple(steps))


def _parts(step: Step) -> list[Step]:
    if not isinstance(step, RowProgram) or step.relation is None or step.scans or step.scatters:
        return [step]
    apart = [part for walk in _outer_apart(step) for part in _few_at_a_time(walk)]
    walks = [part for walk in apart for part in _totals_apart(walk)]
    return [part for walk in walks for part in _mixing_apart(walk)]


# what a step reads


def _evaluated(goals: Iterable[Node], reads: set[Node]) -> list[Node]:
    """What goals are made of, down to arrays and to what loops over edges leave at the row."""
    left = (Origin.ROW, Origin.TOTAL)
    return list(reached(goals, lambda n: n in reads or n.op.origin in left))


def _with_reads(program: RowProgram, arrays: Iterable[Node]) -> RowProgram:
    """The program with those of `arrays` for its reads that it does read."""
    known = tuple(dict.fromkeys(arrays))
    needed = set(cone(replace(program, reads=known)))
    return replace(program, reads=tuple(n for n in known if n in needed))


# sums of outer products


def _outer_apart(program: RowProgram) -> list[RowProgram]:
    """The walk without its sums of outer products, and one with these alone."""
    if not program.outer_sums or not (program.stores or program.totals):
        return [program]
    reads = set(program.reads)
    goals = [n for node in program.outer_sums for n in node.inputs]
    kept = [
        n.inputs[0]
        for n in _evaluated(goals, reads)
        if n.op.origin is Origin.END and _needs_walk(n.inputs[0], reads)
    ]
    phases = tuple(replace(phase, outer_sums=()) for phase in program.phases)
    while phases and phases[-1] == Phase(()):
        phases = phases[:-1]
    stores = tuple(dict.fromkeys((*program.stores, *kept)))
    rest = _with_reads(replace(program, phases=phases, stores=stores), program.reads)
    alone = replace(
        program, phases=(Phase((), outer_sums=program.outer_sums),), stores=(), totals=()
    )
    return [rest, _with_reads(alone, (*program.reads, *kept))]


def _few_at_a_time(program: RowProgram) -> list[RowProgram]:
    """A walk for its sums of outer products alone, or several with as many as fit one."""
    sums = program.outer_sums
    if program.stores or program.totals or sum(n.type.size for n in sums) <= TOGETHER:
        return [program]
    groups: list[list[Node]] = [[]]
    for node in sums:
        if groups[-1] and sum(n.type.size for n in (*groups[-1], node)) > TOGETHER:
            groups.append([])
        groups[-1].append(node)
    return [_with_reads(_with_sums(program, group), program.reads) for group in groups]


def _with_sums(program: RowProgram, sums: list[Node]) -> RowProgram:
    phases = (
        replace(phase, outer_sums=tuple(n for n in phase.outer_sums if n in sums))
        for phase in program.phases
    )
    return replace(program, phases=tuple(phases))


def _needs_walk(node: Node, reads: set[Node]) -> bool:
    """Whether a value of a row depends on what a loop over the row's edges leaves."""
    if node in reads:
        return False
    return any(n.op.origin is Origin.ROW and n not in reads for n in _evaluated([node], reads))


# totals


def _totals_apart(program: RowProgram) -> list[RowProgram]:
    """A walk that stores what its totals add up, and rows that do: in their own order, whichever
    order the walk takes them in, and whatever part of the graph it has in memory."""
    if not program.totals:
        return [program]
    reads = set(program.reads)
    known: dict[Node, list[Node]] = {}
    values = [n for total in program.totals for n in _smallest(total.inputs[0], reads, known)]
    stores = tuple(dict.fromkeys((*program.stores, *values)))
    walk = _with_reads(replace(program, stores=stores, totals=()), program.reads)
    return [walk, _plain_rows(program, program.totals, program.space, values)]


def _smallest(node: Node, reads: set[Node], known: dict[Node, list[Node]]) -> list[Node]:
    """The values of rows to store so that another step knows this one, which it may make again;
    for those that were met before they are `known`."""
    if node not in known:
        known[node] = _smallest_of(node, reads, known)
    return known[node]


def _smallest_of(node: Node, reads: set[Node], known: dict[Node, list[Node]]) -> list[Node]:
    if node in reads or node.op.origin in FREE or node.type.space == GLOBAL:
        return []
    if node.op.origin is Origin.ROW or not _is_within(node):
        return [node]
    found = (n for child in node.inputs for n in _smallest(child, reads, known))
    below = list(dict.fromkeys(found))
    smaller = sum(n.type.row_bytes for n in below) < node.type.row_bytes
    return below if smaller else [node]


def _is_within(node: Node) -> bool:
    """Whether a value is made element by element, or moved, within its entity."""
    return bool(node.op.pointwise or node.op.moves)


# values of rows that mix features


@dataclass(frozen=True)
class _Rows:
    """The values of nodes around a walk with features of size `whole`, told apart. What is found
    is kept, as values are reached on many ways: as many as 2^depth in gradients of gradients."""

    reads: set[Node]
    whole: int
    made_before: dict[Node, dict[Node, None]] = field(default_factory=dict)
    borders: dict[Node, dict[Node, None]] = field(default_factory=dict)

    def is_plain(self, node: Node) -> bool:
        """Whether the walk may evaluate the value of a node in windows of features."""
        return all(
            n.type.size in (1, self.whole)
            and (n in self.reads or n.op.origin is Origin.ROW or is_window_safe(n))
            for n in _evaluated([node], self.reads)
        )

    def before(self, node: Node) -> dict[Node, None]:
        """The values that a step before the walk makes for this one."""
        found = self.made_before.get(node)
        if found is None:
            found = self.made_before[node] = self._before(node)
        return found

    def _before(self, node: Node) -> dict[Node, None]:
        if node in self.reads or self.is_plain(node):
            return {}
        if not _needs_walk(node, self.reads):
            return {node: None}
        return {n: None for child in node.inputs for n in self.before(child)}

    def made_plain(self, node: Node) -> dict[Node, None]:
        """The values that a step before the walk makes so that the walk may evaluate this one."""
        before = self.before(node)
        return before if _Rows(self.reads.union(before), self.whole).is_plain(node) else {}

    def border(self, node: Node) -> dict[Node, None]:
        """The values that a step after the walk needs of it for this one."""
        found = self.borders.get(node)
        if found is None:
            found = self.borders[node] = self._border(node)
        return found

    def _border(self, node: Node) -> dict[Node, None]:
        if node in self.reads or node.op.origin in FREE or node.type.space == GLOBAL:
            return {}
        if _needs_walk(node, self.reads) and self.is_plain(node):
            return {node: None}
        return {n: None for child in node.inputs for n in self.border(child)}


def _mixing_apart(program: RowProgram) -> list[RowProgram]:
    """Rows before, the walk, rows after."""
    if program.relation is None or flat_size(program, in_registers(program)):
        return [program]
    edges = [n for phase in program.phases for n in phase.edge_values]
    reads = set(program.reads)
    whole = max((n.type.size for n in edges), default=1)
    rows = _Rows(reads, whole)
    gathered = [n.inputs[0] for n in _evaluated(edges, reads) if n.op.origin is Origin.END]
    goals = (*program.stores, *program.totals)
    needed = [n for source in gathered for n in rows.before(source)]
    needed += [n for goal in goals for n in rows.made_plain(_value(goal))]
    before = tuple(dict.fromkeys(needed))
    rows = _Rows(reads.union(before), whole)
    after = tuple(n for n in goals if not rows.is_plain(_value(n)))
    border = [n for goal in after for n in rows.border(_value(goal))]
    stores = tuple(dict.fromkeys((*(n for n in program.stores if n not in after), *border)))
    totals = tuple(n for n in program.totals if n not in after)
    walk = replace(program, stores=stores, totals=totals)
    walk = _with_reads(walk, (*program.reads, *before))
    if not flat_size(walk, in_registers(walk)):
        return [program]
    first = [_plain_rows(program, before, space) for space in _spaces(before)]
    last = [_plain_rows(program, after, program.space, (*before, *border))] if after else []
    return [*first, walk, *last]


def _value(goal: Node) -> Node:
    """What a step evaluates at its rows for a store or a total."""
    return goal.inputs[0] if goal.op.origin is Origin.TOTAL else goal


def _spaces(nodes: Iterable[Node]) -> list[Space]:
    return list(dict.fromkeys(n.type.space for n in nodes))


def _plain_rows(
    program: RowProgram, goals: Iterable[Node], space: Space, arrays: Iterable[Node] = ()
) -> RowProgram:
    """A step without a walk that computes those goals that are of a space."""
    own = [n for n in goals if n.type.space == space or n.op.origin is Origin.TOTAL]
    totals = tuple(n for n in own if n.op.origin is Origin.TOTAL)
    stores = tuple(n for n in own if n.op.origin is not Origin.TOTAL)
    made = RowProgram(space, None, "dst", (), stores, totals, ())
    return _with_reads(made, (*program.reads, *arrays))
