"""Graphs for fields on another device."""

from dataclasses import fields
from typing import TYPE_CHECKING, Any

import numpy as np

from tiga.errors import InvalidType
from tiga.relations.indices import Indices, is_tensor
from tiga.relations.inputs import CooInput, CsrInput, TransposedInput
from tiga.relations.snapshot import Snapshot

if TYPE_CHECKING:
    from tiga.relations.graph import Graph


def placed(graph: "Graph", device: Any) -> "Graph":
    """See `Graph.to`."""
    given = None if graph.paged else graph.input
    if isinstance(given, TransposedInput):
        return placed(given.base, device).transpose()
    moved = moved_input(graph, device)
    if moved is None:
        return graph
    found = type(graph)(moved, graph._validate)
    found._snapshot = Snapshot(found.token(), graph.csr())  # of what was copied
    return found


def moved_input(graph: "Graph", device: Any) -> CooInput | CsrInput | None:
    """Copies of the indices of a graph for another device; None if they are there.

    Raises:
        InvalidType: the graph is not made of torch tensors.
    """
    given = None if graph.paged else graph.input
    if not isinstance(given, (CooInput, CsrInput)) or not is_tensor(given.template):
        raise InvalidType(
            "Graph.to: only graphs that are made of torch tensors have a device to leave. Make the "
            "graph of tensors, `tg.Graph.from_edge_index(torch.as_tensor(edge_index))`; one in a "
            "file is opened for a device, `tg.Graph.open(path, device)`."
        )
    if given.template.new_empty(0, device=device).device == given.template.device:
        return None
    snapshot = graph.snapshot()
    counts = {"num_src": snapshot.num_src, "num_dst": snapshot.num_dst}
    parts: dict[str, Any] = {f.name: getattr(given, f.name) for f in fields(given)}
    for name, part in parts.items():
        # Counts may have been left out: they are known by now.
        parts[name] = _moved(part, device) if isinstance(part, Indices) else counts[name]
    return type(given)(**parts)


def _moved(indices: Indices, device: Any) -> Indices:
    """A copy on the host of indices that go back to the user on a device."""
    return Indices(
        indices.name, np.array(indices.read()), indices.template.new_empty(0, device=device)
    )
