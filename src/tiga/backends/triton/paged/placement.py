"""Where the arrays of a run over a graph in a file lie: on the device, in memory of the host or in
files; and how much memory pages may take. Whose arrays they are is the frontend's matter."""

from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from tiga.backends.triton.executable import Executable
from tiga.backends.triton.paged.budgets import SHARE, Budgets, loading_bytes
from tiga.backends.triton.paged.facts import WalkFacts, walk_facts
from tiga.backends.triton.paged.memory import HostRows, Mover
from tiga.backends.triton.paged.needs import Needs
from tiga.backends.triton.paged.run import Paging
from tiga.errors import OutOfBudget
from tiga.paging.plan import Limits
from tiga.paging.results import fitting, spilled, spilled_array
from tiga.runtime.pages import FileRows, Rows
from tiga.runtime.scope import active
from tiga.runtime.tiers import size_text
from tiga.trace.node import Node
from tiga.types import GLOBAL, Space

PAGE_BYTES = 2**25
"""A page that is not made larger: copies of so many bytes run at the full rate, launches are few,
and to pin memory for some pages takes a few milliseconds."""

PAGES_SHARE = 4
"""Pages get one part in so many of pinned memory at least."""

READERS, WRITERS = 2, 1
"""Pages that are read, and written, at a time: several threads move the bytes of each."""


def facts_of(graph: Any, side: str) -> WalkFacts:
    """The facts of a walk, found once."""
    num_far = graph.num_src if side == "dst" else graph.num_dst
    found: WalkFacts = graph.keep(
        ("GPU walk", side), lambda: walk_facts(graph.walks[side], num_far)
    )
    return found


@dataclass(frozen=True)
class Keeps:
    """What a run keeps on the device beside pages, as far as it fits; `sums`: what rows without
    edges add up, too."""

    results: bool
    inputs: bool
    sums: bool = True


LESS_AND_LESS = (
    Keeps(True, True), Keeps(False, True), Keeps(False, False), Keeps(False, False, False),
)  # fmt: skip
"""What is tried in turn until a page fits beside it."""


@dataclass
class Placement(Budgets):
    """Where the arrays of one run lie, and what is left for pages."""

    needs: Needs
    sizes: Mapping[Node, int]
    keeps: Keeps
    pinned_inputs: int = 0
    loaded: dict[Hashable, tuple[Rows, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        must = sum(self.sizes[n] for n in self.whole if n in self.sizes)
        kept = fitting(self.sizes, self.left // SHARE) if self.keeps.results else frozenset()
        self.resident = kept | self.whole.intersection(self.sizes)
        elsewhere = {n: nbytes for n, nbytes in self.sizes.items() if n not in self.resident}
        self.on_host = fitting(elsewhere, self.host_left)
        if must > self.left:
            raise OutOfBudget(
                f"products and sums of node values need {size_text(must)} of 'device' for whole "
                "arrays, and "
                f"{size_text(self.left)} are left. Raise memory={{'device': ...}} of tg.execution, "
                "or run it on the CPU."
            )

    @cached_property
    def whole(self) -> frozenset[Node]:
        """Arrays that have to be on the device whole."""
        return self.needs.whole | (self.needs.summed if self.keeps.sums else frozenset())

    @property
    def limits(self) -> Limits:
        """What pages may take now."""
        return Limits(
            min(self.left, self.pinned), self.scope.depth(READERS), self.scope.page_rows,
            target=PAGE_BYTES, readers=READERS, writers=WRITERS,
            advice="memory={'device': ..., 'host-pinned': ...} of tg.execution (or "
                   "TIGA_MEMORY_BOUND)",
        )  # fmt: skip

    def output(self, node: Node, count: int) -> tuple[Any, Rows]:
        """An array for an output over entities, on the device, on the host or mapped from a
        file, and where its rows are stored."""
        shape, dtype = (count, *node.type.shape), node.type.dtype
        if node in self.resident or not count * node.type.row_bytes:
            made = self.library.new(shape, dtype, f"an output of shape {shape}")
            return made, self.rows(made, count, node.type.row_bytes)
        if node in self.on_host:
            array = self.host_array(shape, dtype.numpy, f"an output of shape {shape}")
            return array, HostRows(array)
        return spilled_array(self.scope, self.graph.traffic, shape, dtype.numpy)

    def between(self, node: Node, count: int) -> Any:
        """Room for a value that one step stores for later ones."""
        shape, dtype = node.type.shape, node.type.dtype
        if node.type.space == GLOBAL:
            return self.library.new(shape, dtype, "a value between steps")
        width = node.type.row_bytes
        if node in self.resident or not count * width:
            what = f"a value between steps, {count} rows"
            return self.rows(self.library.new((count, *shape), dtype, what), count, width)
        if node in self.on_host:
            return HostRows(self.host_array((count, width), np.dtype(np.uint8), "such a value"))
        return spilled(self.scope, self.graph.traffic, count, width)

    def to_pin(self, inputs: Mapping[Node, Any]) -> dict[Node, int]:
        """The bytes of inputs that go to pinned memory whole, where kernels read them over the bus:
        those that pages would read again and again, as far as most of that memory holds them."""
        found: dict[Node, int] = {}
        room = self.pinned - self.pinned // PAGES_SHARE if self.keeps.inputs else 0
        far = self.needs.far(self.graph)
        for node in (n for n in inputs if n in far and inputs[n].count and not inputs[n].address):
            nbytes = inputs[node].count * inputs[node].row_bytes
            if nbytes <= room:
                found[node] = nbytes
                room -= nbytes
        return found

    def paging(self, executable: Executable, extents: Mapping[Space, int]) -> Paging:
        """What a run is made on."""
        graphs: Any = dict.fromkeys(executable.relations, self.graph)
        return Paging(
            self.platform, self.link, self.keeper, graphs, extents, self.limits, self.left,
            facts_of, self.charge,
        )  # fmt: skip

    def load(
        self, inputs: dict[Node, Any], sizes: Mapping[Node, int], charged: list[Callable[[], None]]
    ) -> None:
        """Copy inputs to the device whole; what takes back that they are charged is added to
        `charged`."""
        sizes = self._found("device", inputs, sizes, charged)
        if not sizes:
            return
        largest = loading_bytes(self.pinned, max(sizes.values()))
        pinned = max(largest, *(inputs[n].row_bytes for n in sizes))
        back = self.charge("host-pinned", pinned)
        try:
            mover = Mover(self.link, self.platform, pinned)
            for node, nbytes in sizes.items():
                charged.append(self.charge("device", nbytes))
                inputs[node] = self._whole("device", inputs[node], mover.load(inputs[node]))
        finally:
            back()

    def pin(
        self, inputs: dict[Node, Any], sizes: Mapping[Node, int], charged: list[Callable[[], None]]
    ) -> None:
        """Have inputs in pinned memory whole, as `load` has them on the device."""
        mover = Mover(self.link, self.platform)
        self.pinned_inputs += len(sizes)
        self.pinned_held += sum(sizes.values()) if active() is None else 0
        for node, nbytes in self._found("host-pinned", inputs, sizes, charged).items():
            charged.append(self.charge("host-pinned", nbytes))
            inputs[node] = self._whole("host-pinned", inputs[node], mover.pin(inputs[node]))

    def _found(
        self, tier: str, inputs: dict[Node, Any], sizes: Mapping[Node, int],
        charged: list[Callable[[], None]],
    ) -> dict[Node, int]:  # fmt: skip
        """Take what earlier calls left of inputs; the bytes of the others."""
        missing = {}
        for node, nbytes in sizes.items():
            home, found = inputs[node], self.keeper.take(self.whole_key(tier, inputs[node]))
            if found is None:
                missing[node] = nbytes
                continue
            charged.append(self.charge(tier, nbytes))
            inputs[node] = self._whole(tier, home, found)
        return missing

    def _whole(self, tier: str, home: Rows, made: Rows) -> Rows:
        """An input that is in memory whole: kept after the call, if the graph's file has it."""
        key = self.whole_key(tier, home)
        if key is not None and made is not home:
            self.loaded[key] = made, tier
        return made

    def whole_key(self, tier: str, home: Rows) -> Hashable:
        """What an array of the graph's file is kept by; None for others."""
        own = self.graph.walks["dst"].row_ptr.fd
        if not isinstance(home, FileRows) or home.fd != own:
            return None
        return tier, home.offset, home.row_bytes

    def to_read(
        self, tier: str, inputs: Mapping[Node, Any], sizes: Mapping[Node, int]
    ) -> Iterator[int]:
        """Bytes in files of inputs that are to be in memory whole."""
        for node, nbytes in sizes.items():
            home = inputs[node]
            if home.in_file and not self.keeper.has(self.whole_key(tier, home)):
                yield nbytes

    def leave(self) -> None:
        """Keep inputs that are in memory whole for later calls; they are charged no longer."""
        for key, (rows, tier) in self.loaded.items():
            self.keeper.park(key, rows, {tier: rows.count * rows.row_bytes})

    def to_load(self, inputs: Mapping[Node, Any]) -> dict[Node, int]:
        """The bytes of inputs that go to the device whole, the smallest first: those that pages
        would read again and again, as far as they fit, and those that have to be there."""
        wanted = self.whole | self.needs.far(self.graph)
        nodes = [n for n in inputs if n in wanted and inputs[n].count and not inputs[n].address]
        sizes = {n: inputs[n].count * inputs[n].row_bytes for n in nodes}
        found, room = {}, self.left // SHARE if self.keeps.inputs else 0
        for node in sorted(sizes, key=sizes.__getitem__):
            if node in self.whole or sizes[node] <= room:
                found[node] = sizes[node]
                room -= sizes[node]
        return found
