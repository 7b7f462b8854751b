"""Where the arrays of a run over a graph in a file lie: on the device, in memory of the host or in
files; and how much memory pages may take. Whose arrays they are is the frontend's matter."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, Protocol

from tiga.backends.triton.executable import Executable
from tiga.backends.triton.paged.facts import WalkFacts, walk_facts
from tiga.backends.triton.paged.link import Link, link_of
from tiga.backends.triton.paged.memory import LANES, PIECE, DeviceRows, Mover
from tiga.backends.triton.paged.run import Paging
from tiga.errors import OutOfBudget
from tiga.knobs import current
from tiga.paging.plan import Limits
from tiga.paging.results import fitting, spilled, spilled_array
from tiga.passes.roles import roles_of
from tiga.passes.rows import LibraryCall, RowProgram
from tiga.runtime.pages import Rows
from tiga.runtime.platform import Platform
from tiga.runtime.scope import Scope, active, fallback
from tiga.runtime.tiers import size_text
from tiga.trace.node import Node
from tiga.types import GLOBAL, DType, Space

SHARE = 2
"""Results, and then inputs, stay on the device as far as they take up to one part in so many of
what is left of it; pages get the rest."""

PAGE_BYTES = 2**24
"""A page that is not made larger: copies of so many bytes run at the full rate, launches are few,
and to pin memory for some pages takes a few milliseconds."""

READERS, WRITERS = 4, 3
"""Pages that are read, and written, at a time: the bus takes what several threads move."""

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
    found: WalkFacts = graph.keep(("GPU walk", side), lambda: walk_facts(graph.walks[side]))
    return found


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

    @cached_property
    def scattered(self) -> frozenset[Node]:
        """Arrays that walks read by numbers, wherever they lead."""
        found: set[Node] = set()
        for step in self.executable.plan.steps:
            if isinstance(step, LibraryCall) or step.relation is None:
                continue
            roles = roles_of(step)
            found |= roles.others
            found |= roles.edges if step.side == "src" else frozenset()
        return _entities(found)


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


def _entities(nodes: Iterable[Node]) -> frozenset[Node]:
    return frozenset(n for n in nodes if n.type.space != GLOBAL)


@dataclass
class Placement:
    """Where the arrays of one run lie, and what is left for pages; `held` bytes of the device will
    be taken beside those that are now."""

    graph: Any
    library: Arrays
    needs: Needs
    sizes: Mapping[Node, int]
    keeps: Keeps
    held: int = 0
    scope: Scope = field(default_factory=lambda: active() or fallback())

    def __post_init__(self) -> None:
        must = sum(self.sizes[n] for n in self.whole if n in self.sizes)
        kept = fitting(self.sizes, self.left // SHARE) if self.keeps.results else frozenset()
        self.resident = kept | self.whole.intersection(self.sizes)
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
    def link(self) -> Link:
        """What moves bytes to the device and back."""
        return link_of(self.platform)

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
    def pinned(self) -> int:
        """Bytes of pinned memory that may be taken now."""
        account = self.scope.accounts["host-pinned"]
        if account.budget is None:
            return current().memory_bound
        return max(0, account.budget - account.live)

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
        """An array for an output over entities, on the device or mapped from a file, and where its
        rows are stored."""
        shape, dtype = (count, *node.type.shape), node.type.dtype
        if node in self.resident or not count * node.type.row_bytes:
            made = self.library.new(shape, dtype, f"an output of shape {shape}")
            return made, self.rows(made, count, node.type.row_bytes)
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
        return spilled(self.scope, self.graph.traffic, count, width)

    def rows(self, array: Any, count: int, row_bytes: int) -> DeviceRows:
        """The rows of a contiguous array on the device."""
        block, offset = self.library.block(array)
        return DeviceRows(self.platform, self.link, block, count, row_bytes, offset)

    def paging(self, executable: Executable, extents: Mapping[Space, int]) -> Paging:
        """What a run is made on."""
        graphs: Any = dict.fromkeys(executable.relations, self.graph)
        return Paging(self.platform, self.link, graphs, extents, self.limits, self.left, facts_of,
                      self.charge)  # fmt: skip

    def load(
        self, inputs: dict[Node, Any], sizes: Mapping[Node, int], charged: list[Callable[[], None]]
    ) -> None:
        """Copy inputs to the device whole; what takes back that they are charged is added to
        `charged`."""
        if not sizes:
            return
        pinned = max(loading_bytes(self.pinned), *(inputs[n].row_bytes for n in sizes))
        back = self.charge("host-pinned", pinned)
        try:
            mover = Mover(self.link, self.platform, pinned)
            for node, nbytes in sizes.items():
                charged.append(self.charge("device", nbytes))
                inputs[node] = mover.load(inputs[node])
        finally:
            back()

    def to_load(self, inputs: Mapping[Node, Any]) -> dict[Node, int]:
        """The bytes of inputs that go to the device whole, the smallest first: those that pages
        would read again and again, as far as they fit, and those that have to be there."""
        wanted = self.whole | self.needs.scattered
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


def loading_bytes(pinned: int) -> int:
    """Bytes of pinned memory for moving arrays whole, of so many that may be taken."""
    return min(LANES * PIECE, pinned)


def stored_sizes(executable: Executable, extents: Mapping[Space, int]) -> dict[Node, int]:
    """The bytes of what a run stores over entities."""
    plan = executable.plan
    stored = [n for n in (*plan.outputs, *plan.intermediates) if n.type.space != GLOBAL]
    return {n: extents[n.type.space] * n.type.row_bytes for n in stored}


def _nothing() -> None:
    """Nothing was charged."""
