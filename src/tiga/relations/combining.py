"""What every graph offers to make others: graphs side by side in one, and pairs of edges."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tiga.relations.batch import GraphBatch
    from tiga.relations.graph import Graph


class Combining:
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

    def line_graph(self, *, backtracking: bool = True) -> "Graph":
        """The graph of edges that follow one another: its nodes are this graph's edges.

        An edge k→j of this graph is a source of each edge j→i: the two make the angle at j, so
        fields of edges, in edge order, are `ndata` of a kernel over angles. With n edges into a
        node and m out of it there are n·m; `backtracking=False` leaves out those that lead back to
        where they come from, i = k (of a periodic graph, to another image of it too).

        Indices are copied: later edits of this graph's tensors are not seen.

        Raises:
            InvalidValue: sources and destinations are two sets of nodes.
            InvalidType: the graph is in a file.

        Example:
            >>> import tiga as tg
            >>> path = tg.Graph.from_coo([0, 1, 1], [1, 2, 0])
            >>> [end.tolist() for end in path.line_graph().coo()]
            [[2, 0, 0], [0, 1, 2]]
            >>> [end.tolist() for end in path.line_graph(backtracking=False).coo()]
            [[0], [1]]
        """
        from tiga.relations.line import line_graph

        graph: Any = self
        return line_graph(graph, backtracking)
