"""A step of a plan under construction."""

from dataclasses import dataclass, field

from tiga.passes.rows import LibraryCall, Phase, RowProgram, ScanLoop, Step
from tiga.trace.node import Node
from tiga.types import Relation, Space

FREE = -1
"""The home of inputs, constants and of values computed from them without a walk."""


@dataclass
class DraftPhase:
    """What one loop over edges will do."""

    reductions: list[Node] = field(default_factory=list)
    stores: list[Node] = field(default_factory=list)
    outer_sums: list[Node] = field(default_factory=list)
    scans: list[ScanLoop] = field(default_factory=list)
    scatters: list[Node] = field(default_factory=list)

    def finish(self) -> Phase:
        return Phase(
            tuple(self.reductions), tuple(self.stores), tuple(self.outer_sums),
            tuple(self.scans), tuple(self.scatters),
        )  # fmt: skip


@dataclass
class Draft:
    """A library call, or rows of a space with the phases of a walk.

    `group` is the one size of the values of a step over large global values, 0 for other steps.
    """

    space: Space
    relation: Relation | None = None
    side: str = "dst"
    library: Node | None = None
    group: int = 0
    phases: dict[int, DraftPhase] = field(default_factory=dict)
    totals: list[Node] = field(default_factory=list)
    stores: dict[Node, None] = field(default_factory=dict)
    reads: dict[Node, None] = field(default_factory=dict)

    def phase(self, number: int) -> DraftPhase:
        return self.phases.setdefault(number, DraftPhase())

    @property
    def last_phase(self) -> int:
        return max(self.phases, default=0)

    def walks(self, relation: Relation | None, side: str) -> bool:
        """Whether the step is a walk of `relation` with rows at `side`."""
        return self.library is None and (self.relation, self.side) == (relation, side)

    def has_rows(self, space: Space) -> bool:
        return self.library is None and self.space == space

    def goals(self) -> list[Node]:
        """The values that the step evaluates for their own sake."""
        if self.library is not None:
            return list(self.library.inputs)
        phases = [phase.finish() for phase in self.phases.values()]
        edges = [n for phase in phases for n in phase.edge_values]
        starts = [scan.initial for phase in phases for scan in phase.scans]
        return [*edges, *starts, *self.stores, *(n.inputs[0] for n in self.totals)]

    @property
    def is_live(self) -> bool:
        return bool(self.library is not None or self.stores or self.totals or self.phases)

    def finish(self) -> Step:
        if self.library is not None:
            return LibraryCall(self.library)
        count = max(self.phases, default=FREE) + 1
        phases = tuple(self.phase(number).finish() for number in range(count))
        return RowProgram(
            self.space, self.relation, self.side, phases, tuple(self.stores),
            tuple(self.totals), tuple(self.reads),
        )  # fmt: skip
