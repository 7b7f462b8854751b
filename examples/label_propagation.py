"""Label propagation (Zhou et al., 2004): known labels spread along edges, nothing is learned."""

import torch
from graphs import digits

import tiga as tg


class Spread(tg.MessagePassing):
    """y_i ← rate · Σ_j y_j / √(d_j d_i) + (1 − rate) · known_i."""

    reducer = tg.sum()

    def __init__(self, rate: float = 0.9) -> None:
        self.rate = rate

    def edge(self, src, dst, edge):
        return src.scale * src.y

    def node(self, dst, aggregate):
        return self.rate * dst.scale * aggregate + (1 - self.rate) * dst.known


def propagate(graph: tg.Graph, known: torch.Tensor, steps: int = 20) -> torch.Tensor:
    """Class weights of every node, [N, classes], from the `known` ones."""
    spread = Spread()
    incoming = torch.as_tensor(graph.row_ptr).diff().to(known.dtype)
    outgoing = torch.as_tensor(graph.transpose().row_ptr).diff().to(known.dtype)
    src = {"scale": outgoing.clamp(min=1).rsqrt()[:, None]}
    dst = {"scale": incoming.clamp(min=1).rsqrt()[:, None], "known": known}
    y = known
    for _ in range(steps):
        y = spread(graph=graph, src={**src, "y": y}, dst=dst)
    return y


def main() -> float:
    sample = digits()
    known = torch.nn.functional.one_hot(sample.labels, 10) * sample.train[:, None]
    guess = propagate(sample.graph, known.float()).argmax(1)
    accuracy = (guess == sample.labels)[~sample.train].float().mean().item()
    print(f"Label propagation on digits: test accuracy {accuracy:.1%}")
    return accuracy


if __name__ == "__main__":
    main()
