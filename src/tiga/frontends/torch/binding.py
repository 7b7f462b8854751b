"""The values of a program's inputs at a call."""

from collections.abc import Sequence
from typing import Any

import torch

from tiga.errors import InvalidType, UnsupportedByBackend
from tiga.frontends.torch.capture.draws import NodeOrder
from tiga.frontends.torch.capture.messages import EdgeOrder
from tiga.frontends.torch.capture.parameters import ParamSource
from tiga.frontends.torch.capture.program import Captured, FieldSource
from tiga.frontends.torch.devices import device_of, may_stage
from tiga.frontends.torch.orders import edge_numbers, in_row_order, in_user_order
from tiga.relations import Graph


def bind(captured: Captured, graph: Graph, fields: Any, params: Any) -> list[Any]:
    """The values of a program's inputs: tensors as kernels read them, and numbers."""
    values = []
    for source in captured.sources:
        value = _value(captured, source, graph, fields, params)
        if isinstance(value, torch.Tensor) and not value.is_contiguous():
            value = value.contiguous()
        values.append(value)
    return values


def _value(captured: Captured, source: Any, graph: Graph, fields: Any, params: Any) -> Any:
    kind = type(source)
    if kind is FieldSource:
        value = fields[source.namespace][source.name]
        permutes = source.namespace == "edge" and graph.permutes_edges
        return in_row_order(value, graph) if permutes else value
    if kind is ParamSource:
        value = source.of(params)
    elif kind is EdgeOrder:
        return edge_numbers(graph)
    elif kind is NodeOrder:
        return torch.arange(graph.num_dst, device=device_of(graph))
    else:
        value = source if kind is torch.Tensor else source.get()
    return _of_all(captured, source, value, graph) if isinstance(value, torch.Tensor) else value


def _of_all(captured: Captured, source: Any, value: torch.Tensor, graph: Graph) -> torch.Tensor:
    """A tensor that belongs to no node or edge, where kernels read it."""
    device = device_of(graph)
    strided = value.layout is torch.strided
    if strided and (value.device == device or may_stage(graph, value.device)):
        return value
    if strided and not value.dim() and value.device.type == "cpu":
        return value.to(device)  # torch takes it as a number, too
    name = captured.program.inputs[captured.sources.index(source)].op.label
    if not strided:
        raise InvalidType(f"`{name}` must be a dense tensor; got layout {value.layout}.")
    raise UnsupportedByBackend(
        f"`{name}` is on {value.device}, but the graph is on {device}, where `edge` reads it: move "
        f"it with `.to({str(device)!r})`, or build the graph from index tensors on {value.device}."
    )


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
        return source.of(params), source.label
    return source if isinstance(source, torch.Tensor) else source.get(), "the index"
