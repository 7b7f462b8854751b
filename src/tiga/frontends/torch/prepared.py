"""A call whose buffers are fixed: everything is looked up once, and each launch only computes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from tiga.errors import Unfusable, UnsupportedByBackend
from tiga.frontends.message_passing import FieldSets, MessagePassing
from tiga.frontends.torch.binding import in_given_order, source_value
from tiga.frontends.torch.call import values_of
from tiga.frontends.torch.capture.draws import NodeOrder
from tiga.frontends.torch.capture.messages import EdgeOrder
from tiga.frontends.torch.capture.program import FieldSource
from tiga.frontends.torch.fields import namespaces
from tiga.frontends.torch.orders import orders_of
from tiga.frontends.torch.rows import move_rows_to
from tiga.frontends.torch.variants import state_of, variant_of
from tiga.frontends.trees import mapped
from tiga.relations import Graph


@dataclass(frozen=True)
class Refresh:
    """A buffer that holds a tensor in another order or layout, filled anew at each launch."""

    buffer: torch.Tensor
    given: torch.Tensor
    order: torch.Tensor | None

    def __call__(self) -> None:
        if self.order is None:
            self.buffer.copy_(self.given)
        else:
            move_rows_to(self.buffer, self.given, self.order)


@dataclass(frozen=True)
class Prepared:
    """A call with fixed buffers, without gradients; see `MessagePassing.prepare`.

    `outputs`: the results, in the structure that the call returns, written by every launch.
    """

    outputs: Any
    graph: Graph
    token: tuple[int, ...]
    refreshes: tuple[Refresh, ...]
    launch: Callable[[], None]
    ordered: tuple[Refresh, ...] = ()
    """Results on edges, put in the order of the user after each launch."""

    def __call__(self) -> Any:
        """Compute `outputs` from what the tensors hold now, and return them.

        Raises:
            StaleTopology: the graph's index arrays were written to.
        """
        self.graph.require_unchanged(self.token)
        for refresh in self.refreshes:
            refresh()
        self.launch()
        for result in self.ordered:
            result()
        return self.outputs


def prepare(
    kernel: MessagePassing, graph: Any, given: FieldSets, params: Mapping[str, Any]
) -> Prepared:
    """See `MessagePassing.prepare`."""
    fields = namespaces(graph, given)
    if graph.paged:
        raise UnsupportedByBackend(
            "prepare: the graph is in files, whose pages have no fixed buffers; call the kernel."
        )
    state = state_of(kernel)
    variant = variant_of(kernel, graph, fields, params)
    if variant.captured is None or variant.unit is None:
        assert variant.bounded is not None
        raise Unfusable(f"prepare: {variant.bounded.reason}. Call the kernel instead.")
    with torch.no_grad():
        bound = values_of(state, variant, graph, fields, params)
        values = [v.detach() if isinstance(v, torch.Tensor) else v for v in bound]
    runnable = variant.unit.plain()
    results = runnable.allocate(graph)
    launch = runnable.prepare(graph, values, results)
    refreshes = _refreshes(variant.captured.sources, values, fields, params, graph)
    returned = list(in_given_order(results, variant.on_edges, graph))
    ordered = [
        Refresh(to, of, orders_of(graph).to_user)
        for to, of in zip(returned, results, strict=True)
        if to is not of
    ]
    outputs = mapped(lambda i: returned[i], variant.captured.result)
    made = Prepared(outputs, graph, graph.token(), tuple(refreshes), launch, tuple(ordered))
    made()
    return made


def _refreshes(
    sources: Sequence[Any], values: Sequence[Any], fields: Any, params: Any, graph: Graph
) -> list[Refresh]:
    """The values that are copies of what the user gave."""
    found = []
    for source, value in zip(sources, values, strict=True):
        is_edge = isinstance(source, FieldSource) and source.namespace == "edge"
        order = orders_of(graph).to_rows if is_edge and graph.permutes_edges else None
        given = source_value(source, fields, params)[0] if _is_given(source) else None
        if isinstance(given, torch.Tensor) and given.data_ptr() != value.data_ptr():
            found.append(Refresh(value, given.detach(), order))
    return found


def _is_given(source: Any) -> bool:
    """Whether a value is a tensor or number of the user's, and not an order that the graph has."""
    return not isinstance(source, (EdgeOrder, NodeOrder))
