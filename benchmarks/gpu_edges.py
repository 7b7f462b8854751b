"""Layers with work of their own at edges, on one GPU, against torch.compile.

    python -m benchmarks.gpu_edges [--only tables,kinds,deep,few] [--eager]

`tables`: messages scaled by an embedding of the edge's kind, whose gradient is a sum by an index of
the edges. `kinds`: a relational layer with a row of the source and a scale for each kind of edge.
`deep`: a network of five products at the edges, whose matrices do not fit shared memory. `few`: a
network on a graph of few rows. Results and gradients are compared with the peer's first, and must
have the same bits in every run; times are medians of device events, forward and backward together.
`--eager` compares with torch without its compiler.
"""

import argparse
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import nn

import tiga as tg
from benchmarks.gpu import HEAD, TOLERANCE, Row
from benchmarks.gpu_layers import compared, step

NODES, EDGES = 100_000, 2_000_000

Graph = tuple[tg.Graph, torch.Tensor, torch.Tensor]


def random_graph(nodes: int, edges: int) -> Graph:
    """A graph with both ends of its edges."""
    src, dst = torch.randint(0, nodes, (2, edges), device="cuda")
    return tg.Graph.from_coo(src, dst, num_src=nodes, num_dst=nodes), src, dst


def summed(like: torch.Tensor, dst: torch.Tensor, message: torch.Tensor) -> torch.Tensor:
    return torch.zeros_like(like).index_add(0, dst, message)


def row(case: str, ours: Callable, peer: Callable, leaves: list[Any], eager: bool) -> Row:
    """A step of ours beside that of a function of the same tensors."""
    cotangent = torch.randn_like(ours().detach())
    other = peer if eager else torch.compile(peer)
    mine, theirs = (partial(step, call, leaves, cotangent) for call in (ours, other))
    return compared(case, "torch" if eager else "torch.compile", mine, theirs, 5 * TOLERANCE)


class Typed(tg.MessagePassing, nn.Module):
    """A message scaled by an embedding of the edge's kind."""

    def __init__(self, kinds: int, width: int) -> None:
        super().__init__()
        self.table = nn.Embedding(kinds, width)

    def edge(self, src: Any, dst: Any, edge: Any) -> Any:
        return torch.tanh(src.x) * self.table(edge.kind)


def table_rows(eager: bool) -> Iterator[Row]:
    """Gradients of tables of few and of many rows, N=100k, E=2M."""
    graph, src, dst = random_graph(NODES, EDGES)
    for kinds, width in ((5, 8), (5, 64), (20, 64), (100, 64), (10_000, 64)):
        layer = Typed(kinds, width).cuda()
        x = torch.randn(NODES, width, device="cuda", requires_grad=True)
        kind = torch.randint(0, kinds, (EDGES,), device="cuda")
        ours = partial(layer, graph=graph, ndata={"x": x}, edge={"kind": kind})

        def peer(x: Any = x, table: Any = layer.table, kind: Any = kind) -> torch.Tensor:
            return summed(x, dst, torch.tanh(x[src]) * table(kind))

        yield row(f"table {kinds} x {width}", ours, peer, [x, layer.table.weight], eager)


class Relational(tg.MessagePassing, nn.Module):
    """A message of a row of the source that the edge's kind names, scaled by a number of it."""

    def __init__(self, kinds: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(kinds))

    def edge(self, src: Any, dst: Any, edge: Any) -> Any:
        place = edge.kind[:, None, None].expand(-1, 1, src.y.shape[-1])
        return self.scale[edge.kind][:, None] * src.y.gather(1, place)[:, 0]


def kind_rows(eager: bool) -> Iterator[Row]:
    """Five kinds of edges, 32 features, N=100k, E=2M."""
    graph, src, dst = random_graph(NODES, EDGES)
    layer = Relational(5).cuda()
    y = torch.randn(NODES, 5, 32, device="cuda", requires_grad=True)
    kind = torch.randint(0, 5, (EDGES,), device="cuda")
    ours = partial(layer, graph=graph, src={"y": y}, dst={}, edge={"kind": kind})

    def peer() -> torch.Tensor:
        return summed(y[:, 0], dst, layer.scale[kind][:, None] * y[src, kind])

    yield row("relational layer", ours, peer, [y, layer.scale], eager)


class Network(tg.MessagePassing, nn.Module):
    """Products of edge values with matrices, one after another."""

    def __init__(self, layers: int, width: int, active: type[nn.Module]) -> None:
        super().__init__()
        parts = [(nn.Linear(width, width), active()) for _ in range(layers)]
        self.net = nn.Sequential(*(part for both in parts for part in both))

    def edge(self, src: Any, dst: Any, edge: Any) -> Any:
        return self.net(src.x * dst.x)


def network_row(case: str, nodes: int, edges: int, layer: Network, eager: bool) -> Row:
    graph, src, dst = random_graph(nodes, edges)
    x = torch.randn(nodes, 64, device="cuda", requires_grad=True)

    def peer() -> torch.Tensor:
        return summed(x, dst, layer.net(x[src] * x[dst]))

    ours = partial(layer, graph=graph, ndata={"x": x})
    return row(case, ours, peer, [x, *layer.parameters()], eager)


def deep_rows(eager: bool) -> Iterator[Row]:
    """Five products of 64 × 64, N=20k, E=400k."""
    layer = Network(5, 64, nn.ReLU).cuda()
    yield network_row("network of five products", 20_000, 400_000, layer, eager)


def few_rows(eager: bool) -> Iterator[Row]:
    """Two products of 64 × 64 on 1920 rows with 18.5k edges, as of some molecules."""
    layer = Network(2, 64, nn.SiLU).cuda()
    yield network_row("network on few rows", 1920, 18_550, layer, eager)


PARTS = {"tables": table_rows, "kinds": kind_rows, "deep": deep_rows, "few": few_rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default=",".join(PARTS))
    parser.add_argument("--eager", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(0)
    print(HEAD)
    for part in args.only.split(","):
        for found in PARTS[part](args.eager):
            print(found, flush=True)


if __name__ == "__main__":
    main()
