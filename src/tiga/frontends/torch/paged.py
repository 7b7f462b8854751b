"""Calls over a graph in a file: what of a call lies where, and how much memory pages may take."""

import ctypes
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import torch

from tiga.backends.llvm.paged.run import Limits, Paging, run_paged
from tiga.errors import OutOfBudget, UnsupportedByBackend
from tiga.frontends.dlpack import array_of_torch, torch_of
from tiga.frontends.torch.gpu import device_of, on_gpu
from tiga.knobs import current
from tiga.paging.pipeline import READERS
from tiga.paging.results import fitting, spilled, spilled_array
from tiga.relations.paged import PagedField, PagedGraph
from tiga.runtime.mapped import file_at
from tiga.runtime.pages import FileRows, MemoryRows, Rows
from tiga.runtime.parallel import thread_count
from tiga.runtime.scope import Scope, active, fallback
from tiga.trace.node import Node
from tiga.types import GLOBAL, Space

if TYPE_CHECKING:
    from tiga.frontends.torch.unit import Runnable

SHARE = 2
"""Outputs and values between steps stay in memory as far as they take up to one part in so many of
what the budget leaves; pages get the rest."""


def attached(values: Any) -> Any:
    """A namespace of a call, with fields of a file as tensors mapped from it."""
    if not isinstance(values, Mapping):
        return values
    return {
        name: torch_of(value.numpy()) if isinstance(value, PagedField) else value
        for name, value in values.items()
    }


def refuse_bounded(reason: Exception) -> NoReturn:
    """What cannot be fused needs the edges in memory."""
    raise UnsupportedByBackend(
        f"a graph in a file runs fused programs only, and this one is not: {reason} Rewrite it, or "
        "use `graph.in_memory()`."
    )


class Placement:
    """Where the arrays of one run lie: in memory while they fit, else in the scope's spill file."""

    def __init__(
        self, graph: PagedGraph, sizes: Mapping[Node, int], spill: bool, held: int = 0
    ) -> None:
        """`held`: bytes that will be live by then, beside those that are now."""
        scope = active()
        self.scope: Scope = fallback() if scope is None else scope
        self.traffic = graph.traffic
        budget = self.scope.host.budget
        left = None if budget is None else max(0, budget - self.scope.host.live - held)
        room = 0 if spill else sum(sizes.values()) if left is None else left // SHARE
        self.resident = fitting(sizes, room)
        stored = sum(sizes[node] for node in self.resident)
        bound = current().memory_bound if left is None else left - stored
        threads = thread_count(torch.get_num_threads())
        self.limits = Limits(bound, self.scope.depth(READERS), self.scope.page_rows, threads)

    def charge(self, nbytes: int) -> Callable[[], None]:
        """Count the memory of pages; what is returned takes that back."""
        if active() is None:
            return lambda: None
        ticket = self.scope.host.charge(nbytes, "pages of a graph in a file")
        return lambda: self.scope.host.release(ticket)

    def output(
        self, node: Node, shape: tuple[int, ...], dtype: torch.dtype
    ) -> tuple[torch.Tensor, Rows]:
        """A tensor for an output over entities, and where its rows are stored."""
        kind = torch.empty(0, dtype=dtype)
        nbytes = int(np.prod(shape, dtype=np.int64)) * kind.element_size()
        if node in self.resident or not nbytes:
            array = np.empty(shape, array_of_torch(kind).dtype)
            if active() is not None:
                self.scope.adopt(array, f"an output of shape {shape}")
            return torch_of(array), MemoryRows(array)
        mapped, rows = spilled_array(self.scope, self.traffic, shape, array_of_torch(kind).dtype)
        return torch_of(mapped), rows

    def between(self, node: Node, count: int) -> Rows:
        """Rows for a value that one step stores for later ones."""
        row_bytes = node.type.row_bytes
        if node not in self.resident and count * row_bytes:
            return spilled(self.scope, self.traffic, count, row_bytes)
        array = np.empty((count, row_bytes), np.uint8)
        if active() is not None:
            self.scope.adopt(array, f"a value between steps, {count} rows")
        return MemoryRows(array)


def rows_of(tensor: torch.Tensor, graph: PagedGraph) -> Rows:
    """Where the rows of an input lie: in a file if its memory is mapped from one and was not
    written to, else in memory."""
    nbytes = tensor.numel() * tensor.element_size()
    if tensor.is_contiguous() and nbytes:
        mapped = file_at(tensor.data_ptr(), nbytes)
        if mapped is not None and (mapped.shared or tensor._version == 0):
            count = tensor.shape[0]
            return FileRows(mapped.fd, mapped.offset, count, nbytes // count, graph.traffic, mapped)
    return MemoryRows(array_of_torch(tensor))


def run_on_pages(
    runnable: "Runnable", graph: PagedGraph, values: Sequence[Any]
) -> list[torch.Tensor]:
    """Compute the outputs of a program, page by page, where the graph runs.

    Raises:
        OutOfBudget: a page of one task does not fit the budget.
        InvalidFile: the file names an edge that cannot be.
        UnsupportedByBackend: the program needs all of a set in memory.
    """
    device = device_of(graph)
    if on_gpu(device):
        from tiga.frontends.torch.paged_gpu import run_on_gpu_pages

        return run_on_gpu_pages(runnable, graph, values, device)
    try:
        return _run(runnable, graph, values, spill=False)
    except OutOfBudget:
        pass  # what it held is free again only after this
    return _run(runnable, graph, values, spill=True)


def stored_sizes(
    runnable: "Runnable", graph: PagedGraph
) -> tuple[dict[Space, int], dict[Node, int]]:
    """The extents of a program's spaces, and the bytes of what it stores over entities."""
    extents = {s: getattr(graph, e) for s, e in runnable.extents.items() if e is not None}
    plan = runnable.executable.executable.plan
    entities = (n for n in (*plan.outputs, *plan.intermediates) if n.type.space != GLOBAL)
    return extents, {n: extents[n.type.space] * n.type.row_bytes for n in entities}


def _run(
    runnable: "Runnable", graph: PagedGraph, values: Sequence[Any], spill: bool
) -> list[torch.Tensor]:
    """Compute the outputs; `spill` keeps none in memory."""
    extents, sizes = stored_sizes(runnable, graph)
    executable = runnable.executable.executable
    placement = Placement(graph, sizes, spill)
    outputs, homes = [], []
    for node, layout in zip(executable.plan.outputs, runnable.outputs, strict=True):
        lead = () if layout.extent is None else (getattr(graph, layout.extent),)
        if not lead:
            outputs.append(torch.empty(layout.shape, dtype=layout.dtype))
            homes.append(outputs[-1].data_ptr())
            continue
        tensor, rows = placement.output(node, (*lead, *layout.shape), layout.dtype)
        outputs.append(tensor)
        homes.append(rows)
    kept, inputs = _inputs(runnable, graph, values)
    graphs: list[Any] = [graph] * len(runnable.program.relations)
    keep = partial(spilled, placement.scope, placement.traffic)
    paging = Paging(placement.limits, placement.between, placement.charge, keep)
    threads = placement.limits.threads
    with graph.reading():
        run_paged(executable, graphs, inputs, homes, threads, extents, paging)
    del kept
    return outputs


def _inputs(
    runnable: "Runnable", graph: PagedGraph, values: Sequence[Any]
) -> tuple[list[Any], list["Rows | int"]]:
    """What keeps the inputs alive, and where they lie."""
    kept: list[Any] = []
    found: list[Rows | int] = []
    for value, node, c_type in zip(values, runnable.program.inputs, runnable.inputs, strict=True):
        if not isinstance(value, torch.Tensor):
            number: Any = c_type(value)  # type: ignore[misc]
            kept.append(number)
            found.append(ctypes.addressof(number))
        elif node.type.space == GLOBAL:
            kept.append(value.contiguous())
            found.append(kept[-1].data_ptr())
        else:
            found.append(rows_of(value, graph))
    return kept, found
