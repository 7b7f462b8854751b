"""Where the arrays of a run over a graph in a file lie: on the device, in memory of the host or in
files; and how much memory pages may take. Whose arrays they are is the frontend's matter."""

from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, Protocol

import numpy as np

from tiga.backends.triton.executable import Executable
from tiga.backends.triton.paged.facts import WalkFacts, walk_facts
from tiga.backends.triton.paged.kept import TIERS, Keeper, Room, keeper_of
from tiga.backends.triton.paged.link import Link, link_of
from tiga.backends.triton.paged.memory import LANES, PIECE, DeviceRows, HostRows, Mover
from tiga.backends.triton.paged.needs import Needs
from tiga.backends.triton.paged.run import Paging
from tiga.errors import OutOfBudget
from tiga.knobs import current
from tiga.paging.plan import Limits
from tiga.paging.results import fitting, spilled, spilled_array
from tiga.runtime.pages import FileRows, Rows
from tiga.runtime.platform import Platform
from tiga.runtime.pool import POOL
from tiga.runtime.scope import Scope, active, fallback
from tiga.runtime.tiers import memory_left, size_text
from tiga.trace.node import Node
from tiga.types import GLOBAL, DType, Space

SHARE = 2
"""Results, and then inputs, stay on the device as far as they take up to one part in so many of
what is left of it; pages get the rest."""

PAGE_BYTES = 2**25
"""A page that is not made larger: copies of so many bytes run at the full rate, launches are few,
and to pin memory for some pages takes a few milliseconds."""

PAGES_SHARE = 4
"""Pages get one part in so many of pinned memory at least."""

READERS, WRITERS = 2, 1
"""Pages that are read, and written, at a time: several threads move the bytes of each."""

KEPT_SHARE = 8
"""One part in so many of what is left is kept for later calls, where no budget bounds it."""

UNBOUNDED = 2**34
"""Bytes of a device that has no memory of its own: under Triton's interpreter."""


class Arrays(Protocol):
    """Arrays of a frontend on a device."""

    @property
    def platform(self) -> Platform:
        """The device; what it gives is not charged to a scope."""

    def free(self) -> int:
        """Bytes that the device has left."""

    def new(self, shape: tuple[int, ...], dtype: DType, what: str) -> Any:
        """An array on the device, charged to the scope in force while it lives."""

    def block(self, array: Any) -> tuple[Any, int]:
        """The arena, as the platform has them, that a contiguous array lies in, and where."""


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
class Placement:
    """Where the arrays of one run lie, and what is left for pages; `held` bytes of the device, and
    `held_on_host` and `pinned_held` of other memory, will be taken beside those that are now."""

    graph: Any
    library: Arrays
    needs: Needs
    sizes: Mapping[Node, int]
    keeps: Keeps
    held: int = 0
    held_on_host: int = 0
    pinned_held: int = 0
    pinned_inputs: int = 0
    loaded: dict[Hashable, tuple[Rows, str]] = field(default_factory=dict)
    scope: Scope = field(default_factory=lambda: active() or fallback())

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
    def platform(self) -> Platform:
        return self.library.platform

    @cached_property
    def keeper(self) -> Keeper:
        """What earlier calls left of the graph on the device."""
        return keeper_of(self.graph, self.platform)

    @cached_property
    def link(self) -> Link:
        """What moves bytes to the device and back."""
        platform = self.platform
        return self.keeper.begin(
            self._room_to_keep(), platform.stream(), partial(link_of, platform)
        )

    def _room_to_keep(self) -> Room:
        """What may be kept for later calls: budgets hold it; where there is none, a part of what
        is left."""
        accounts, most = self.scope.accounts, {}
        unbounded = {tier for tier in TIERS if accounts[tier].budget is None}
        if "device" in unbounded:
            left = self.library.free() if self.platform.is_gpu else UNBOUNDED
            most["device"] = (left + accounts["device"].idle) // KEPT_SHARE
        if "host-pinned" in unbounded:
            most["host-pinned"] = max(0, current().memory_bound - self.pinned_held)
        if "host" in unbounded:
            most["host"] = memory_left() // KEPT_SHARE
        return Room(self.scope, most)

    @property
    def left(self) -> int:
        """Bytes of the device that may be taken now."""
        account = self.scope.accounts["device"]
        if account.budget is not None:
            return max(0, account.budget - account.live - self.held)
        if not self.platform.is_gpu:
            return UNBOUNDED
        return rounded(self.library.free() - self.held)

    @property
    def host_left(self) -> int:
        """Bytes of ordinary memory that results may take now: without a budget a part of what the
        machine has left, as of the device."""
        account = self.scope.host
        if account.budget is None:
            return memory_left() // SHARE
        return max(0, account.budget - account.live - self.held_on_host) // SHARE

    @property
    def pinned(self) -> int:
        """Bytes of pinned memory that may be taken now."""
        account = self.scope.accounts["host-pinned"]
        if account.budget is None:
            return max(0, current().memory_bound - self.pinned_held)
        return max(0, account.budget - account.live - self.pinned_held)

    @property
    def limits(self) -> Limits:
        """What pages may take now."""
        return Limits(
            min(self.left, self.pinned), self.scope.depth(READERS), self.scope.page_rows,
            target=PAGE_BYTES, readers=READERS, writers=WRITERS,
            advice="memory={'device': ..., 'host-pinned': ...} of tg.execution (or "
                   "TIGA_MEMORY_BOUND)",
        )  # fmt: skip

    def charge(self, tier: str, nbytes: int) -> Callable[[], None]:
        """Count bytes of a tier as used; what is returned takes that back."""
        if active() is None:
            return _nothing
        account = self.scope.accounts[tier]
        ticket = account.charge(nbytes, "pages of a graph in a file")
        return partial(account.release, ticket)

    def output(self, node: Node, count: int) -> tuple[Any, Rows]:
        """An array for an output over entities, on the device, on the host or mapped from a
        file, and where its rows are stored."""
        shape, dtype = (count, *node.type.shape), node.type.dtype
        if node in self.resident or not count * node.type.row_bytes:
            made = self.library.new(shape, dtype, f"an output of shape {shape}")
            return made, self.rows(made, count, node.type.row_bytes)
        if node in self.on_host:
            array = self._host_array(shape, dtype.numpy, f"an output of shape {shape}")
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
            return HostRows(self._host_array((count, width), np.dtype(np.uint8), "such a value"))
        return spilled(self.scope, self.graph.traffic, count, width)

    def _host_array(self, shape: tuple[int, ...], dtype: np.dtype, what: str) -> np.ndarray:
        """An array in ordinary memory, charged while it lives: what was used before, if there is
        some, as the system takes longer to give it than to copy there."""
        made = POOL.array(shape, dtype)
        if active() is not None:
            self.scope.adopt(made, what)
        return made

    def rows(self, array: Any, count: int, row_bytes: int) -> DeviceRows:
        """The rows of a contiguous array on the device."""
        block, offset = self.library.block(array)
        return DeviceRows(self.platform, self.link, block, count, row_bytes, offset)

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


def rounded(nbytes: int) -> int:
    """Bytes that a device has left, so that calls which find about as many plan alike."""
    step = 1 << max(0, nbytes.bit_length() - 6)
    return max(0, nbytes) // step * step


def loading_bytes(pinned: int, largest: int) -> int:
    """Bytes of pinned memory for moving arrays whole, of so many that may be taken."""
    return min(LANES * PIECE, pinned, largest)


def _nothing() -> None:
    """Nothing was charged."""
