"""What the steps of a plan ask of arrays over entities, whatever memory there is."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from tiga.backends.triton.executable import Executable
from tiga.passes.roles import roles_of
from tiga.passes.rows import LibraryCall, RowProgram
from tiga.trace.node import Node
from tiga.types import GLOBAL

FAR = 64
"""Numbers of a task lead far where they span one part in so many of an array."""


@dataclass(frozen=True)
class Needs:
    """What a plan asks of arrays over entities, whatever memory there is."""

    executable: Executable

    @cached_property
    def whole(self) -> frozenset[Node]:
        """Operands of what takes no pages: library calls."""
        return self._of(lambda step: isinstance(step, LibraryCall))

    @cached_property
    def summed(self) -> frozenset[Node]:
        """Operands of rows without edges that add to sums, whose order in one page is that in
        memory."""
        return self._of(
            lambda step: (
                not isinstance(step, LibraryCall) and step.relation is None and step.has_sums
            )
        )

    def _of(self, wanted: Callable[[LibraryCall | RowProgram], bool]) -> frozenset[Node]:
        steps = filter(wanted, self.executable.plan.steps)
        return _entities(node for step in steps for node in (*step.reads, *step.writes))

    @property
    def _walks(self) -> list[RowProgram]:
        steps = self.executable.plan.steps
        return [s for s in steps if isinstance(s, RowProgram) and s.relation is not None]

    def far(self, graph: Any) -> frozenset[Node]:
        """Arrays that walks read by numbers which lead far, so that pages would read much of the
        array each."""
        return _entities(
            node
            for step in self._walks
            for group, column in zip(_by_number(step), (1, 3), strict=True)
            if is_far(graph.walks[step.side].tasks, column)
            for node in group
        )


def _by_number(step: RowProgram) -> tuple[frozenset[Node], frozenset[Node]]:
    """What a walk reads by indices, and by numbers of edges."""
    roles = roles_of(step)
    return roles.others, roles.edges if step.side == "src" else frozenset()


def is_far(tasks: np.ndarray, column: int) -> bool:
    """Whether the numbers of a task lead over much of what they number: `column` of the table of
    tasks has the least, the next the end."""
    sizes = tasks[:-1, column + 1] - tasks[:-1, column]
    return bool(len(sizes)) and int(sizes.mean()) * FAR > int(tasks[:-1, column + 1].max())


def _entities(nodes: Iterable[Node]) -> frozenset[Node]:
    return frozenset(n for n in nodes if n.type.space != GLOBAL)
