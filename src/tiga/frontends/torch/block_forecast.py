"""What a call takes that runs through torch over a graph in a file, told before it runs."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from tiga.frontends.torch.block_fields import wide
from tiga.frontends.torch.block_plan import Blocks, Seen, Sizes
from tiga.frontends.torch.paged_blocks import PagedBlockFields, stays
from tiga.paging.blocks import Blocks as Step
from tiga.paging.blocks import BlockWalk
from tiga.paging.predicted import Planned, Prediction
from tiga.paging.span import PagePlan


@dataclass
class Room:
    """Where results will lie: `left` bytes of memory (None: no bound), and bytes so far."""

    left: int | None
    host: int = 0
    files: int = 0

    def place(self, nbytes: int) -> bool:
        """Whether a result of so many bytes goes to a file."""
        if stays(nbytes, self.left):
            self.host += nbytes
            self.left = None if self.left is None else self.left - nbytes
            return False
        self.files += nbytes
        return True


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
            if room.place(extents[on_edges] * width)
        )
        return self._plan(self._read(1), written)

    def backward(self, room: Room, wanted: Mapping[tuple[str, str], torch.Tensor]) -> PagePlan:
        """The gradients of fields; every block is made again, and its edges once more where they
        come in parts."""
        read = written = 0
        for (namespace, name), value in wanted.items():
            width = value[:1].numel() * wide(value.dtype).itemsize
            if room.place(len(value) * width):
                pairs = [self.walk.added(end, width) for end in self._ends(namespace, name)]
                read += sum(pair[0] for pair in pairs)
                written += len(value) * width + sum(pair[1] for pair in pairs)
        parts = any(block.in_parts for block in self.blocks.each)
        return self._plan(self._read(1 + parts) + read, written)

    def room(self, held: int = 0) -> Room:
        """What is left for results beside the blocks, and so many bytes that are held."""
        left = self.fields.memory
        return Room(None if left is None else max(0, left - held - self.blocks.nbytes))

    def _plan(self, read: int, written: int) -> PagePlan:
        plan, stored = PagePlan(self.blocks.nbytes), self._read(1)
        plan.add("walk, rows = dst", Step(len(self.blocks.each), self.blocks.nbytes, read, written,
                                          stored))  # fmt: skip
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
    live, nbytes = forecast.fields.scope.host.live, forecast.blocks.nbytes
    first = forecast.room()
    plan = forecast.forward(first)
    peak = {"host": live + nbytes + first.host, "nvme": first.files}
    yield Prediction("forward", Planned(plan, peak, (), first.host))
    if not wanted:
        return
    second = forecast.room(first.host)
    plan = forecast.backward(second, wanted)
    peak = {"host": live + nbytes + first.host + second.host, "nvme": first.files + second.files}
    yield Prediction("gradients", Planned(plan, peak, (), second.host))


def wanted_of(names: Sequence[tuple[str, str]], values: Sequence[Any]) -> dict[Any, torch.Tensor]:
    """The fields that gradients are asked of."""
    on = torch.is_grad_enabled()
    return {n: v for n, v in zip(names, values, strict=True) if on and v.requires_grad}
