"""What a call takes that runs through torch over a graph in a file, told before it runs."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from tiga.frontends.torch.blocks.fields import wide
from tiga.frontends.torch.blocks.paged import FILES, PagedBlockFields, tier_of
from tiga.frontends.torch.blocks.plan import Blocks, Seen, Sizes
from tiga.paging.blocks import Blocks as Step
from tiga.paging.blocks import BlockWalk
from tiga.paging.predicted import Planned, Prediction
from tiga.paging.span import PagePlan

NOTHING: Mapping[str, int] = {}


@dataclass
class Room:
    """Where results will lie: bytes that are `left` by tier (None: no bound), the best first, and
    those that results take so far."""

    left: dict[str, int | None]
    taken: Counter[str] = field(default_factory=Counter)

    def place(self, nbytes: int) -> str:
        """The tier that a result of so many bytes goes to."""
        tier = tier_of(nbytes, self.left)
        self.taken[tier] += nbytes
        left = self.left.get(tier)
        self.left |= {} if left is None else {tier: left - nbytes}
        return tier


@dataclass(frozen=True)
class BlockForecast:
    """The blocks of a call, before the first is read."""

    fields: PagedBlockFields
    blocks: Blocks
    sizes: Sizes
    walk: BlockWalk = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "walk", BlockWalk(self.fields.walk, self.blocks.each))

    def forward(self, room: Room) -> PagePlan:
        """The results."""
        extents = {False: self.fields.graph.num_dst, True: self.fields.graph.num_edges}
        written = sum(
            extents[on_edges] * width
            for on_edges, width in self.sizes.results
            if room.place(extents[on_edges] * width) == FILES
        )
        return self._plan(self._read(1), written)

    def backward(self, room: Room, wanted: Mapping[tuple[str, str], torch.Tensor]) -> PagePlan:
        """The gradients of fields; every block is made again, and its edges once more where they
        come in parts."""
        read = written = 0
        for (namespace, name), value in wanted.items():
            width = value[:1].numel() * wide(value.dtype).itemsize
            if room.place(len(value) * width) == FILES:
                pairs = [self.walk.added(end, width) for end in self._ends(namespace, name)]
                read += sum(pair[0] for pair in pairs)
                written += len(value) * width + sum(pair[1] for pair in pairs)
        parts = any(block.in_parts for block in self.blocks.each)
        return self._plan(self._read(1 + parts) + read, written)

    def room(self, held: Mapping[str, int] = NOTHING) -> Room:
        """What is left for results beside the blocks, and bytes by tier that are held."""

        def beside(tier: str, left: int | None) -> int | None:
            held_there = held.get(tier, 0) + self.blocks.nbytes.get(tier, 0)
            return None if left is None else max(0, left - held_there)

        return Room({tier: beside(tier, left) for tier, left in self.fields.left.items()})

    def _plan(self, read: int, written: int) -> PagePlan:
        nbytes, stored = next(iter(self.blocks.nbytes.values())), self._read(1)
        plan = PagePlan(nbytes)
        plan.add("walk, rows = dst", Step(len(self.blocks.each), nbytes, read, written, stored))
        return plan

    def _read(self, times: int) -> int:
        """Bytes that edges and the fields in files take, where edges are gone through so often."""
        by_edge, by_node = (self._in_files(s) for s in (self.sizes.by_edge, self.sizes.by_node))
        once = sum(self.walk.read(end, width) for end, width in by_edge)
        nodes = sum(self.walk.read("dst", width) for _, width in by_node)
        return times * (self.walk.topology + once) + nodes

    def _in_files(self, seen: Seen) -> Iterable[tuple[str, int]]:
        for end, namespace, name in seen:
            home = self.fields.homes[namespace, name]
            if home.in_file:
                yield end, home.row_bytes

    def _ends(self, namespace: str, name: str) -> Iterator[str]:
        """Where a field is read: each adds to its gradient."""
        for end, space, known in (*self.sizes.by_edge, *self.sizes.by_node):
            if (space, known) == (namespace, name):
                yield end


def predictions(
    forecast: BlockForecast, wanted: Mapping[tuple[str, str], torch.Tensor]
) -> Iterator[Prediction]:
    """The forward run, and the gradients of the fields `wanted`."""
    first = forecast.room()
    plan = forecast.forward(first)
    yield Prediction("forward", _planned(forecast, plan, first.taken))
    if not wanted:
        return
    second = forecast.room(first.taken)
    plan = forecast.backward(second, wanted)
    yield Prediction("gradients", _planned(forecast, plan, first.taken + second.taken))


def _planned(forecast: BlockForecast, plan: PagePlan, results: Mapping[str, int]) -> Planned:
    """A run that leaves results of so many bytes by tier."""
    fields, nbytes = forecast.fields, forecast.blocks.nbytes
    peak = {
        tier: fields.scope.accounts[tier].live + nbytes.get(tier, 0) + results.get(tier, 0)
        for tier in dict.fromkeys((*nbytes, *fields.left))
    }
    first = next(iter(peak))
    return Planned(plan, peak | {FILES: results.get(FILES, 0)}, (), results.get(first, 0))


def wanted_of(names: Sequence[tuple[str, str]], values: Sequence[Any]) -> dict[Any, torch.Tensor]:
    """The fields that gradients are asked of."""
    on = torch.is_grad_enabled()
    return {n: v for n, v in zip(names, values, strict=True) if on and v.requires_grad}
