"""Calls over a graph in a file: what of a call lies where, and how much memory pages may take."""

import ctypes
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from tiga.backends.llvm.paged.placement import Placement
from tiga.backends.llvm.paged.run import Paging, run_paged
from tiga.errors import OutOfBudget
from tiga.frontends.dlpack import array_of_torch, torch_of
from tiga.frontends.torch.gpu import device_of, on_gpu
from tiga.paging.results import spilled, stored_sizes
from tiga.relations.paged import PagedField, PagedGraph
from tiga.runtime.mapped import file_at
from tiga.runtime.pages import FileRows, MemoryRows, Rows
from tiga.runtime.parallel import thread_count
from tiga.types import GLOBAL, Space

if TYPE_CHECKING:
    from tiga.frontends.torch.unit import Runnable


def attached(values: Any) -> Any:
    """A namespace of a call, with fields of a file as tensors mapped from it."""
    if not isinstance(values, Mapping):
        return values
    return {
        name: torch_of(value.numpy()) if isinstance(value, PagedField) else value
        for name, value in values.items()
    }


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


def extents_of(runnable: "Runnable", graph: PagedGraph) -> dict[Space, int]:
    """The extents of a program's spaces."""
    found = {s: getattr(graph, e) for s, e in runnable.extents.items() if e is not None}
    for relation in runnable.program.relations:
        found[relation.src], found[relation.dst] = graph.num_src, graph.num_dst
        found[relation.edge] = graph.num_edges
    return found


def _run(
    runnable: "Runnable", graph: PagedGraph, values: Sequence[Any], spill: bool
) -> list[torch.Tensor]:
    """Compute the outputs; `spill` keeps none in memory."""
    extents, executable = extents_of(runnable, graph), runnable.executable.executable
    threads = thread_count(torch.get_num_threads())
    sizes = stored_sizes(executable.plan, extents)
    placement = Placement(graph.traffic, sizes, spill, threads)
    outputs, homes = [], []
    for node, layout in zip(executable.plan.outputs, runnable.outputs, strict=True):
        lead = () if layout.extent is None else (getattr(graph, layout.extent),)
        if not lead:
            outputs.append(torch.empty(layout.shape, dtype=layout.dtype))
            homes.append(outputs[-1].data_ptr())
            continue
        array, rows = placement.output(node, *lead)
        outputs.append(torch_of(array))
        homes.append(rows)
    kept, inputs = _inputs(runnable, graph, values)
    graphs: list[Any] = [graph] * len(runnable.program.relations)
    keep = partial(spilled, placement.scope, placement.traffic)
    paging = Paging(placement.limits, placement.between, placement.charge, keep, placement.arena)
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
