"""GATv2 (Brody et al., 2022): attention whose order of neighbours depends on the node."""

import torch
from graphs import iris
from torch import nn
from training import train

import tiga as tg


class GATv2(tg.MessagePassing, nn.Module):
    """y_i = Σ_j softmax_j(a · leaky_relu(W₁ x_j + W₂ x_i)) W₁ x_j, heads side by side."""

    reducer = tg.softmax()

    def __init__(self, inputs: int, outputs: int, heads: int) -> None:
        super().__init__()
        self.heads, self.outputs = heads, outputs
        self.source = nn.Linear(inputs, heads * outputs)
        self.target = nn.Linear(inputs, heads * outputs)
        self.attention = nn.Parameter(0.1 * torch.randn(heads, outputs))

    def edge(self, src, dst, edge):
        mixed = nn.functional.leaky_relu(src.h + dst.h, 0.2)
        return self.reducer((mixed * self.attention).sum(-1), src.h)

    def node(self, dst, aggregate):
        return aggregate.flatten(1)

    def forward(self, graph, x):
        shape = (-1, self.heads, self.outputs)
        src, dst = self.source(x).view(shape), self.target(x).view(shape)
        return super().forward(graph=graph, src={"h": src}, dst={"h": dst})


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = GATv2(4, 8, heads=4), GATv2(32, 3, heads=1)

    def forward(self, graph, x):
        hidden = nn.functional.elu(self.first(graph=graph, x=x))
        return self.second(graph=graph, x=hidden)


def main() -> float:
    torch.manual_seed(0)
    sample = iris().with_loops
    graph, network = sample.graph, Network()
    accuracy = train(network, lambda: network(graph, sample.x), sample)
    print(f"GATv2 on iris: test accuracy {accuracy:.1%}")
    return accuracy


if __name__ == "__main__":
    main()
