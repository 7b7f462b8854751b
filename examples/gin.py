"""Graph isomorphism network (Xu et al., 2019): a sum that tells multisets of neighbours apart."""

import torch
from graphs import iris
from torch import nn
from training import train

import tiga as tg


class GIN(tg.MessagePassing, nn.Module):
    """y_i = mlp((1 + ε) x_i + Σ_j x_j)."""

    reducer = tg.sum()

    def __init__(self, mlp: nn.Module) -> None:
        super().__init__()
        self.mlp = mlp
        self.eps = nn.Parameter(torch.zeros(()))

    def edge(self, src, dst, edge):
        return src.x

    def node(self, dst, aggregate):
        return (1 + self.eps) * dst.x + aggregate

    def forward(self, graph, x):
        return self.mlp(super().forward(graph=graph, ndata={"x": x}))


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = GIN(nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 16)))
        self.second = GIN(nn.Linear(16, 3))

    def forward(self, graph, x):
        return self.second(graph=graph, x=torch.relu(self.first(graph=graph, x=x)))


def main() -> float:
    torch.manual_seed(0)
    sample = iris()
    graph, network = sample.graph, Network()
    accuracy = train(network, lambda: network(graph, sample.x), sample)
    print(f"GIN on iris: test accuracy {accuracy:.1%}")
    return accuracy


if __name__ == "__main__":
    main()
