"""Help for torch's compiler and export. Importing this module registers the op `tiga::run`, which
exported programs hold: import it before loading one."""

from typing import Any

import torch

from tiga.errors import InvalidType
from tiga.frontends.torch import transformed as _transformed
from tiga.relations import Graph
from tiga.relations.inputs import CsrInput, TransposedInput

__all__ = ["mark_dynamic"]

assert _transformed is not None  # registers the op


def mark_dynamic(graph: Graph, *fields: torch.Tensor) -> None:
    """Let one compiled graph serve every number of nodes and edges, 0 and 1 included.

    `torch.compile` makes a graph for the first sizes that it meets, one for all further ones, and
    more for sizes 0 and 1. Call this on the graph and the fields of a call before the first
    compiled call, and on those of each later one.

    Args:
        graph: made from torch tensors.
        fields: tensors whose first axis enumerates nodes or edges of the graph.

    Raises:
        InvalidType: `graph` is no graph, or a field is no tensor.

    Example:
        >>> import torch, tiga as tg
        >>> from tiga.interop.torch import mark_dynamic
        >>> class Sum(tg.MessagePassing):
        ...     def edge(self, src, dst, edge):
        ...         return src.x
        >>> kernel = Sum()
        >>> step = torch.compile(
        ...     lambda graph, x: kernel(graph=graph, src={"x": x}),
        ...     fullgraph=True, backend="aot_eager")
        >>> for size in (3, 1):
        ...     index = torch.arange(size)
        ...     graph = tg.Graph.from_coo(index, index, num_src=size, num_dst=size)
        ...     x = torch.ones(size)
        ...     mark_dynamic(graph, x)
        ...     print(step(graph, x))
        tensor([1., 1., 1.])
        tensor([1.])
    """
    if not isinstance(graph, Graph):
        raise InvalidType(f"mark_dynamic: expected a tiga Graph, got {type(graph).__name__}.")
    for field in fields:
        if not isinstance(field, torch.Tensor):
            raise InvalidType(f"mark_dynamic: expected tensors, got {type(field).__name__}.")
    graph.marks = torch.empty(graph.num_src, 0), torch.empty(graph.num_dst, 0)
    for tensor in (*graph.marks, *_indices(graph), *fields):
        torch._dynamo.decorators.mark_unbacked(tensor, 0)


def _indices(graph: Graph) -> list[torch.Tensor]:
    made: Any = graph.input
    if isinstance(made, TransposedInput):
        return _indices(made.base)
    first = made.pointers if isinstance(made, CsrInput) else made.sources
    second = made.sources if isinstance(made, CsrInput) else made.destinations
    return [i.data for i in (first, second) if isinstance(i.data, torch.Tensor)]
