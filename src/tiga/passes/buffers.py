"""Buffers: whose memory each value between steps takes, so that few arrays exist at once.

A value may take the memory of an output before that is written, of an input that nobody needs any
more, or of a value that the last step to read it has read. Where that very step writes the new
value, it may do so in place if it reads the old one at its own rows only: a kernel evaluates all
values of a row before it stores any.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from tiga.passes.base import ScheduledPlan
from tiga.passes.roles import roles_of
from tiga.passes.rows import Plan, RowProgram, Step
from tiga.trace.node import Node
from tiga.types import GLOBAL, Space, Type

BEFORE = -1
"""The time at which inputs are written."""


@dataclass(frozen=True)
class Placement:
    """Where the values between steps are.

    `hosts` maps each to the value whose memory it takes: an output, an input, an earlier value, or
    itself, which is then memory of the run's own. `local` are those that need none: they go from
    one step to the next within a block of rows.
    """

    hosts: Mapping[Node, Node]
    local: frozenset[Node] = frozenset()

    @property
    def allocated(self) -> tuple[Node, ...]:
        """The values that are given memory of the run's own."""
        return tuple(node for node, host in self.hosts.items() if node is host)


@dataclass(frozen=True)
class Lifetimes:
    """When the values of a plan are written, and read for the last time.

    Steps of one time run together, block of rows by block of rows.
    """

    scheduled: ScheduledPlan
    together: bool

    @property
    def plan(self) -> Plan:
        return self.scheduled.plan

    @cached_property
    def times(self) -> tuple[int, ...]:
        """The time of each step."""
        schedules, times, now = dict(self.scheduled.schedules), list[int](), 0
        for step in self.plan.steps:
            times.append(now)
            schedule = schedules.get(step)
            now += not (self.together and schedule is not None and schedule.joins_next)
        return tuple(times)

    @cached_property
    def written(self) -> dict[Node, int]:
        """The position of the step that writes each value."""
        return {node: i for i, step in enumerate(self.plan.steps) for node in step.writes}

    @cached_property
    def last_read(self) -> dict[Node, int]:
        """The position of the last step that reads each value; outputs are read by the caller."""
        read = {node: i for i, step in enumerate(self.plan.steps) for node in step.reads}
        return read | dict.fromkeys(self.plan.outputs, len(self.plan.steps))

    def begins(self, node: Node) -> int:
        step = self.written.get(node)
        return BEFORE if step is None else self.times[step]

    def ends(self, node: Node) -> int:
        step = self.last_read.get(node, BEFORE)
        read = self.times[step] if BEFORE < step < len(self.times) else step
        return max(read, self.begins(node))

    def follows(self, old: Node, new: Node) -> bool:
        """Whether `new` may be written where `old` is."""
        if self.ends(old) != self.begins(new):
            return self.ends(old) < self.begins(new)
        return self.begins(old) < self.begins(new) and self._in_place(old, new)

    def _in_place(self, old: Node, new: Node) -> bool:
        """Whether the step that reads `old` for the last time can write `new` over it."""
        writer = self.written[new]
        if _layout(old.type) != _layout(new.type):
            return False
        if self.last_read[old] > writer or new not in _row_stores(self.plan.steps[writer]):
            return False
        now = self.times[writer]
        steps = [s for s, time in zip(self.plan.steps, self.times, strict=True) if time == now]
        return all(self._reads_rows_only(step, old) for step in steps if old in step.reads)

    def _reads_rows_only(self, step: Step, node: Node) -> bool:
        if not isinstance(step, RowProgram) or node.type.space == GLOBAL:
            return False
        # One window of features after the other would read a narrow value again.
        again = node.type.size == 1 and dict(self.scheduled.schedules)[step].window
        roles = roles_of(step)
        return node in roles.rows and node not in (roles.others | roles.edges) and not again

    def local(self) -> frozenset[Node]:
        """Values that only steps of their own time read."""
        return frozenset(n for n in self.plan.intermediates if self.begins(n) == self.ends(n))


def _layout(of: Type) -> tuple[Space, int, int]:
    """What decides where in an array the elements of an entity lie."""
    return of.space, of.size, of.dtype.itemsize


def _row_stores(step: Step) -> Sequence[Node]:
    return step.stores if isinstance(step, RowProgram) else ()


def place(
    scheduled: ScheduledPlan, unneeded: Iterable[Node] = (), together: bool = False
) -> Placement:
    """Whose memory the values between steps take.

    Args:
        scheduled: the plan, with the schedules of its row programs.
        unneeded: inputs that the caller lets a run write over once it has read them.
        together: whether steps that are scheduled so do run together.
    """
    lives = Lifetimes(scheduled, together)
    plan, inputs = scheduled.plan, set(scheduled.plan.inputs)
    given = set(unneeded).difference(plan.outputs)
    hosted = {n: [n] for n in (*plan.outputs, *given) if n not in inputs or n in given}
    hosts: dict[Node, Node] = {}
    local = lives.local()
    for node in plan.intermediates:
        if node in local:
            continue
        hosts[node] = next((h for h, held in hosted.items() if _fits(lives, node, h, held)), node)
        hosted.setdefault(hosts[node], []).append(node)
    return Placement(hosts, local)


def _fits(lives: Lifetimes, node: Node, host: Node, held: Sequence[Node]) -> bool:
    if host.type.space != node.type.space or host.type.row_bytes < node.type.row_bytes:
        return False
    return all(lives.follows(other, node) or lives.follows(node, other) for other in held)
