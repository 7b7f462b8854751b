"""The order of edges: programs have them in CSR order, users in that in which they gave them."""

from typing import Any

import numpy as np

from tiga.frontends.tensor.arrays import moved_to
from tiga.frontends.tensor.build import apply
from tiga.frontends.tensor.core import Tensor
from tiga.frontends.tensor.devices import CPU, Device
from tiga.frontends.tensor.lazy import LazyNode, leaf
from tiga.ops.tensor_index import Reorder
from tiga.relations import Graph
from tiga.trace.node import Node
from tiga.types import GLOBAL, Type, int64

REORDER = Reorder()

AT_ONCE = 32768
"""Elements up to which a field's values are put in order without an op of their own, which would
take longer to record than to do."""


def edge_order(topology: Any) -> LazyNode | None:
    """The user's number of each edge, in CSR order; None where the two orders are one."""
    if isinstance(topology, Graph):
        order = topology.edge_permutation if topology.permutes_edges else None
        return None if order is None else indices(np.asarray(order))
    if topology.csr.permutation is None:
        return None
    found: LazyNode = topology.get("nativeedge_order", lambda csr: indices(csr.permutation))
    return found


def edge_orders(topology: Any, device: Device) -> tuple[LazyNode, LazyNode] | None:
    """The user's number of each edge in CSR order, and the CSR position of each of the user's
    edges, on a device; None where the two orders are one."""
    if isinstance(topology, Graph):
        order = edge_order(topology)
        return None if order is None else _orders(order, device)
    if topology.topology.permutation is None:
        return None
    found: tuple[LazyNode, LazyNode] = topology.keep(
        ("native edge orders", device.type, device.index), lambda: _orders_of(topology, device)
    )
    return found


def _orders_of(topology: Any, device: Device) -> tuple[LazyNode, LazyNode]:
    if device != CPU:
        from tiga.frontends.tensor.graph_indices import edge_orders_on_gpu

        return edge_orders_on_gpu(topology, device.index)
    order = edge_order(topology)
    assert order is not None
    return _orders(order, device)


def _orders(order: LazyNode, device: Device) -> tuple[LazyNode, LazyNode]:
    assert order.cell is not None
    there = order.cell.array
    back = np.empty_like(there)
    back[there] = np.arange(there.size)
    return _on(order, device), _on(indices(back), device)


def in_csr_order(field: Tensor, topology: Any, device: Device) -> Node:
    """The value of a field of edges, in CSR order."""
    node = field._node
    orders = edge_orders(topology, device)
    if orders is None:
        return node
    order, back = orders
    if field._grad or node.cell is None or node.type.size > AT_ONCE or device is not CPU:
        return apply(REORDER, node, order, back)
    assert order.cell is not None
    return leaf(node.cell.array.take(order.cell.array, 0), node.type, node.place)


def in_given_order(values: LazyNode, topology: Any, device: Device) -> LazyNode:
    """Values of edges, in CSR order, in that of the user."""
    orders = edge_orders(topology, device)
    if orders is None:
        return values
    order, back = orders
    return apply(REORDER, values, back, order)


def edge_numbers(topology: Any, device: Device) -> LazyNode:
    """The user's number of each edge in CSR order, on a device."""
    orders = edge_orders(topology, device)
    return _on(indices(np.arange(topology.num_edges)), device) if orders is None else orders[0]


def _on(node: LazyNode, device: Device) -> LazyNode:
    """A given value on a device."""
    if device == CPU:
        return node
    assert node.cell is not None
    return leaf(moved_to(node.cell.array, device), node.type)


def on_device(numbers: np.ndarray, device: Device) -> LazyNode:
    """Positions as a node on a device."""
    return _on(indices(numbers), device)


def indices(array: np.ndarray) -> LazyNode:
    """Positions as a node."""
    wide = np.array(array, np.int64)
    return leaf(wide, Type(int64, wide.shape, GLOBAL))
