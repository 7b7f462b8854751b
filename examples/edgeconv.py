"""EdgeConv (Wang et al., 2019): a network on every edge, and the largest answer per node."""

import torch
from graphs import iris
from torch import nn
from training import train

import tiga as tg


class EdgeConv(tg.MessagePassing, nn.Module):
    """y_i = max_j mlp([x_i, x_j − x_i])."""

    reducer = tg.max()

    def __init__(self, inputs: int, hidden: int, outputs: int) -> None:
        super().__init__()
        self.mlp = nn.Sequential(
            nn.Linear(2 * inputs, hidden), nn.ReLU(), nn.Linear(hidden, outputs)
        )

    def edge(self, src, dst, edge):
        return self.mlp(torch.cat([dst.x, src.x - dst.x], dim=-1))


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = EdgeConv(4, 16, 16), EdgeConv(16, 16, 3)

    def forward(self, graph, x):
        hidden = torch.relu(self.first(graph=graph, ndata={"x": x}))
        return self.second(graph=graph, ndata={"x": hidden})


def main() -> float:
    torch.manual_seed(0)
    sample = iris()
    graph, network = sample.graph, Network()
    accuracy = train(network, lambda: network(graph, sample.x), sample)
    print(f"EdgeConv on iris: test accuracy {accuracy:.1%}")
    return accuracy


if __name__ == "__main__":
    main()
