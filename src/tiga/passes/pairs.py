"""Pairs of walks: two steps over the same rows run together, block of rows by block of rows.

What the first stores for the second's own rows then lives for a block, not as an array. A gradient
with respect to a field of both ends is such a pair: the sum over a node's incoming edges is kept
for the sum over its outgoing ones. It may wait in the memory of the result instead, but for 16-bit
fields, whose sums are wider.
"""

from dataclasses import dataclass
from functools import cached_property

from tiga.passes.roles import roles_of
from tiga.passes.rows import Plan, RowProgram, Step
from tiga.trace.node import Node

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
