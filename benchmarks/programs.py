"""The measured programs as a user of tiga writes them."""

from typing import Any

import torch

import tiga as tg
from benchmarks.graphs import Csr


class WeightedSum(tg.MessagePassing):
    """`Σ w · x_src`."""

    reducer = tg.sum()

    def edge(self, src: Any, dst: Any, edge: Any) -> torch.Tensor:
        return edge.w * src.x


class EdgeDifference(tg.MessagePassing):
    """`relu(x_src − x_dst)` under any reducer."""

    def __init__(self, reducer: Any) -> None:
        self.reducer = reducer

    def edge(self, src: Any, dst: Any, edge: Any) -> torch.Tensor:
        return torch.relu(src.x - dst.x)


def tiga_graph(graph: Csr) -> Any:
    """The graph with int64 indices, as users hold them."""
    row_ptr, source = torch.from_numpy(graph.row_ptr), torch.from_numpy(graph.source)
    return tg.Graph.from_csr(row_ptr, source, num_src=graph.num_nodes)
