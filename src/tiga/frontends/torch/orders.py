"""Edge fields from the order of the user to that of a graph's rows, and back."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch

from tiga.frontends.torch.autograd import transforming
from tiga.frontends.torch.devices import device_of
from tiga.frontends.torch.rows import rows_at
from tiga.frontends.torch.untraced import untraced
from tiga.relations import Graph
from tiga.relations.csr import Csr
from tiga.relations.snapshot import Snapshot


@dataclass(eq=False)
class Orders:
    """The place of every edge in the order of the user, in CSR order, and the inverse of that."""

    to_rows: torch.Tensor

    @cached_property
    def to_user(self) -> torch.Tensor:
        order = self.to_rows
        inverse = torch.empty_like(order)
        numbers = torch.arange(len(order), dtype=order.dtype, device=order.device)
        return inverse.scatter_(0, order.long(), numbers)


def orders_of(graph: Graph) -> Orders:
    """The orders of a graph's edges; kept as long as its index arrays do not change."""
    topology = graph.snapshot()
    found: Orders = topology.keep("torch orders", lambda: Orders(_to_rows(graph, topology)))
    return found


def _to_rows(graph: Graph, topology: Snapshot) -> torch.Tensor:
    csr = topology.topology
    order = csr.permutation if isinstance(csr, Csr) else graph.edge_permutation
    if not isinstance(order, np.ndarray):
        return order
    # torch warns about arrays that are read-only, although this one is only read.
    tensor = torch.from_numpy(order if order.flags.writeable else order.copy())
    place = graph.input.place
    return tensor if place is None else tensor.to(place)


def edge_numbers(graph: Graph) -> torch.Tensor:
    """The user's number of each edge, in CSR order, as int64."""
    if graph.permutes_edges:
        return orders_of(graph).to_rows.long()
    return torch.arange(graph.num_edges, device=device_of(graph))


class _Permuted(torch.autograd.Function):
    """Rows in another order; the gradient is a gather as well."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, orders: Orders, back: bool) -> Any:
        ctx.orders, ctx.back = orders, back
        return rows_at(x, orders.to_user if back else orders.to_rows)

    @staticmethod
    @untraced
    def backward(ctx: Any, cotangent: torch.Tensor) -> Any:
        return _permuted(cotangent, ctx.orders, not ctx.back), None, None


def _permuted(x: torch.Tensor, orders: Orders, back: bool) -> torch.Tensor:
    order = orders.to_user if back else orders.to_rows
    if transforming():
        return x.index_select(0, order)
    return _Permuted.apply(x, orders, back) if x.requires_grad else rows_at(x, order)


def in_row_order(x: torch.Tensor, graph: Graph) -> torch.Tensor:
    """An edge field of the user, in CSR order; differentiable in every mode."""
    return _permuted(x, orders_of(graph), back=False)


def in_user_order(x: torch.Tensor, graph: Graph) -> torch.Tensor:
    """The inverse of `in_row_order`."""
    return _permuted(x, orders_of(graph), back=True)
