"""Graph attention (Veličković et al., 2018): a softmax over neighbours, per head."""

import torch
from graphs import digits
from torch import nn
from training import train

import tiga as tg


class GAT(tg.MessagePassing, nn.Module):
    """y_i = Σ_j softmax_j(leaky_relu(a·h_j + b·h_i)) h_j with h = W x, heads side by side."""

    reducer = tg.softmax()

    def __init__(self, inputs: int, outputs: int, heads: int) -> None:
        super().__init__()
        self.heads, self.outputs = heads, outputs
        self.linear = nn.Linear(inputs, heads * outputs, bias=False)
        self.source = nn.Parameter(0.1 * torch.randn(heads, outputs))
        self.target = nn.Parameter(0.1 * torch.randn(heads, outputs))

    def edge(self, src, dst, edge):
        score = nn.functional.leaky_relu(src.score + dst.score, 0.2)
        return self.reducer(score, src.h)

    def node(self, dst, aggregate):
        return aggregate.flatten(1)

    def forward(self, graph, x):
        h = self.linear(x).view(-1, self.heads, self.outputs)
        src = {"h": h, "score": (h * self.source).sum(-1)}
        return super().forward(graph=graph, src=src, dst={"score": (h * self.target).sum(-1)})


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = GAT(64, 8, heads=4), GAT(32, 10, heads=1)

    def forward(self, graph, x):
        hidden = nn.functional.elu(self.first(graph=graph, x=x))
        return self.second(graph=graph, x=hidden)


def main() -> float:
    torch.manual_seed(0)
    sample = digits().with_loops
    graph, network = sample.graph, Network()
    accuracy = train(network, lambda: network(graph, sample.x), sample)
    print(f"GAT on digits: test accuracy {accuracy:.1%}")
    return accuracy


if __name__ == "__main__":
    main()
