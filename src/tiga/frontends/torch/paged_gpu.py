"""Calls over a graph in a file on a GPU, with torch tensors."""

import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from tiga.backends.triton.paged.budgets import SHARE
from tiga.backends.triton.paged.calls import Call
from tiga.backends.triton.paged.memory import HostRows
from tiga.backends.triton.paged.placement import Placement
from tiga.errors import InvalidType
from tiga.frontends.dlpack import array_of_torch, torch_of
from tiga.frontends.spaces import extents_of
from tiga.frontends.torch.dtypes import torch_dtype
from tiga.frontends.torch.scalars import number_on
from tiga.relations.paged import PagedGraph
from tiga.runtime.cuda import TorchPlatform, torch_platform
from tiga.runtime.mapped import file_at
from tiga.runtime.pages import FileRows, Rows
from tiga.runtime.scope import active
from tiga.trace.node import Node
from tiga.types import GLOBAL, DType

if TYPE_CHECKING:
    from tiga.frontends.torch.unit import Runnable


@dataclass(frozen=True)
class TorchArrays:
    """Tensors on a device; see `tiga.backends.triton.paged.budgets.Arrays`."""

    device: torch.device

    @cached_property
    def platform(self) -> TorchPlatform:
        return torch_platform(self.device)

    def free(self) -> int:
        unused = torch.cuda.memory_reserved(self.device) - torch.cuda.memory_allocated(self.device)
        return torch.cuda.mem_get_info(self.device)[0] + unused

    def new(self, shape: tuple[int, ...], dtype: DType, what: str) -> torch.Tensor:
        kind, scope = torch_dtype(dtype), active()
        if scope is None:
            return torch.empty(shape, dtype=kind, device=self.device)
        account = scope.accounts["device"]
        ticket = account.charge(prod(shape) * dtype.itemsize, what)
        try:
            made = torch.empty(shape, dtype=kind, device=self.device)
        except BaseException:
            account.release(ticket)
            raise
        # The memory, not the tensor: others may view it for longer.
        weakref.finalize(made.untyped_storage(), account.release, ticket).atexit = False
        return made

    def block(self, array: torch.Tensor) -> tuple[torch.Tensor, int]:
        return array.detach().reshape(-1).view(torch.uint8), 0


def run_on_gpu_pages(
    runnable: "Runnable", graph: PagedGraph, values: Sequence[Any], device: torch.device
) -> list[torch.Tensor]:
    """Compute the outputs of a program on a GPU, page by page.

    Raises:
        OutOfBudget: a page of one row does not fit the budgets, or what has to be on the device.
        InvalidFile: the file names an edge that cannot be.
    """
    executable = runnable.gpu_runs.executable.by_pages
    call = Call(executable, graph, extents_of(runnable.program, graph), TorchArrays(device), placed)
    outputs, runnable.gpu_runs.pages = call.run(values)
    return [out if isinstance(out, torch.Tensor) else torch_of(out) for out in outputs]


def placed(value: Any, node: Node, placement: Placement) -> Any:
    """Where an input lies: rows for one over entities, a tensor on the device for a global one."""
    library: Any = placement.library
    device = library.device
    if not isinstance(value, torch.Tensor):
        return number_on(value, torch_dtype(node.type.dtype), device)
    if node.type.space != GLOBAL:
        return _rows(value, node, placement, device)
    if value.device == device:
        return value.detach().contiguous()
    where = str(device)
    raise InvalidType(
        f"a tensor that `edge` or `node` reads is on {value.device}, but the graph runs on "
        f"{where}: move the kernel there, `kernel.to({where!r})`."
    )


def _rows(tensor: torch.Tensor, node: Node, placement: Placement, device: torch.device) -> Rows:
    """In a file if its memory is mapped from one and was not written to, else in memory of the
    device or the host."""
    nbytes = tensor.numel() * tensor.element_size()
    if tensor.device.type == "cpu" and tensor.is_contiguous() and nbytes:
        mapped = file_at(tensor.data_ptr(), nbytes)
        if mapped is not None and (mapped.shared or tensor._version == 0):
            count = tensor.shape[0]
            return FileRows(mapped.fd, mapped.offset, count, nbytes // count,
                            placement.graph.traffic, mapped)  # fmt: skip
    if tensor.device == device:
        return _on_device(tensor, node, placement)
    return HostRows(array_of_torch(tensor.detach()))


def _on_device(tensor: torch.Tensor, node: Node, placement: Placement) -> Rows:
    """A tensor there, one row after the other; of one whose rows are all the same, where that would
    take much, one row on the host."""
    count, width = len(tensor), node.type.row_bytes
    if tensor.is_contiguous() or not tensor.numel():
        return placement.rows(tensor.contiguous(), count, width)
    if tensor.stride(0) == 0 and count > 1 and count * width > placement.left // SHARE:
        row = array_of_torch(tensor.detach()[:1].contiguous().cpu())
        return HostRows(np.broadcast_to(row, tuple(tensor.shape)))
    made = placement.library.new(
        tuple(tensor.shape), node.type.dtype, "an input, its rows side by side"
    )
    return placement.rows(made.copy_(tensor.detach()), count, width)
