"""Batches of small graphs: energies and forces of random clusters of atoms, a few in every step."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from forces import PairEnergy, Total
from torch import nn

import tiga as tg

CUTOFF = 3.0


@dataclass(frozen=True)
class Cluster:
    """Atoms near one another: `position` f64 [N, 3], `kind` i64 [N], edges between atoms no
    farther apart than the cutoff, and what is to be learned, `energy` f64 [] and `force` [N, 3]."""

    position: torch.Tensor
    kind: torch.Tensor
    graph: tg.Graph
    energy: torch.Tensor
    force: torch.Tensor


def morse(
    position: torch.Tensor, kind: torch.Tensor, graph: tg.Graph
) -> tuple[torch.Tensor, torch.Tensor]:
    """A pair potential's energy [] and forces [N, 3]; bonds of atoms of one kind are longer."""
    position = position.clone().requires_grad_()
    source, target = graph.coo()
    rest = 1.2 + 0.3 * (kind[source] == kind[target])
    stretch = torch.exp(rest - (position[source] - position[target]).norm(dim=1))
    energy = 0.5 * (stretch**2 - 2 * stretch).sum()
    (slope,) = torch.autograd.grad(energy, position)
    return energy.detach(), -slope


def clusters(count: int = 60, seed: int = 0) -> list[Cluster]:
    """Chains of 5 to 12 atoms, each a random step from the last."""
    generator = torch.Generator().manual_seed(seed)
    found = []
    for _ in range(count):
        atoms = int(torch.randint(5, 13, (), generator=generator))
        step = torch.randn(atoms, 3, generator=generator, dtype=torch.float64)
        position = (1.3 * step / step.norm(dim=1, keepdim=True)).cumsum(0)
        kind = torch.randint(0, 2, (atoms,), generator=generator)
        graph = tg.radius_graph(position, CUTOFF).graph
        found.append(Cluster(position, kind, graph, *morse(position, kind, graph)))
    return found


@dataclass(frozen=True)
class Batch:
    """Clusters side by side, in one graph."""

    position: torch.Tensor
    kind: torch.Tensor
    graph: tg.GraphBatch
    energy: torch.Tensor
    force: torch.Tensor

    @staticmethod
    def of(parts: Sequence[Cluster]) -> "Batch":
        """What a `DataLoader` takes as its `collate_fn`."""
        return Batch(
            torch.cat([part.position for part in parts]),
            torch.cat([part.kind for part in parts]),
            tg.Graph.batch([part.graph for part in parts]),
            torch.stack([part.energy for part in parts]),
            torch.cat([part.force for part in parts]),
        )


class Potential(nn.Module):
    """Energies of clusters [G], and forces on atoms [N, 3] = −∂energy/∂position."""

    def __init__(self) -> None:
        super().__init__()
        self.atoms, self.total = PairEnergy(cutoff=CUTOFF), Total()

    def energy(self, batch: Batch, position: torch.Tensor) -> torch.Tensor:
        atoms = self.atoms(graph=batch.graph, kind=batch.kind, position=position)
        return self.total(graph=batch.graph.membership(), src={"energy": atoms[:, 0]})

    def forward(self, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        position = batch.position.detach().requires_grad_()
        energy = self.energy(batch, position)
        (slope,) = torch.autograd.grad(energy.sum(), position, create_graph=True)
        return energy, -slope


def batch_loss(model: nn.Module, batch: Batch) -> torch.Tensor:
    """Mean squared errors of the energy per atom and of the forces."""
    energy, force = model(batch)
    error = (energy - batch.energy) / batch.graph.counts()
    return error.square().mean() + (force - batch.force).square().mean()


def shuffled(parts: list[Cluster], size: int, generator: torch.Generator) -> Iterator[Batch]:
    """All clusters once, in batches."""
    order = torch.randperm(len(parts), generator=generator).tolist()
    for start in range(0, len(parts), size):
        yield Batch.of([parts[i] for i in order[start : start + size]])


def train(model: nn.Module, parts: list[Cluster], epochs: int, size: int = 9) -> list[float]:
    """The mean loss of each epoch."""
    generator = torch.Generator().manual_seed(0)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.05)
    means = []
    for _ in range(epochs):
        losses = []
        for batch in shuffled(parts, size, generator):
            optimiser.zero_grad()
            loss = batch_loss(model, batch)
            # Not of positions, which are leaves as well.
            loss.backward(inputs=list(model.parameters()))
            optimiser.step()
            losses.append(loss.item())
        means.append(sum(losses) / len(losses))
    return means


def main() -> tuple[float, float]:
    torch.manual_seed(0)
    model, parts = Potential().double(), clusters()
    first = train(model, parts, epochs=1)
    known = [kernel.cache_info.compiled for kernel in (model.atoms, model.total)]
    rest = train(model, parts, epochs=9)
    # Other batches, with other numbers of atoms and edges, compile nothing anew.
    assert known == [kernel.cache_info.compiled for kernel in (model.atoms, model.total)]
    print(f"Forces in batches of clusters: loss from {first[0]:.3f} to {rest[-1]:.3f}")
    return first[0], rest[-1]


if __name__ == "__main__":
    main()
