"""Tell what a plan does: kernels, what each reads, reduces and stores, library calls, bytes."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping

from tiga.passes.base import ScheduledPlan
from tiga.passes.buffers import Placement, place
from tiga.passes.rows import LibraryCall, Plan, RowProgram, Step
from tiga.passes.schedule import Schedule, evaluated
from tiga.trace.node import Node
from tiga.trace.origin import Origin
from tiga.types import GLOBAL, Space


def explain(
    scheduled: ScheduledPlan,
    extents: Mapping[Space, int] | None = None,
    own_products: Collection[Node] = (),
    placed: Placement | None = None,
) -> str:
    """The plan in words; with the extents of a call also its bytes beside inputs and outputs.

    `own_products` are products of the plan that the backend does with kernels, not a library;
    `placed` says where that call had the values between steps.
    """
    plan, schedules = scheduled.plan, dict(scheduled.schedules)
    lines = [_headline(plan, own_products)]
    for number, step in enumerate(plan.steps):
        told = list(_step(plan, step, schedules, own_products))
        lines += [f"step {number}: {told[0]}", *(f"  {line}" for line in told[1:])]
    placed = place(scheduled, together=True) if placed is None else placed
    lines += _memory(plan, placed, extents)
    return "\n".join(lines)


def _headline(plan: Plan, own_products: Collection[Node]) -> str:
    steps = [s for s in plan.steps if not _is_empty(s)]
    called = [s for s in steps if isinstance(s, LibraryCall) and s.node not in own_products]
    calls, kernels = len(called), len(steps) - len(called)
    return f"{_count(kernels, 'kernel')}, {_count(calls, 'library call')}"


def _is_empty(step: Step) -> bool:
    """Whether a step stands for a value without elements."""
    return isinstance(step, LibraryCall) and not step.node.type.size


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _step(
    plan: Plan, step: Step, schedules: Mapping[Step, Schedule], own_products: Collection[Node]
) -> Iterator[str]:
    if _is_empty(step):
        yield f"nothing: {_values(step.writes, plan)} has no elements"
        return
    if isinstance(step, LibraryCall):
        what = "product kernel" if step.node in own_products else "library call"
        yield f"{what}: {_call(step.node)}{_where(step.node)}"
        return
    yield _rows(step, schedules[step])
    if step.reads:
        yield f"reads {_values(step.reads, plan)}"
    for number, phase in enumerate(step.phases):
        done = [f"{n.op.kind} of {_short(n)}{_where(n.inputs[0])}" for n in phase.reductions]
        done += [f"scan of {_short(s.before)}" for s in phase.scans]
        done += [f"{_sum(n)} {_short(n)}" for n in phase.outer_sums]
        done += [f"scattered {n.op.kind} of {_short(n)}" for n in phase.scatters]
        done += [f"edge value {_short(n)} stored" for n in phase.stores]
        yield f"phase {number}: {'; '.join(done)}"
    yield f"fuses {_fused(step)}"
    if step.writes:
        yield f"writes {_values(step.writes, plan)}"


def _sum(node: Node) -> str:
    return "sums by index" if node.op.by_index else "sum of outer products"


def _rows(step: RowProgram, schedule: Schedule) -> str:
    if step.relation is None:
        return f"rows of {step.space}, {schedule}"
    joins = ", together with the next" if schedule.joins_next else ""
    return f"walk of {step.relation.name}, rows = {step.side}, {schedule}{joins}"


def _call(node: Node) -> str:
    inputs = " by ".join(_short(n) for n in node.inputs)
    return f"{node.op.name} of {inputs}"


def _short(node: Node) -> str:
    return repr(node.type)


def _where(node: Node) -> str:
    return f" ({node.where})" if node.where else ""


def _values(nodes: Iterable[Node], plan: Plan) -> str:
    return ", ".join(f"{_name(n, plan)} {_short(n)}" for n in nodes)


def _name(node: Node, plan: Plan) -> str:
    if node.op.origin is Origin.ARGUMENT:
        return node.op.label
    if node in plan.outputs:
        return f"output {plan.outputs.index(node)}"
    return "stored value"


_COMPUTED = (Origin.OPERANDS, Origin.DEGREE, Origin.POSITION)
"""Where values come from of which the lines of phases, reads and writes do not tell."""


def _fused(step: RowProgram) -> str:
    """How many of which ops the kernel evaluates."""
    computed = (n.op for n in evaluated(step) if n.op.origin in _COMPUTED)
    names = Counter(op.name for op in computed if not op.is_view)
    parts = (name if count == 1 else f"{count} {name}" for name, count in sorted(names.items()))
    return ", ".join(parts) or "nothing else"


def allocated_bytes(placed: Placement, extents: Mapping[Space, int]) -> int:
    """Bytes that a run takes for the values that steps store for one another."""
    return sum(_bytes(n, extents) for n in placed.allocated)


def _memory(plan: Plan, placed: Placement, extents: Mapping[Space, int] | None) -> Iterator[str]:
    if not plan.intermediates:
        yield "stores nothing between steps"
        return
    per_space: Counter[Space] = Counter()
    for node in placed.allocated:
        per_space[node.type.space] += node.type.row_bytes
    parts = (
        f"{size} B" if space == GLOBAL else f"{size} B per {space} row"
        for space, size in per_space.items()
    )
    yield f"stores between steps: {', '.join(parts) or 'nothing in memory of its own'}"
    for node in plan.intermediates:
        yield f"  {_life(node, plan)}, {_home(node, plan, placed, extents)}"
    if extents is not None:
        yield f"at the last call: {allocated_bytes(placed, extents):,} B between steps"


def _life(node: Node, plan: Plan) -> str:
    """A value, and from which step to which it is needed."""
    written = next(i for i, step in enumerate(plan.steps) if node in step.writes)
    read = max(i for i, step in enumerate(plan.steps) if node in step.reads)
    return f"{_short(node)}, step {written} to {read}"


def _home(node: Node, plan: Plan, placed: Placement, extents: Mapping[Space, int] | None) -> str:
    """Where a value is."""
    if node in placed.local:
        return "a block of rows at a time"
    host = placed.hosts[node]
    if host is not node:
        return f"in the memory of {_name(host, plan)} {_short(host)}"
    return "an array" if extents is None else f"an array of {_bytes(node, extents):,} B"


def _bytes(node: Node, extents: Mapping[Space, int]) -> int:
    return extents[node.type.space] * node.type.row_bytes
