"""Graph convolution (Kipf and Welling, 2017): neighbours averaged with symmetric weights."""

import torch
from graphs import digits
from torch import nn
from training import train

import tiga as tg


class GCN(tg.MessagePassing, nn.Module):
    """y_i = Σ_j W x_j / √(d_i d_j) + b, over a graph with self-loops; d counts incoming edges."""

    reducer = tg.sum()

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.linear = nn.Linear(inputs, outputs, bias=False)
        self.bias = nn.Parameter(torch.zeros(outputs))

    def edge(self, src, dst, edge):
        return src.scale * src.h

    def node(self, dst, aggregate):
        return dst.scale * aggregate + self.bias

    def forward(self, graph, x, scale):
        return super().forward(graph=graph, ndata={"h": self.linear(x), "scale": scale})


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = GCN(64, 32), GCN(32, 10)

    def forward(self, graph, x, scale):
        hidden = torch.relu(self.first(graph=graph, x=x, scale=scale))
        return self.second(graph=graph, x=hidden, scale=scale)


def main() -> float:
    torch.manual_seed(0)
    sample = digits().with_loops
    graph, scale = sample.graph, sample.in_degree.rsqrt()[:, None]
    network = Network()
    accuracy = train(network, lambda: network(graph, sample.x, scale), sample)
    print(f"GCN on digits: test accuracy {accuracy:.1%}")
    return accuracy


if __name__ == "__main__":
    main()
