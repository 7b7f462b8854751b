"""Split rows: where a walk stores what the next one reads across edges, that part of it is split
off, so that the rest can run together with the next."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tiga.passes.base import Pass
from tiga.passes.pairs import Pair, pair
from tiga.passes.rows import Phase, Plan, RowProgram, Step
from tiga.trace.node import Node, reached
from tiga.trace.origin import Origin


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
        return n in after or n in step.reads or n.type.on_edges

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
