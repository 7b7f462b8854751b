"""Continuous filters on points (after SchNet, Schütt et al., 2017): weights made from distances."""

import torch
from graphs import benzene
from torch import nn

import tiga as tg


def shifted_softplus(x: torch.Tensor) -> torch.Tensor:
    return nn.functional.softplus(x) - 0.6931471805599453


class ContinuousFilter(tg.MessagePassing, nn.Module):
    """y_i = Σ_j h_j ⊙ filter(|r_j − r_i|): a product of features with a network of the distance.

    The distance enters through `basis` Gaussians between 0 and `cutoff`, and fades out there.
    """

    reducer = tg.sum()

    def __init__(self, width: int, basis: int = 16, cutoff: float = 6.0) -> None:
        super().__init__()
        self.register_buffer("centres", torch.linspace(0, cutoff, basis))
        self.cutoff, self.sharpness = cutoff, (basis / cutoff) ** 2
        self.hidden, self.filter = nn.Linear(basis, width), nn.Linear(width, width)

    def edge(self, src, dst, edge):
        distance = torch.linalg.vector_norm(src.r - dst.r, dim=-1, keepdim=True)
        waves = torch.exp(-self.sharpness * (distance - self.centres) ** 2)
        fade = 0.5 * (torch.cos(distance * (torch.pi / self.cutoff)) + 1)
        weights = self.filter(shifted_softplus(self.hidden(waves)))
        return src.h * weights * torch.where(distance < self.cutoff, fade, 0.0)


class Interaction(nn.Module):
    """Update the features of atoms from those around them."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.before = nn.Linear(width, width, bias=False)
        self.along = ContinuousFilter(width)
        self.after = nn.Sequential(nn.Linear(width, width), nn.Softplus(), nn.Linear(width, width))

    def forward(self, graph, h, position):
        around = self.along(graph=graph, ndata={"h": self.before(h), "r": position})
        return h + self.after(around)


class SchNet(nn.Module):
    """Two interactions, and a number for every atom."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.kinds = nn.Embedding(2, width)
        self.interactions = nn.ModuleList([Interaction(width) for _ in range(2)])
        self.readout = nn.Sequential(nn.Linear(width, width), nn.Softplus(), nn.Linear(width, 1))

    def forward(self, graph, kind, position):
        h = self.kinds(kind)
        for interaction in self.interactions:
            h = interaction(graph, h, position)
        return self.readout(h)[:, 0]


def main() -> float:
    """Learn how far each atom lies from the centre of its molecule."""
    torch.manual_seed(0)
    batch = benzene(shake=0.15)
    centre = torch.zeros(batch.count, 3, dtype=torch.float64)
    centre.index_add_(0, batch.molecule, batch.position / 12)
    target = (batch.position - centre[batch.molecule]).norm(dim=1)
    network, graph = SchNet().double(), batch.graph
    optimiser = torch.optim.Adam(network.parameters(), lr=0.01)
    for _ in range(100):
        optimiser.zero_grad()
        loss = (network(graph, batch.kind, batch.position) - target).square().mean()
        loss.backward()
        optimiser.step()
    error = loss.detach().sqrt().item()
    print(f"SchNet on benzene: distance to the centre known to {error:.3f} Å")
    return error


if __name__ == "__main__":
    main()
