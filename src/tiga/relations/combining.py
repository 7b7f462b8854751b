"""What every graph offers to make others: graphs side by side in one, and pairs of edges."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from tiga.errors import MissingAttribute

if TYPE_CHECKING:
    from tiga.relations.batch import GraphBatch
    from tiga.relations.graph import Graph


_FIELDS = "values are passed with each call, `kernel(graph=graph, ndata={...}, edge={...})`"
_FIXED = "a graph stays as it is: make another of indices that torch.cat joins"
_MADE = "graphs have it that `tg.Graph.batch([...])` made"
_KERNEL = "write a `tg.MessagePassing` and call it with `graph=`"
_ELSEWHERE = {
    **dict.fromkeys(("num_nodes", "number_of_nodes"), "see `num_src` and `num_dst`"),
    "number_of_edges": "see `num_edges`",
    **dict.fromkeys(("edge_index", "edges", "all_edges"), "`coo()` gives both ends of each edge"),
    **dict.fromkeys(("indptr", "crow_indices"), "see `row_ptr`"),
    **dict.fromkeys(("indices", "col_indices"), "see `col_idx`"),
    **dict.fromkeys(("in_degree", "in_degrees"), "see `degrees()`"),
    **dict.fromkeys(("out_degree", "out_degrees"), 'see `degrees("src")`'),
    **dict.fromkeys(("reverse", "adj_t"), "see `transpose()`"),
    **dict.fromkeys(("ndata", "edata", "srcdata", "dstdata", "x", "edge_attr", "pos"), _FIELDS),
    **dict.fromkeys(("add_nodes", "add_edges", "add_self_loop", "remove_edges"), _FIXED),
    **dict.fromkeys(("update_all", "apply_edges", "send_and_recv"), _KERNEL),
    **dict.fromkeys(("membership", "counts", "unbatch", "num_graphs"), _MADE),
}
"""What graphs of other libraries have, or batches, and where it is."""


class Combining:
    """Base class of graphs."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        """Say where to look for what is no attribute.

        Raises:
            MissingAttribute: always.
        """
        kind, place = type(self).__name__, _ELSEWHERE.get(name)
        raise MissingAttribute(f"{kind} has no `{name}`{f': {place}' if place else ''}.")

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
