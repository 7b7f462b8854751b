"""Calls over a graph in a file: what of a call lies where, and how much memory pages may take."""

import ctypes
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from tiga.backends.llvm.paged.calls import Call
from tiga.frontends.dlpack import array_of_torch, torch_of
from tiga.frontends.spaces import extents_of
from tiga.frontends.torch.devices import device_of, on_gpu
from tiga.relations.paged import PagedField, PagedGraph
from tiga.runtime.mapped import file_at
from tiga.runtime.pages import FileRows, MemoryRows, Rows
from tiga.runtime.parallel import thread_count
from tiga.types import GLOBAL

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
    kept, inputs = _inputs(runnable, graph, values)
    threads = thread_count(torch.get_num_threads())
    call = Call(runnable.executable.executable, graph, extents_of(runnable.program, graph), threads)
    outputs = [torch_of(array) for array in call.run(inputs)]
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
