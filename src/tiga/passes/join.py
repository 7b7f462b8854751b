"""Join walks: two steps over the same rows run together, block of rows by block of rows.

What the first stores for the second's own rows then lives for a block, not as an array. A gradient
with respect to a field of both ends is such a pair: the sum over a node's incoming edges is kept
for the sum over its outgoing ones. It may wait in the memory of the result instead, but for 16-bit
fields, whose sums are wider.

Where the first step also stores what the second reads across edges, that part of it is split off.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from tiga.passes.base import Pass
from tiga.passes.roles import roles_of
from tiga.passes.rows import Phase, Plan, RowProgram, Step
from tiga.trace.node import Node, reached
from tiga.trace.origin import Origin

BLOCK_BYTES = 16384
"""What one block of rows may keep: it lies on the stack, and stays in the first cache."""


@dataclass(frozen=True)
class Pair:
    """Two steps that follow one another in a plan."""

    plan: Plan
    first: RowProgram
    second: RowProgram

    @cached_property
    def kept(self) -> tuple[Node, ...]:
        """What only the second reads, at its own rows."""
        later = self.plan.steps[self.plan.steps.index(self.second) + 1 :]
        wanted = {*self.plan.outputs, *(n for step in later for n in step.reads)}
        read = set(self.second.reads) - set(self.across) - wanted
        return tuple(n for n in self.first.stores if n in read)

    @cached_property
    def across(self) -> tuple[Node, ...]:
        """What the second reads at other rows."""
        roles = roles_of(self.second)
        far = roles.others | roles.edges | (set(self.second.reads) - roles.rows)
        return tuple(n for n in self.first.writes if n in far and n in self.second.reads)

    @property
    def keeps_little(self) -> bool:
        """Whether a row's values fit a block."""
        return 0 < sum(n.type.row_bytes for n in self.kept) <= BLOCK_BYTES

    @property
    def joins(self) -> bool:
        """Whether the two run together.

        Apart is faster, as each then reads fewer arrays at random: what can wait in an output does.
        """
        return self.keeps_little and not self.across and not self.waits_in_an_output

    @property
    def waits_in_an_output(self) -> bool:
        """Whether what is kept can wait in memory that the second writes."""
        places = [(n.type.size, n.type.dtype.itemsize) for n in self.second.stores]
        return all((n.type.size, n.type.dtype.itemsize) in places for n in self.kept)


def pair(plan: Plan, number: int) -> Pair | None:
    """Step `number` and the next, if both are walks of one relation that only sum up rows."""
    first, second = plan.steps[number], plan.steps[number + 1]
    if not (isinstance(first, RowProgram) and isinstance(second, RowProgram)):
        return None
    same = first.space == second.space and first.relation == second.relation is not None
    return Pair(plan, first, second) if same and _is_plain(first) and _is_plain(second) else None


def _is_plain(step: RowProgram) -> bool:
    return not (step.has_sums or step.scans or step.scatters)


def joined(plan: Plan) -> frozenset[Step]:
    """The steps that run together with their next one."""
    found: list[Step] = []
    for number in range(len(plan.steps) - 1):
        both = pair(plan, number)
        taken = number and plan.steps[number - 1] in found
        if both is not None and both.joins and not taken:
            found.append(both.first)
    return frozenset(found)


def _split(both: Pair) -> Sequence[Step]:
    first = both.first
    if not both.across or not both.keeps_little or both.waits_in_an_output:
        return [first]
    count = max(_phases_before(first, node) for node in both.across)
    early = tuple(n for n in first.stores if _phases_before(first, n) <= count)
    late = tuple(n for n in first.stores if n not in early)
    begins = _made(first, first.phases[:count], early, first.reads)
    ends = _made(first, first.phases[count:], late, (*first.reads, *early))
    kept_apart = set(both.across) <= set(early) and not set(early) & set(both.kept)
    return [first] if begins is None or ends is None or not kept_apart else [begins, ends]


def _phases_before(step: RowProgram, node: Node) -> int:
    """How many phases of a step must have run before it knows a row value."""
    phases = reversed(list(enumerate(step.phases, 1)))
    after = {n: number for number, phase in phases for n in phase.reductions}

    def is_known(n: Node) -> bool:
        return n in after or n in step.reads or n.type.space.kind == "edge"

    return max(after.get(n, 0) for n in reached([node], is_known))


def _made(
    step: RowProgram, phases: tuple[Phase, ...], stores: tuple[Node, ...], known: Sequence[Node]
) -> RowProgram | None:
    """A part of a step; None if it needs a reduction of the other part."""
    own = {n for phase in phases for n in phase.reductions}
    there = own | (set(known) - set(stores))
    goals = (*(n for phase in phases for n in phase.edge_values), *stores)
    found = set(reached(goals, lambda n: n in there or n.op.origin is Origin.ROW))
    if any(n.op.origin is Origin.ROW for n in found - there):
        return None
    reads = tuple(n for n in known if n in found and n not in own and n not in stores)
    relation, side = (step.relation, step.side) if phases else (None, "dst")
    return RowProgram(step.space, relation, side, phases, stores, (), reads)


@dataclass(frozen=True)
class SplitRows(Pass, name="gf-split-rows", takes=Plan):
    """Split walks so that their last part can run together with the next walk of the rows."""

    def __call__(self, form: Plan) -> Plan:
        steps = list(form.steps)
        for number in reversed(range(len(form.steps) - 1)):
            both = pair(form, number)
            if both is not None:
                steps[number : number + 1] = _split(both)
        return replace(form, steps=tuple(steps))
