"""Calls of native tensors over graphs in files on a GPU: memory, copies and streams are the
driver's, and no torch is needed."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from tiga.backends.triton.dense.moves import contiguous
from tiga.backends.triton.dense.run import Room
from tiga.backends.triton.machine import Gpu, machine
from tiga.backends.triton.native import NativePlatform
from tiga.backends.triton.paged.budgets import SHARE, Budgets
from tiga.backends.triton.paged.calls import Call
from tiga.backends.triton.paged.fetching import fetch, pinnable
from tiga.backends.triton.paged.memory import HostRows
from tiga.backends.triton.paged.placement import Placement
from tiga.errors import InvalidValue
from tiga.frontends.spaces import extents_of
from tiga.frontends.tensor.lazy import here
from tiga.frontends.tensor.messages.graph_call import Launch
from tiga.frontends.tensor.messages.paged import rows_of
from tiga.runtime.device_array import DeviceArray, DeviceMemory, download
from tiga.runtime.pages import FileRows, Rows
from tiga.runtime.pool import POOL
from tiga.runtime.scope import active
from tiga.trace.node import Node
from tiga.types import GLOBAL, DType


@dataclass(frozen=True)
class NativeArrays:
    """Arrays of the driver's memory; see `tiga.backends.triton.paged.budgets.Arrays`."""

    index: int

    @cached_property
    def platform(self) -> NativePlatform:
        return machine(self.index).platform.uncounted

    def free(self) -> int:
        on = self.platform.on_machine
        assert isinstance(on, Gpu)
        return on.driver.memory_left()

    def new(self, shape: tuple[int, ...], dtype: DType, what: str) -> DeviceArray:
        return Room(self.platform.on_machine, active()).like(shape, dtype.numpy)

    def block(self, array: DeviceArray) -> tuple[DeviceMemory, int]:
        return array.memory, array.address - array.memory.address


def place_on_gpu(
    graph: Any, index: int, shape: tuple[int, ...], dtype: np.dtype, share: int
) -> "DeviceArray | None":  # fmt: skip
    """An array on a device that takes at most one part in `share` of what is left there; None if
    it would take more."""
    arrays = NativeArrays(index)
    if prod(shape) * dtype.itemsize > Budgets(graph, arrays).left // share:
        return None
    return Room(arrays.platform.on_machine, active()).like(shape, dtype)


def run_on_gpu_pages(launch: Launch, graph: Any, arrays: Sequence[Any], index: int) -> list[Any]:
    """All outputs of a program over a graph in a file, on the device or mapped from files.

    Raises:
        OutOfBudget: a page of one row does not fit the budgets, or what has to be on the device.
        InvalidFile: the file names an edge that cannot be.
    """
    executable = launch.on_gpus.by_pages
    call = Call(executable, graph, extents_of(launch.program, graph), NativeArrays(index), placed)
    outputs, launch.gpu_pages = call.run(arrays)
    return outputs


def placed(value: Any, node: Node, placement: Placement) -> Any:
    """Where an input lies: rows for one over entities, an array on the device for a global one."""
    index = placement.platform.index
    if isinstance(value, DeviceArray) and value.machine.index != index:
        raise InvalidValue(
            f"an operand is on cuda:{value.machine.index}, and the graph in a file runs on "
            f"cuda:{index} ({here()}): move it there by name: .to('cuda:{index}')."
        )
    if node.type.space != GLOBAL:
        if isinstance(value, DeviceArray):
            return _on_device(value, node, placement)
        rows = rows_of(value, placement.graph)
        return rows if isinstance(rows, FileRows) else HostRows(value)
    if isinstance(value, DeviceArray):
        return contiguous(value)
    if value.size != 1:
        raise InvalidValue(
            f"a tensor that `edge` or `node` reads is on the CPU, but the graph runs on "
            f"cuda:{index} ({here()}): move it there by name: .to('cuda:{index}')."
        )
    return placement.platform.sent(value)


def _on_device(array: DeviceArray, node: Node, placement: Placement) -> Rows:
    """An array there, one row after the other; of one whose rows are all the same, where that would
    take much, one row on the host."""
    count, width = array.shape[0], node.type.row_bytes
    if array.is_launchable or not array.size:
        return placement.rows(array, count, width)
    if array.strides[0] == 0 and count > 1 and count * width > placement.left // SHARE:
        row = download(contiguous(array[:1]))
        return HostRows(np.broadcast_to(row, array.shape))
    return placement.rows(contiguous(array), count, width)


def fetched(array: DeviceArray, graph: Any) -> np.ndarray:
    """A result of a call over a graph in ordinary memory: what is long comes through pinned memory
    and several threads."""
    whole, pinned = contiguous(array), pinnable(array.nbytes)
    if not array.nbytes or pinned < array.nbytes // max(1, array.shape[0]):
        return download(whole)
    host = POOL.array(array.shape, array.dtype)
    platform = machine(array.machine.index).platform.uncounted
    fetch(whole.address, host, platform, graph, pinned)
    return host
