"""The values of a program's inputs at a call."""

from collections.abc import Sequence
from typing import Any

import torch

from tiga.frontends.torch.capture import Captured, FieldSource, ParamSource
from tiga.frontends.torch.draws import NodeOrder
from tiga.frontends.torch.gpu import device_of
from tiga.frontends.torch.messages import EdgeOrder
from tiga.frontends.torch.orders import edge_numbers, in_row_order, in_user_order
from tiga.relations import Graph


def bind(captured: Captured, graph: Graph, fields: Any, params: Any) -> list[Any]:
    """The values of a program's inputs: tensors as kernels read them, and numbers."""
    values = []
    for source in captured.sources:
        value = _value(source, graph, fields, params)
        if isinstance(value, torch.Tensor) and not value.is_contiguous():
            value = value.contiguous()
        values.append(value)
    return values


def _value(source: Any, graph: Graph, fields: Any, params: Any) -> Any:
    kind = type(source)
    if kind is FieldSource:
        value = fields[source.namespace][source.name]
        permutes = source.namespace == "edge" and graph.permutes_edges
        return in_row_order(value, graph) if permutes else value
    if kind is ParamSource:
        return params[source.name]
    if kind is EdgeOrder:
        return edge_numbers(graph)
    if kind is NodeOrder:
        return torch.arange(graph.num_dst, device=device_of(graph))
    return source if isinstance(source, torch.Tensor) else source.get()


def in_given_order(
    outputs: Sequence[torch.Tensor], on_edges: Sequence[int], graph: Graph
) -> Sequence[torch.Tensor]:
    """Outputs with those on edges, which a program has in CSR order, in that of the user."""
    if not on_edges or not graph.permutes_edges:
        return outputs
    found = list(outputs)
    for i in on_edges:
        found[i] = in_user_order(found[i], graph)
    return found


def source_value(source: Any, fields: Any, params: Any) -> tuple[torch.Tensor, str]:
    """The tensor of a source as the user gave it, and its name."""
    if isinstance(source, FieldSource):
        return fields[source.namespace][source.name], f"{source.namespace}.{source.name}"
    if isinstance(source, ParamSource):
        return params[source.name], source.name
    return source if isinstance(source, torch.Tensor) else source.get(), "the index"
