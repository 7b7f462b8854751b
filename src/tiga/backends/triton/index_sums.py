"""Sums of edge values by an index of the edges, which no walk adds up: of values that are stored.

A walk that leaves such a sum, the gradient of a table that edges index, stores what is added and,
where it is computed, the index. They are added as those of nodes are: into tables of few rows by
kernels (`table_sums.py`), into others by the library, which sorts them. Sums into a few numbers
never come here: they are sums over edges like others (`passes/small_tables.py`).
"""

from collections.abc import Iterator
from dataclasses import replace

from tiga.passes.rows import LibraryCall, Phase, Plan, RowProgram, Step
from tiga.trace.node import Node
from tiga.trace.origin import Origin


def is_index_sum(node: Node) -> bool:
    """Whether a value is the sums of rows by an index."""
    return node.op.by_index and node.op.origin is Origin.OUTER


def index_sums_apart(plan: Plan) -> Plan:
    """An equal plan none of whose walks sums by an index."""
    return replace(plan, steps=tuple(part for step in plan.steps for part in _parts(step)))


def sums_of_edges(plan: Plan) -> tuple[Node, ...]:
    """The sums by an index whose operands are arrays of edges."""
    written = (node for step in plan.steps for node in step.writes if is_index_sum(node))
    return tuple(n for n in written if n.inputs[0].type.on_edges)


def _parts(step: Step) -> list[Step]:
    if not isinstance(step, RowProgram):
        return [step]
    sums = [node for node in step.outer_sums if node.op.by_index]
    if not sums:
        return [step]
    phases = tuple(_storing(phase, step) for phase in step.phases)
    walk = replace(step, phases=phases)
    calls = [LibraryCall(node) for node in sums]
    return [*([walk] if walk.writes else []), *calls]


def _storing(phase: Phase, step: RowProgram) -> Phase:
    """The phase, with the operands of its sums by index stored."""
    kept = tuple(node for node in phase.outer_sums if not node.op.by_index)
    stores = tuple(dict.fromkeys((*phase.stores, *_operands(phase, step))))
    return replace(phase, stores=stores, outer_sums=kept)


def _operands(phase: Phase, step: RowProgram) -> Iterator[Node]:
    """What is added up, and by what, where that is no array yet."""
    for node in phase.outer_sums:
        if node.op.by_index:
            yield from (operand for operand in node.inputs if operand not in step.reads)
