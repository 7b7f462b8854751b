"""Calls over a graph in a file on a GPU: what of a call lies where, and how much memory pages may
take of the device and of pinned memory."""

import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from tiga.backends.triton.executable import Executable
from tiga.backends.triton.paged.facts import WalkFacts, walk_facts
from tiga.backends.triton.paged.link import link_of
from tiga.backends.triton.paged.memory import LANES, PIECE, DeviceRows, HostRows, Mover
from tiga.backends.triton.paged.run import Paging, run_paged
from tiga.errors import InvalidType, OutOfBudget
from tiga.frontends.dlpack import array_of_torch
from tiga.frontends.torch.dtypes import torch_dtype
from tiga.frontends.torch.paged import fitting, spilled, spilled_tensor
from tiga.frontends.torch.scalars import number_on
from tiga.knobs import current
from tiga.paging.plan import Limits
from tiga.paging.span import PagePlan
from tiga.passes.roles import roles_of
from tiga.passes.rows import LibraryCall, RowProgram
from tiga.relations.paged import PagedGraph
from tiga.runtime.cuda import on, torch_platform
from tiga.runtime.mapped import file_at
from tiga.runtime.pages import FileRows, Rows
from tiga.runtime.scope import Scope, active, fallback
from tiga.runtime.tiers import size_text
from tiga.trace.node import Node
from tiga.types import GLOBAL, Space

if TYPE_CHECKING:
    from tiga.frontends.torch.unit import Runnable

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
        """Operands of what takes no pages: library calls, and rows without edges that add to sums,
        whose order is that of all rows."""
        return _entities(
            node
            for step in self.executable.plan.steps
            if isinstance(step, LibraryCall) or (step.relation is None and _adds(step))
            for node in (*step.reads, *step.writes)
        )

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
    """What a run keeps on the device beside pages, as far as it fits."""

    results: bool
    inputs: bool


LESS_AND_LESS = (Keeps(True, True), Keeps(False, True), Keeps(False, False))
"""What is tried in turn until a page fits beside it."""


def _adds(step: RowProgram) -> bool:
    return bool(step.totals or step.outer_sums)


def _entities(nodes: Iterable[Node]) -> frozenset[Node]:
    return frozenset(n for n in nodes if n.type.space != GLOBAL)


@dataclass
class Placement:
    """Where the arrays of one run lie, and what is left for pages; `held` bytes of the device will
    be taken beside those that are now."""

    graph: PagedGraph
    device: torch.device
    needs: Needs
    sizes: Mapping[Node, int]
    keeps: "Keeps"
    held: int = 0
    scope: Scope = field(default_factory=lambda: active() or fallback())

    def __post_init__(self) -> None:
        must = sum(self.sizes[n] for n in self.needs.whole if n in self.sizes)
        kept = fitting(self.sizes, self.left // SHARE) if self.keeps.results else frozenset()
        self.resident = kept | self.needs.whole.intersection(self.sizes)
        if must > self.left:
            raise OutOfBudget(
                f"products and sums of node values need {size_text(must)} of 'device' for whole "
                "arrays, and "
                f"{size_text(self.left)} are left. Raise memory={{'device': ...}} of tg.execution, "
                "or run it on the CPU."
            )

    @cached_property
    def platform(self) -> Any:
        return torch_platform(self.device)

    @property
    def left(self) -> int:
        """Bytes of the device that may be taken now."""
        account = self.scope.accounts["device"]
        if account.budget is not None:
            return max(0, account.budget - account.live - self.held)
        if self.device.type != "cuda":
            return UNBOUNDED
        unused = torch.cuda.memory_reserved(self.device) - torch.cuda.memory_allocated(self.device)
        return rounded(torch.cuda.mem_get_info(self.device)[0] + unused - self.held)

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

    def tensor(self, shape: tuple[int, ...], dtype: torch.dtype, what: str) -> torch.Tensor:
        """A tensor on the device, charged while it lives."""
        if active() is None:
            return torch.empty(shape, dtype=dtype, device=self.device)
        account = self.scope.accounts["device"]
        ticket = account.charge(prod(shape) * dtype.itemsize, what)
        try:
            made = torch.empty(shape, dtype=dtype, device=self.device)
        except BaseException:
            account.release(ticket)
            raise
        weakref.finalize(made, account.release, ticket).atexit = False
        return made

    def output(
        self, node: Node, shape: tuple[int, ...], dtype: torch.dtype
    ) -> tuple[torch.Tensor, Rows]:
        """A tensor for an output over entities, and where its rows are stored."""
        if node in self.resident or not prod(shape):
            made = self.tensor(shape, dtype, f"an output of shape {shape}")
            return made, self.rows(made)
        return spilled_tensor(self.scope, self.graph.traffic, shape, dtype)

    def between(self, node: Node, count: int) -> Rows:
        """Rows for a value that one step stores for later ones."""
        if node in self.resident or not count * node.type.row_bytes:
            shape, what = (count, node.type.row_bytes), f"a value between steps, {count} rows"
            return self.rows(self.tensor(shape, torch.uint8, what))
        return spilled(self.scope, self.graph.traffic, count, node.type.row_bytes)

    def rows(self, tensor: torch.Tensor) -> DeviceRows:
        """The rows of a tensor on the device."""
        count = tensor.shape[0]
        flat = tensor.detach().reshape(-1).view(torch.uint8)
        return DeviceRows(self.platform, flat, count, flat.numel() // max(1, count), self._settle)

    def paging(self, executable: Executable, extents: Mapping[Space, int]) -> Paging:
        """What a run is made on."""
        graphs: Any = dict.fromkeys(executable.relations, self.graph)
        return Paging(self.platform, graphs, extents, self.limits, self.left, facts_of, self.charge)

    def _settle(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def input(self, tensor: torch.Tensor) -> Rows:
        """Where the rows of an input lie: in a file if its memory is mapped from one and was not
        written to, else in memory of the device or the host."""
        nbytes = tensor.numel() * tensor.element_size()
        if tensor.device.type == "cpu" and tensor.is_contiguous() and nbytes:
            mapped = file_at(tensor.data_ptr(), nbytes)
            if mapped is not None and (mapped.shared or tensor._version == 0):
                count = tensor.shape[0]
                return FileRows(mapped.fd, mapped.offset, count, nbytes // count,
                                self.graph.traffic, mapped)  # fmt: skip
        if tensor.device == self.device:
            return self._on_device(tensor)
        return HostRows(array_of_torch(tensor.detach()))

    def _on_device(self, tensor: torch.Tensor) -> Rows:
        """A tensor there, one row after the other; of one whose rows are all the same, where that
        would take much, one row on the host."""
        if tensor.is_contiguous() or not tensor.numel():
            return self.rows(tensor.contiguous())
        is_uniform = tensor.stride(0) == 0 and len(tensor) > 1
        if is_uniform and tensor.numel() * tensor.element_size() > self.left // SHARE:
            row = array_of_torch(tensor.detach()[:1].contiguous().cpu())
            return HostRows(np.broadcast_to(row, tuple(tensor.shape)))
        made = self.tensor(tuple(tensor.shape), tensor.dtype, "an input, its rows side by side")
        return self.rows(made.copy_(tensor.detach()))

    def load(
        self, inputs: dict[Node, Any], sizes: Mapping[Node, int], charged: list[Callable[[], None]]
    ) -> None:
        """Copy inputs to the device whole; what takes back that they are charged is added to
        `charged`."""
        widest = max((inputs[n].row_bytes for n in sizes), default=0)
        pinned = max(loading_bytes(self.pinned), widest)
        back = self.charge("host-pinned", pinned if sizes else 0)
        try:
            mover = Mover(link_of(self.platform), self.platform, pinned)
            for node, nbytes in sizes.items():
                charged.append(self.charge("device", nbytes))
                inputs[node] = mover.load(inputs[node])
        finally:
            back()

    def to_load(self, inputs: Mapping[Node, Any]) -> dict[Node, int]:
        """The bytes of inputs that go to the device whole, the smallest first: those that pages
        would read again and again, as far as they fit, and those that have to be there."""
        wanted = self.needs.whole | self.needs.scattered
        nodes = [n for n in inputs if n in wanted and inputs[n].count and not inputs[n].address]
        sizes = {n: inputs[n].count * inputs[n].row_bytes for n in nodes}
        found, room = {}, self.left // SHARE if self.keeps.inputs else 0
        for node in sorted(sizes, key=sizes.__getitem__):
            if node in self.needs.whole or sizes[node] <= room:
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


def _nothing() -> None:
    """Nothing was charged."""


def run_on_gpu_pages(
    runnable: "Runnable", graph: PagedGraph, values: Sequence[Any], device: torch.device
) -> list[torch.Tensor]:
    """Compute the outputs of a program on a GPU, page by page.

    Raises:
        OutOfBudget: a page of one row does not fit the budgets, or what has to be on the device.
        InvalidFile: the file names an edge that cannot be.
    """
    with on(device):
        for keeps in LESS_AND_LESS[:-1]:
            try:
                return _run(runnable, graph, values, device, keeps)
            except OutOfBudget:
                pass  # what it held is free again only after this
        return _run(runnable, graph, values, device, LESS_AND_LESS[-1])


def _run(
    runnable: "Runnable", graph: PagedGraph, values: Sequence[Any], device: torch.device,
    keeps: Keeps,
) -> list[torch.Tensor]:  # fmt: skip
    executable, extents = runnable.gpu_runs.executable.by_pages, extents_of(runnable, graph)
    sizes = stored_sizes(executable, extents)
    placement = Placement(graph, device, Needs(executable), sizes, keeps)
    outputs, targets = _outputs(runnable, placement)
    inputs = dict(zip(executable.plan.inputs, _inputs(executable, values, placement), strict=True))
    whole = placement.to_load(inputs)
    read = sum(nbytes for node, nbytes in whole.items() if inputs[node].in_file)
    charged: list[Callable[[], None]] = []
    try:
        with graph.reading():
            placement.load(inputs, whole, charged)
            between = {n: _between(n, extents, placement) for n in executable.plan.intermediates}
            paging = placement.paging(executable, extents)
            plan = PagePlan(paging.device)
            plan.whole(sum(whole.values()), read)
            given = [inputs[n] for n in executable.plan.inputs]
            run_paged(executable, given, targets, between, paging, plan)
            runnable.gpu_runs.pages = plan
    finally:
        for back in charged:
            back()
    return outputs


def _outputs(
    runnable: "Runnable", placement: Placement
) -> tuple[list[torch.Tensor], list["Rows | torch.Tensor"]]:
    """Tensors for the outputs, and where their rows are stored (global ones: the tensors)."""
    outputs: list[torch.Tensor] = []
    targets: list[Rows | torch.Tensor] = []
    plan = runnable.gpu_runs.executable.by_pages.plan
    for node, layout in zip(plan.outputs, runnable.outputs, strict=True):
        if layout.extent is None:
            made = torch.empty(layout.shape, dtype=layout.dtype, device=placement.device)
            outputs.append(made)
            targets.append(made)
            continue
        shape = (getattr(placement.graph, layout.extent), *layout.shape)
        tensor, rows = placement.output(node, shape, layout.dtype)
        outputs.append(tensor)
        targets.append(rows)
    return outputs, targets


def stored_sizes(executable: Executable, extents: Mapping[Space, int]) -> dict[Node, int]:
    """The bytes of what a run stores over entities."""
    plan = executable.plan
    stored = [n for n in (*plan.outputs, *plan.intermediates) if n.type.space != GLOBAL]
    return {n: extents[n.type.space] * n.type.row_bytes for n in stored}


def extents_of(runnable: "Runnable", graph: PagedGraph) -> dict[Space, int]:
    """The extents of a program's spaces."""
    found = {s: getattr(graph, e) for s, e in runnable.extents.items() if e is not None}
    for relation in runnable.program.relations:
        found[relation.src], found[relation.dst] = graph.num_src, graph.num_dst
        found[relation.edge] = graph.num_edges
    return found


def _between(node: Node, extents: Mapping[Space, int], placement: Placement) -> Any:
    if node.type.space == GLOBAL:
        dtype = torch_dtype(node.type.dtype)
        return torch.empty(node.type.shape, dtype=dtype, device=placement.device)
    return placement.between(node, extents[node.type.space])


def _inputs(executable: Executable, values: Sequence[Any], placement: Placement) -> list[Any]:
    """Where inputs lie: rows for those over entities, tensors on the device for global ones."""
    found: list[Any] = []
    for value, node in zip(values, executable.plan.inputs, strict=True):
        if not isinstance(value, torch.Tensor):
            found.append(number_on(value, torch_dtype(node.type.dtype), placement.device))
        elif node.type.space != GLOBAL:
            found.append(placement.input(value))
        elif value.device == placement.device:
            found.append(value.detach().contiguous())
        else:
            where = str(placement.device)
            raise InvalidType(
                f"a tensor that `edge` or `node` reads is on {value.device}, but the graph runs on "
                f"{where}: move the kernel there, `kernel.to({where!r})`."
            )
    return found
