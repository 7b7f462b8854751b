"""Energies and forces: the force is the derivative of a learned energy, and is trained itself."""

import torch
from graphs import Molecules, benzene
from torch import nn

import tiga as tg


class PairEnergy(tg.MessagePassing, nn.Module):
    """The energy of an atom: ½ Σ_j mlp(waves of |r_j − r_i|, products of the kinds' features)."""

    reducer = tg.sum()

    def __init__(self, width: int = 16, basis: int = 12, cutoff: float = 6.0) -> None:
        super().__init__()
        self.register_buffer("centres", torch.linspace(0.5, cutoff, basis))
        self.sharpness = (basis / cutoff) ** 2
        self.kinds = nn.Embedding(2, width)
        self.hidden, self.energy = nn.Linear(basis, width), nn.Linear(width, 1)

    def edge(self, src, dst, edge):
        distance = torch.linalg.vector_norm(src.r - dst.r, dim=-1, keepdim=True)
        waves = torch.exp(-self.sharpness * (distance - self.centres) ** 2)
        mixed = torch.tanh(self.hidden(waves)) * src.kind * dst.kind
        return 0.5 * self.energy(mixed)

    def forward(self, graph, kind, position):
        return super().forward(graph=graph, ndata={"kind": self.kinds(kind), "r": position})


class Total(tg.MessagePassing):
    """The energy of a molecule from those of its atoms."""

    reducer = tg.sum()

    def edge(self, src, dst, edge):
        return src.energy


class Model(nn.Module):
    """Energies of molecules [M], and forces on atoms [N, 3] = −∂energy/∂position."""

    def __init__(self) -> None:
        super().__init__()
        self.atoms, self.total = PairEnergy(), Total()

    def forward(self, batch: Molecules, graph, membership, position):
        position = position.detach().requires_grad_()
        atoms = self.atoms(graph=graph, kind=batch.kind, position=position)
        energy = self.total(graph=membership, src={"energy": atoms[:, 0]})
        (slope,) = torch.autograd.grad(energy.sum(), position, create_graph=True)
        return energy, -slope


def lennard_jones(batch: Molecules, sigma: float = 0.95) -> tuple[torch.Tensor, torch.Tensor]:
    """What the model has to learn: a pair potential's energies [M] and forces [N, 3]."""
    position = batch.position.clone().requires_grad_()
    source, target = batch.edge_index
    ratio = (sigma / (position[source] - position[target]).norm(dim=1)) ** 6
    energy = torch.zeros(batch.count, dtype=torch.float64)
    energy = energy.index_add(0, batch.molecule[target], 2 * (ratio**2 - ratio))
    (slope,) = torch.autograd.grad(energy.sum(), position)
    return energy.detach(), -slope


def force_loss(model, batch, graph, membership, energy, force):
    """Mean squared errors of energy per atom and of forces."""
    guess, push = model(batch, graph, membership, batch.position)
    return ((guess - energy) / 12).square().mean() + (push - force).square().mean()


def fit(make_model, rate: float, steps: int) -> list[float]:
    """Train a new model on energies and forces of benzene: the loss before each step."""
    torch.manual_seed(0)
    batch = benzene()
    energy, force = lennard_jones(batch)
    energy = energy - energy.mean()
    graph, membership = batch.graph, batch.membership
    model = make_model().double()
    optimiser = torch.optim.Adam(model.parameters(), lr=rate)
    losses = []
    for _ in range(steps):
        optimiser.zero_grad()
        loss = force_loss(model, batch, graph, membership, energy, force)
        loss.backward(inputs=list(model.parameters()))  # not of positions, leaves as well
        optimiser.step()
        losses.append(loss.item())
    return losses


def main() -> tuple[float, float]:
    losses = fit(Model, rate=0.02, steps=100)
    print(f"Forces on benzene: loss from {losses[0]:.3f} to {losses[-1]:.3f}")
    return losses[0], losses[-1]


if __name__ == "__main__":
    main()
