"""Matrices that are parts of others, or others turned: walks read them where they lie.

A plan has such a matrix copied by a library call, which on a GPU takes the host longer than kernels
take to read it at other strides.
"""

from dataclasses import replace

from tiga.backends.triton.products import MOVES, view_of
from tiga.passes.rows import LibraryCall, Plan, RowProgram, Step
from tiga.passes.schedule import evaluated
from tiga.trace.node import Node
from tiga.types import GLOBAL


def with_matrices_in_place(plan: Plan) -> Plan:
    """An equal plan whose walks read parts of matrices from the whole."""
    sources = {n: s for n in _moved(plan) if (s := source_of(n)) and view_of(n, (s,)) is not None}
    if not sources:
        return plan
    steps = [_in_place(step, sources) for step in plan.steps]
    needed, kept = set(plan.outputs), list[Step]()
    for step in reversed(steps):
        if isinstance(step, LibraryCall) and step.node in sources and step.node not in needed:
            continue
        needed.update(step.reads)
        kept.append(step)
    return replace(plan, steps=tuple(reversed(kept)))


def _moved(plan: Plan) -> list[Node]:
    """The matrices that library calls make of others by moving elements."""
    calls = (step.node for step in plan.steps if isinstance(step, LibraryCall))
    return [n for n in calls if n.type.space == GLOBAL and isinstance(n.op, MOVES)]


def source_of(matrix: Node) -> Node:
    """The array that a matrix is a part of."""
    while isinstance(matrix.op, MOVES):
        (matrix,) = matrix.inputs
    return matrix


def _in_place(step: Step, sources: dict[Node, Node]) -> Step:
    if not isinstance(step, RowProgram) or not sources.keys() & set(step.reads):
        return step
    elsewhere = {n for one in evaluated(step) for n in _values_of(one)}
    elsewhere.update((*step.stores, *(n.inputs[0] for n in step.totals)))
    reads = (n if n in elsewhere else sources.get(n, n) for n in step.reads)
    return replace(step, reads=tuple(dict.fromkeys(reads)))


def _values_of(node: Node) -> tuple[Node, ...]:
    """The operands that are no matrices of products."""
    if node.op.table is None or node.op.by_index:
        return node.inputs
    return tuple(x for i, x in enumerate(node.inputs) if i != node.op.table)
