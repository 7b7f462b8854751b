"""What every graph offers about batches: putting graphs side by side in one."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tiga.relations.batch import GraphBatch
    from tiga.relations.graph import Graph


class Batching:
    """Base class of graphs."""

    __slots__ = ()

    @staticmethod
    def batch(graphs: "Iterable[Graph]") -> "GraphBatch":
        """Graphs side by side as one graph, in which no edge joins two of them.

        Nodes and edges of a graph come after those of the graphs before it, so fields of nodes and
        of edges are the graphs' own, joined along the first axis in the same order. Nothing is
        sorted again, and nothing is compiled: a kernel takes a batch as it takes any graph. See
        `GraphBatch` for sums over each graph and for taking results apart.

        Indices are copied: later edits of the graphs' tensors are not seen. They are int64 if any
        graph's are, else int32, in the kind and on the device of the graphs.

        Raises:
            InvalidType: what is no graph, or a graph in a file; graphs on two devices.
            InvalidValue: inside a function that torch compiles; make the batch outside of it.

        Example:
            >>> import torch, tiga as tg
            >>> path = tg.Graph.from_edge_index(torch.tensor([[0, 1], [1, 2]]))
            >>> loop = tg.Graph.from_edge_index(torch.tensor([[0], [0]]))
            >>> batch = tg.Graph.batch([path, loop])
            >>> batch
            GraphBatch(num_graphs=2, num_src=4, num_dst=4, num_edges=3)
            >>> [end.tolist() for end in batch.coo()]
            [[0, 1, 3], [1, 2, 3]]
        """
        from tiga.relations.batch import batched

        return batched(graphs)
