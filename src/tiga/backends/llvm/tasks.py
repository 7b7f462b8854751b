"""What the tasks of a function are, and how many there are of each kind on a walk."""

from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

from tiga.backends.llvm.scatters import SCATTER_GROUPS, SCATTER_ROWS
from tiga.trace.node import Node


class Over(Enum):
    """What one task of a function is."""

    TASKS = "tasks"
    """Some rows of the walk."""
    GROUPS = "groups"
    """A share of the tasks, or of the chunks, in their order."""
    HUBS = "hubs"
    """A row that is split."""
    CHUNKS = "chunks"
    """A part of a split row."""
    OTHERS = "others"
    """Some nodes at the other ends of the edges."""
    ALL = "all"
    """Everything: there is one task."""


class Function(NamedTuple):
    """A function of a row program's kernels; `stores` are the values of edges that it writes."""

    name: str
    over: Over
    stores: tuple[Node, ...] = ()


class Counts(NamedTuple):
    """Into how many pieces a walk is cut, and how many nodes are at its other end."""

    tasks: int
    hubs: int = 0
    chunks: int = 0
    others: int = 0

    @property
    def slots(self) -> dict[str, int]:
        """The numbers of pieces by the slots that tell kernels of them."""
        return {"num_tasks": self.tasks, "num_hubs": self.hubs, "num_chunks": self.chunks}

    def of(self, over: Over) -> int:
        """How many tasks a function has."""
        return _NUMBER_OF[over](self)


_NUMBER_OF: dict[Over, Callable[[Counts], int]] = {
    Over.TASKS: lambda counts: counts.tasks,
    Over.GROUPS: lambda counts: SCATTER_GROUPS,
    Over.HUBS: lambda counts: counts.hubs,
    Over.CHUNKS: lambda counts: counts.chunks,
    Over.OTHERS: lambda counts: -(-counts.others // SCATTER_ROWS),
    Over.ALL: lambda counts: 1,
}
