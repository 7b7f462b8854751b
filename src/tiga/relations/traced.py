"""Graphs whose index tensors have no data yet: made, or read, while torch's compiler traces."""

import sys
from typing import TYPE_CHECKING, Any

from tiga.errors import InvalidValue

if TYPE_CHECKING:
    from tiga.relations.graph import Graph


def is_tracing() -> bool:
    """Whether torch's compiler or export traces the caller; this module must not load torch."""
    if "torch" not in sys.modules:
        return False
    torch = sys.modules["torch"]
    return hasattr(torch, "compiler") and torch.compiler.is_compiling()


def counts(graph: "Graph") -> tuple[Any, Any]:
    """Sources and destinations, as plain or symbolic integers, without reading an index.

    Raises:
        InvalidValue: the graph is made inside the traced region, without its counts.
    """
    if graph.marks is not None:
        return graph.marks[0].shape[0], graph.marks[1].shape[0]
    if graph._snapshot is not None:
        return graph._snapshot.num_src, graph._snapshot.num_dst
    num_src, num_dst = graph.input.given_counts()
    if num_src is None or num_dst is None:
        raise InvalidValue(
            "Graph: inside torch.compile or torch.export, counts cannot be found from the data; "
            "pass `num_src` and `num_dst`, or `num_nodes`."
        )
    return num_src, num_dst
