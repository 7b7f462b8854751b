"""Sums at the far ends of a walk's edges, as a walk of their own.

A walk that carries a value from edge to edge can sum messages that only it can evaluate at the
edges' other ends. Programs of a GPU that added to the same entity would have to take turns: the
messages are stored instead, and summed in a walk over the other ends, in a fixed order.
"""

from dataclasses import replace

from tiga.passes.rows import Phase, Plan, RowProgram, Step
from tiga.trace.node import Node


def without_scatters(plan: Plan) -> Plan:
    """An equal plan none of whose walks sums at the far ends of its edges."""
    return replace(plan, steps=tuple(part for step in plan.steps for part in _parts(step)))


def _parts(step: Step) -> list[Step]:
    if not isinstance(step, RowProgram) or not step.scatters:
        return [step]
    return [replace(step, phases=tuple(map(_storing, step.phases))), _summing(step)]


def _messages(scatters: tuple[Node, ...]) -> tuple[Node, ...]:
    return tuple(dict.fromkeys(node.inputs[0] for node in scatters))


def _storing(phase: Phase) -> Phase:
    """The phase, with the messages stored that it scattered."""
    stores = tuple(dict.fromkeys((*phase.stores, *_messages(phase.scatters))))
    return replace(phase, stores=stores, scatters=())


def _summing(step: RowProgram) -> RowProgram:
    """The walk over the other ends."""
    side = "src" if step.side == "dst" else "dst"
    return RowProgram(
        space=step.other_space,
        relation=step.relation,
        side=side,
        phases=(Phase(step.scatters),),
        stores=step.scatters,
        totals=(),
        reads=_messages(step.scatters),
    )
