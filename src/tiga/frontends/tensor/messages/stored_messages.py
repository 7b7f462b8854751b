"""What `edge` sent, in memory, and the rows that reduce it."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tiga.frontends.message_passing import Masked, MessagePassing, PerEdge
from tiga.frontends.tensor.build import as_tensor
from tiga.frontends.tensor.core import Tensor
from tiga.frontends.tensor.functions.views import broadcast_to
from tiga.frontends.trees import leaves_of, mapped
from tiga.reducers import Bound
from tiga.relations import Graph
from tiga.relations.paged import PagedGraph
from tiga.relations.row_blocks import PagedPointers, Rows


@dataclass
class StoredMessages:
    """What `edge` returned, with its tensors apart."""

    count: int
    values: list[Tensor] = field(default_factory=list)

    def stored(self, leaf: Any) -> Any:
        """The leaf with each tensor replaced by its number."""
        if isinstance(leaf, Masked):
            return Masked(mapped(self.stored, leaf.value), self.stored(leaf.keep))
        if isinstance(leaf, Bound):
            return Bound(leaf.reducer, tuple(map(self.stored, leaf.messages)))
        value = as_tensor(leaf, "a message")
        if not value.shape or value.shape[0] != self.count:
            value = broadcast_to(value, (self.count, *value.shape[1:]))
        self.values.append(value)
        return len(self.values) - 1


class Stored(MessagePassing):
    """Sends messages that are in memory, as edge fields; notes which results are on edges."""

    on_edges: list[bool]

    def __init__(self, kernel: MessagePassing, tree: Any) -> None:
        self.kernel, self.tree = kernel, tree
        self.reducer = kernel.reducer

    def edge(self, src: Any, dst: Any, edge: Any) -> Any:
        def restored(leaf: Any) -> Any:
            if isinstance(leaf, Masked):
                return Masked(mapped(restored, leaf.value), restored(leaf.keep))
            if isinstance(leaf, Bound):
                return Bound(leaf.reducer, tuple(map(restored, leaf.messages)))
            return edge[str(leaf)]

        return mapped(restored, self.tree)

    def node(self, dst: Any, aggregate: Any) -> Any:
        made = self.kernel.node(dst, aggregate)
        self.on_edges = [isinstance(leaf, PerEdge) for leaf in leaves_of(made)]
        return made


def rows_alone(topology: Any, block: Rows) -> Graph:
    """The destinations of a block with their edges, all from one source: who reduces messages does
    not ask where they are from."""
    low, high, first, last = block
    pointers = (
        PagedPointers(topology.walks["dst"]).between(low, high)
        if isinstance(topology, PagedGraph)
        else topology.csr.row_ptr[low : high + 1]
    )
    sources = np.zeros(last - first, np.int32)
    return Graph.from_csr(pointers - first, sources, num_src=1, validate="none")
