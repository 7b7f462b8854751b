"""Native tensors on a GPU as the index arrays of graphs, and graphs' arrays as native tensors."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from tiga.backends.triton.dense.moves import contiguous
from tiga.backends.triton.index_arrays import IndexArray, index_array
from tiga.backends.triton.machine import machine
from tiga.frontends.tensor.core import Tensor
from tiga.frontends.tensor.devices import Device
from tiga.frontends.tensor.lazy import LazyNode, leaf
from tiga.frontends.tensor.storage import wrap
from tiga.relations.on_device import DeviceCsr
from tiga.runtime.device_array import DeviceArray
from tiga.types import GLOBAL, Type, int64


@dataclass(frozen=True)
class IndexTemplate:
    """Makes native tensors on a device of a graph's index arrays."""

    device: Device

    def made(self, indices: Any) -> Tensor:
        """A tensor of indices that are on the host, or on the device."""
        if not isinstance(indices, DeviceArray):
            indices = machine(self.device.index).platform.sent(np.ascontiguousarray(indices))
        return wrap(plain(indices))  # type: ignore[arg-type]


def index_template(x: Tensor) -> IndexTemplate:
    """What makes tensors like this one of a graph's index arrays."""
    return IndexTemplate(x.device)


def gpu_indices(x: Tensor) -> IndexArray:
    """The elements of a tensor on a GPU, as graphs take them."""
    array: Any = x._in_memory()
    return index_array(contiguous(array))


def plain(array: DeviceArray) -> DeviceArray:
    """An index array as a tensor's memory."""
    return DeviceArray(array.memory, array.shape, array.dtype, array.strides, array.address)


def edge_orders_on_gpu(topology: Any, index: int) -> tuple[LazyNode, LazyNode]:
    """The user's number of each edge in CSR order, and back, of a snapshot that has such an order,
    on a GPU."""
    platform = machine(index).platform
    csr = topology.topology
    if isinstance(csr, DeviceCsr) and platform.owns(csr.permutation):
        order = platform.arrays.cast(csr.permutation, 64)
    else:
        order = platform.sent(topology.csr.permutation.astype(np.int64, copy=False))
    numbers = platform.arrays.positions(order, order.size)
    back = platform.arrays.put(platform.arrays.full(order, order.size, 0), order, numbers)
    return _node(order), _node(back)


def _node(array: IndexArray) -> LazyNode:
    return leaf(plain(array), Type(int64, array.shape, GLOBAL))  # type: ignore[arg-type]
