"""The graphs of layers, made of edge indices and kept while these are the same."""

from dataclasses import dataclass
from typing import Any

import torch

from tiga.interop._edge_sets import GIVEN, Derived, EdgeSet, derive
from tiga.relations import Graph

Key = tuple[bool, Any, Any]
"""Whether messages go from row 1 to row 0, and the numbers of sources and destinations."""


@dataclass(eq=False)
class Known:
    """A graph, and what it was made of; `used` is the number of the call that last did."""

    edge_index: torch.Tensor
    version: int | None
    key: Key
    edges: EdgeSet
    has_fields: bool
    derived: Derived
    used: int

    def serves(self, edge_index: torch.Tensor, key: Key, edges: EdgeSet, has_fields: bool) -> bool:
        """Whether it is the graph of some edges, with fields where these have some."""
        if self.key != key or self.edges != edges or not self._is_current():
            return False
        if has_fields and not self.has_fields:
            return False
        return _same_edges(self.edge_index, edge_index)

    def _is_current(self) -> bool:
        """Whether the indices are what they were; the graph itself looks after those it has."""
        if self.edges == GIVEN:
            return True
        return self.version is not None and self.version == version_of(self.edge_index)


class Topologies:
    """The graphs of the edge indices met last, and all that the present call of a layer met: one
    that picks edges by kind has a graph for each. Copies and pickles start afresh."""

    SIZE = 4

    def __init__(self) -> None:
        self.known: tuple[Known, ...] = ()
        self.call = 0

    def begin(self) -> None:
        """A layer is called."""
        self.call += 1

    def graph(self, edge_index: torch.Tensor, key: Key) -> Graph:
        """The graph of an edge index."""
        return self.derived(edge_index, key, GIVEN).graph

    def derived(
        self, edge_index: torch.Tensor, key: Key, edges: EdgeSet, has_fields: bool = False
    ) -> Derived:
        """The graph of a set of edges made of an edge index; see `derive`."""
        has_fields = has_fields or edges == GIVEN  # whose edges are as they are
        for known in self.known:
            if known.serves(edge_index, key, edges, has_fields):
                known.used = self.call
                return known.derived
        made = derived_of(edge_index, key, edges, has_fields)
        version = version_of(edge_index)
        newest = Known(edge_index, version, key, edges, has_fields, made, self.call)
        present = [known for known in self.known if known.used == self.call]
        others = [known for known in self.known if known.used != self.call]
        self.known = (newest, *present, *others[: max(self.SIZE - 1 - len(present), 0)])
        return made

    def __reduce__(self) -> Any:
        return Topologies, ()


def graph_of(edge_index: torch.Tensor, key: Key) -> Graph:
    """A graph made anew; see `Topologies.graph`."""
    return derived_of(edge_index, key, GIVEN, has_fields=True).graph


def derived_of(edge_index: torch.Tensor, key: Key, edges: EdgeSet, has_fields: bool) -> Derived:
    """A derived graph made anew; see `Topologies.derived`."""
    backwards, num_src, num_dst = key
    src, dst = (edge_index[1], edge_index[0]) if backwards else (edge_index[0], edge_index[1])
    return derive(src, dst, num_src, num_dst, edges, has_fields)


def version_of(tensor: torch.Tensor) -> int | None:
    """What changes when a tensor is written to; None where torch does not tell."""
    return None if tensor.is_inference() else tensor._version


def _same_edges(known: torch.Tensor, given: torch.Tensor) -> bool:
    # Layers that add self-loops make a new tensor at every call: comparing it is far cheaper than
    # sorting it.
    if known is given:
        return True
    alike = known.shape == given.shape and known.dtype == given.dtype
    return alike and known.device == given.device and torch.equal(known, given)
