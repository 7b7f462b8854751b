"""The measured programs as a user of tiga writes them."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.nn.functional import leaky_relu

import tiga as tg
from benchmarks.graphs import Csr
from benchmarks.plain import SLOPE


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


class SquaredDifference(tg.MessagePassing):
    """`relu(x_src − x_dst)²`, summed: an energy whose forces are differentiated again."""

    reducer = tg.sum()

    def edge(self, src: Any, dst: Any, edge: Any) -> torch.Tensor:
        return torch.relu(src.x - dst.x) ** 2


class EdgeLinear(tg.MessagePassing, torch.nn.Module):
    """`relu(relu(x_src − x_dst) @ weight)`, or without the outer relu, summed."""

    reducer = tg.sum()

    def __init__(self, weight: torch.Tensor, outer: bool) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(weight.detach())
        self.outer = outer

    def edge(self, src: Any, dst: Any, edge: Any) -> torch.Tensor:
        message = torch.relu(src.x - dst.x) @ self.weight
        return torch.relu(message) if self.outer else message


class Attention(tg.MessagePassing):
    """Scores and values of GAT: `lrelu(a_src + a_dst)` [H] and `h_src` [H, C]."""

    def __init__(self) -> None:
        self.reducer = tg.softmax()

    def edge(self, src: Any, dst: Any, edge: Any) -> Any:
        return self.reducer(leaky_relu(src.score + dst.score, SLOPE), src.value)


class AttentionV2(tg.MessagePassing):
    """Scores and values of GATv2: `Σ att · lrelu(l_src + r_dst)` [H] and `l_src` [H, C]."""

    def __init__(self, att: torch.Tensor) -> None:
        self.reducer = tg.softmax()
        self.att = att

    def edge(self, src: Any, dst: Any, edge: Any) -> Any:
        score = (leaky_relu(src.left + dst.right, SLOPE) * self.att).sum(-1)
        return self.reducer(score, src.left)


def attention(name: str, weights: Mapping[str, torch.Tensor]) -> Callable[..., torch.Tensor]:
    """The `gat` or `gatv2` layer with these weights, as a function of graph and features."""
    if name == "gat":
        kernel: Any = Attention()

        def gat(graph: Any, x: torch.Tensor) -> torch.Tensor:
            h = (x @ weights["lin"]).view(-1, *weights["att_src"].shape)
            src = {"score": (h * weights["att_src"]).sum(-1), "value": h}
            dst = {"score": (h * weights["att_dst"]).sum(-1)}
            out: torch.Tensor = kernel(graph=graph, src=src, dst=dst)
            return out

        return gat
    kernel = AttentionV2(weights["att"])

    def gatv2(graph: Any, x: torch.Tensor) -> torch.Tensor:
        left, right = (x @ weights[key] for key in ("lin_l", "lin_r"))
        shape = (-1, *weights["att"].shape)
        src, dst = {"left": left.view(shape)}, {"right": right.view(shape)}
        out: torch.Tensor = kernel(graph=graph, src=src, dst=dst)
        return out

    return gatv2


def tiga_graph(graph: Csr) -> Any:
    """The graph with int64 indices, as users hold them."""
    row_ptr, source = torch.from_numpy(graph.row_ptr), torch.from_numpy(graph.source)
    return tg.Graph.from_csr(row_ptr, source, num_src=graph.num_nodes)
