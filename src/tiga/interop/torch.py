"""Help for torch's compiler and export. Importing this module registers the op `tiga::run`, which
exported programs hold: import it before loading one."""

from typing import Any

import torch

from tiga.errors import InvalidType
from tiga.frontends.torch.compiled import transformed as _transformed
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
        >>> torch.compiler.reset()
    """
    if not isinstance(graph, Graph):
        raise InvalidType(f"mark_dynamic: expected a tiga Graph, got {type(graph).__name__}.")
    for field in fields:
        if not isinstance(field, torch.Tensor):
            raise InvalidType(f"mark_dynamic: expected tensors, got {type(field).__name__}.")
    made = graph.input.base if isinstance(graph.input, TransposedInput) else graph
    indices = _indices(made)
    made.marks = torch.empty(made.num_src, 0), torch.empty(made.num_dst, 0), *indices
    for tensor in (*made.marks, *fields):
        axis = 1 if len(indices) == 1 and tensor is indices[0] else 0
        torch._dynamo.decorators.mark_unbacked(tensor, axis)


def _indices(graph: Graph) -> list[torch.Tensor]:
    """The two index tensors, or the one `[2, num_edges]` whose rows they are: torch guards the
    place of a row in its memory, which depends on the number of edges. A detached tensor is not
    guarded as a view, and shares memory and version."""
    made: Any = graph.input
    csr = isinstance(made, CsrInput)
    pair = (made.pointers, made.sources) if csr else (made.sources, made.destinations)
    first, second = (torch.as_tensor(indices.data) for indices in pair)
    whole = first._base
    if whole is not None and whole is second._base and whole.dim() == 2 and len(whole) == 2:
        rows = whole.unbind()
        if all(map(_same_place, rows, (first, second))):
            # Without edges its rows would be one apart, not their length.
            return [
                whole.detach()
                if len(first)
                else torch.empty_strided((2, 0), (0, 1), dtype=whole.dtype)
            ]
    return [first.detach(), second.detach()]


def _same_place(a: torch.Tensor, b: torch.Tensor) -> bool:
    return (a.data_ptr(), a.shape, a.stride()) == (b.data_ptr(), b.shape, b.stride())
