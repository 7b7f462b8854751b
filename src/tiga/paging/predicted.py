"""What runs over a graph in a file will take, told before they are made, whatever the frontend and
the backend."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tiga.paging.planned import PlannedRows
from tiga.paging.span import PagePlan
from tiga.runtime.tiers import size_text
from tiga.trace.node import Node
from tiga.types import GLOBAL, Space

Places = Sequence[PlannedRows | None]
"""Where the inputs or outputs of a program lie; None for numbers and global values."""


@dataclass(frozen=True)
class Planned:
    """The pages of a run, the most bytes that are charged by then, by tier, where its outputs will
    lie, and the bytes that they keep of the first tier."""

    plan: PagePlan
    peak: Mapping[str, int]
    outputs: Places
    kept: int

    @property
    def tier(self) -> str:
        """The memory that kernels address."""
        return next(iter(self.peak))

    @property
    def held(self) -> dict[str, int]:
        """Bytes that the outputs hold, by tier, as long as they live."""
        places = [p for p in self.outputs if p is not None]
        on_host = [p for p in places if not p.in_file and not p.address]
        in_files = [p for p in places if p.in_file]
        return {"host": _nbytes(on_host), self.tier: self.kept, "nvme": _nbytes(in_files)}


@dataclass(frozen=True)
class Prediction:
    """One run that is not made."""

    what: str
    planned: Planned

    @property
    def plan(self) -> PagePlan:
        """The pages."""
        return self.planned.plan

    @property
    def peak(self) -> Mapping[str, int]:
        """The most bytes in use, by tier."""
        return self.planned.peak

    def told(self) -> list[str]:
        """In words."""
        tiers = ", ".join(f"{size_text(n)} of {tier!r}" for tier, n in self.peak.items())
        return [f"{self.what}: at most {tiers} in use", *self.plan.told("  it would take")]


Plan = Callable[[Places, Mapping[str, int]], Planned]
"""Plans a run whose inputs lie there, where so many bytes of each tier are held beside."""


def plan_gradient(
    plan: Plan, arguments: Sequence[tuple[str, int]], nodes: Sequence[Node],
    extents: Mapping[Space, int], inputs: Places, forward: Planned,
) -> Planned:  # fmt: skip
    """A gradient's run, whose inputs `nodes` are what `arguments` tell: inputs and outputs of the
    forward run, and cotangents. The dearer of two: cotangents that kernels address where they are,
    and others."""
    known = {"input": inputs, "output": forward.outputs}

    def place(kind: str, number: int, node: Node, address: int) -> PlannedRows | None:
        if kind in known or node.type.space == GLOBAL:
            return known[kind][number] if kind in known else None
        return PlannedRows(extents[node.type.space], node.type.row_bytes, False, address)

    found = []
    for address in (0, 1):
        each = zip(arguments, nodes, strict=True)
        places = [place(kind, number, node, address) for (kind, number), node in each]
        found.append(plan(places, forward.held))
    return max(found, key=lambda planned: planned.peak[forward.tier])


def _nbytes(places: Sequence[PlannedRows]) -> int:
    return sum(p.count * p.row_bytes for p in places)
