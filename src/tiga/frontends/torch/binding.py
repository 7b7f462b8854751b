"""The values of a program's inputs at a call."""

import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from tiga.frontends.torch.autograd import permute
from tiga.frontends.torch.capture import Captured, FieldSource, ParamSource
from tiga.frontends.torch.draws import NodeOrder
from tiga.frontends.torch.gpu import device_of
from tiga.frontends.torch.messages import EdgeOrder
from tiga.relations import Graph


@dataclass(eq=False)
class Orders:
    """The orders of graphs' edges, as long as the graphs live and do not change."""

    known: Any = field(default_factory=weakref.WeakKeyDictionary)

    def of(self, graph: Graph) -> tuple[torch.Tensor, torch.Tensor]:
        """The permutation from edge order to CSR order, and its inverse."""
        token = graph.token()
        found = self.known.get(graph)
        if found is None or found[0] != token:
            found = self.known[graph] = (token, *_orders_of(graph.edge_permutation))
        return found[1], found[2]

    def numbers(self, graph: Graph) -> torch.Tensor:
        """The user's number of each edge, in CSR order, as int64."""
        if graph.permutes_edges:
            return self.of(graph)[0].long()
        return torch.arange(graph.num_edges, device=device_of(graph))


@torch.inference_mode(False)
def _orders_of(given: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """A permutation and its inverse, which may be kept for backward, whatever mode this is."""
    # A numpy permutation is read-only, which `as_tensor` warns about.
    order = given.clone() if isinstance(given, torch.Tensor) else torch.tensor(given)
    inverse = torch.empty_like(order)
    inverse[order] = torch.arange(len(order), dtype=order.dtype, device=order.device)
    return order, inverse


def bind(
    captured: Captured, graph: Graph, fields: Any, params: Any, orders: Orders
) -> list[Any]:  # fmt: skip
    """The values of a program's inputs: tensors as kernels read them, and numbers."""
    values = []
    for source in captured.sources:
        value = _value(source, graph, fields, params, orders)
        if isinstance(value, torch.Tensor) and not value.is_contiguous():
            value = value.contiguous()
        values.append(value)
    return values


def _value(source: Any, graph: Graph, fields: Any, params: Any, orders: Orders) -> Any:
    kind = type(source)
    if kind is FieldSource:
        value = fields[source.namespace][source.name]
        permutes = source.namespace == "edge" and graph.permutes_edges
        return permute(value, *orders.of(graph)) if permutes else value
    if kind is ParamSource:
        return params[source.name]
    if kind is EdgeOrder:
        return orders.numbers(graph)
    if kind is NodeOrder:
        return torch.arange(graph.num_dst, device=device_of(graph))
    return source if isinstance(source, torch.Tensor) else source.get()


def in_given_order(
    outputs: Sequence[torch.Tensor], on_edges: Sequence[int], graph: Graph, orders: Orders
) -> Sequence[torch.Tensor]:
    """Outputs with those on edges, which a program has in CSR order, in that of the user."""
    if not on_edges or not graph.permutes_edges:
        return outputs
    order, inverse = orders.of(graph)
    found = list(outputs)
    for i in on_edges:
        found[i] = permute(found[i], inverse, order)
    return found


def source_value(source: Any, fields: Any, params: Any) -> tuple[torch.Tensor, str]:
    """The tensor of a source as the user gave it, and its name."""
    if isinstance(source, FieldSource):
        return fields[source.namespace][source.name], f"{source.namespace}.{source.name}"
    if isinstance(source, ParamSource):
        return params[source.name], source.name
    return source if isinstance(source, torch.Tensor) else source.get(), "the index"
