"""GraphSAGE (Hamilton et al., 2017): a node beside the mean of its neighbours."""

import torch
from graphs import digits
from torch import nn
from training import train

import tiga as tg


class SAGE(tg.MessagePassing, nn.Module):
    """y_i = W₁ mean_j x_j + W₂ x_i + b."""

    reducer = tg.mean()

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.neighbours = nn.Linear(inputs, outputs, bias=False)
        self.own = nn.Linear(inputs, outputs)

    def edge(self, src, dst, edge):
        return src.h

    def node(self, dst, aggregate):
        return aggregate + dst.own

    def forward(self, graph, x):
        # The matrix commutes with the mean: applied first, the walk carries the narrower values.
        return super().forward(graph=graph, ndata={"h": self.neighbours(x), "own": self.own(x)})


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = SAGE(64, 32), SAGE(32, 10)

    def forward(self, graph, x):
        return self.second(graph=graph, x=torch.relu(self.first(graph=graph, x=x)))


def main() -> float:
    torch.manual_seed(0)
    sample = digits()
    graph, network = sample.graph, Network()
    accuracy = train(network, lambda: network(graph, sample.x), sample)
    print(f"GraphSAGE on digits: test accuracy {accuracy:.1%}")
    return accuracy


if __name__ == "__main__":
    main()
