"""Potentials of atoms whose forces are derivatives, and are trained."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

import tiga as tg


def waves(distance: torch.Tensor, centres: torch.Tensor, cutoff: float) -> torch.Tensor:
    """Gaussians of a distance [1] around centres [basis], faded out at the cutoff."""
    sharpness = (len(centres) / cutoff) ** 2
    fade = 0.5 * (torch.cos(distance * (math.pi / cutoff)) + 1)
    near = torch.exp(-sharpness * (distance - centres) ** 2)
    return near * torch.where(distance < cutoff, fade, 0.0)


class Filter(tg.MessagePassing, nn.Module):
    """SchNet's convolution: features of neighbours times a network of the distance."""

    reducer = tg.sum()

    def __init__(self, width: int, basis: int, cutoff: float) -> None:
        super().__init__()
        self.register_buffer("centres", torch.linspace(0, cutoff, basis))
        self.cutoff = cutoff
        self.hidden, self.filter = nn.Linear(basis, width), nn.Linear(width, width)

    def edge(self, src: Any, dst: Any, edge: Any) -> torch.Tensor:
        distance = torch.linalg.vector_norm(src.r - dst.r, dim=-1, keepdim=True)
        found = nn.functional.softplus(self.hidden(waves(distance, self.centres, self.cutoff)))
        return src.h * self.filter(found)


class SchNetLayer(nn.Module):
    """Update scalars [N, F] of atoms from those around them."""

    def __init__(self, width: int, basis: int, cutoff: float) -> None:
        super().__init__()
        self.before = nn.Linear(width, width, bias=False)
        self.along = Filter(width, basis, cutoff)
        self.after = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width))

    def forward(
        self, graph: tg.Graph, state: Sequence[torch.Tensor], r: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        (h,) = state
        around = self.along(graph=graph, ndata={"h": self.before(h), "r": r})
        return (h + self.after(around),)


class Directed(tg.MessagePassing, nn.Module):
    """PaiNN's messages: scalars [F] and vectors [3, F] side by side, as [4, F]."""

    reducer = tg.sum()

    def __init__(self, width: int, basis: int, cutoff: float) -> None:
        super().__init__()
        self.register_buffer("centres", torch.linspace(0, cutoff, basis))
        self.width, self.cutoff = width, cutoff
        self.filter = nn.Linear(basis, 3 * width)

    def edge(self, src: Any, dst: Any, edge: Any) -> torch.Tensor:
        apart = src.r - dst.r
        distance = torch.linalg.vector_norm(apart, dim=-1, keepdim=True)
        gates = src.phi * self.filter(waves(distance, self.centres, self.cutoff))
        scalar, along, across = torch.split(gates[:, None], self.width, dim=-1)
        vector = across * src.v + along * (apart / distance)[:, :, None]
        return torch.cat([scalar, vector], dim=1)


class PaiNNLayer(nn.Module):
    """Update scalars [N, F] and vectors [N, 3, F] by messages, and then by one another."""

    def __init__(self, width: int, basis: int, cutoff: float) -> None:
        super().__init__()
        self.phi = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 3 * width))
        self.along = Directed(width, basis, cutoff)
        self.mix = nn.Linear(width, 2 * width, bias=False)
        self.after = nn.Sequential(
            nn.Linear(2 * width, width), nn.SiLU(), nn.Linear(width, 3 * width)
        )
        self.width = width

    def forward(
        self, graph: tg.Graph, state: Sequence[torch.Tensor], r: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        s, v = state
        around = self.along(graph=graph, ndata={"phi": self.phi(s), "v": v, "r": r})
        s, v = s + around[:, 0], v + around[:, 1:]
        left, right = torch.split(self.mix(v), self.width, dim=-1)
        length = torch.sqrt((right * right).sum(1) + 1e-8)
        gate, own, mixed = torch.split(
            self.after(torch.cat([s, length], dim=-1)), self.width, dim=-1
        )
        return s + own + mixed * (left * right).sum(1), v + gate[:, None] * left


class Potential(nn.Module):
    """The energy of all atoms, and the force on each [N, 3]."""

    def __init__(self, layer: type, layers: int = 2, width: int = 64, basis: int = 20) -> None:
        super().__init__()
        self.kinds, self.has_vectors = nn.Embedding(8, width), layer is PaiNNLayer
        self.layers = nn.ModuleList(layer(width, basis, 5.0) for _ in range(layers))
        self.energy = nn.Sequential(nn.Linear(width, width // 2), nn.SiLU(),
                                    nn.Linear(width // 2, 1))  # fmt: skip

    def forward(
        self, graph: tg.Graph, kind: torch.Tensor, position: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        position = position.detach().requires_grad_()
        energy = self.energy_of(graph, kind, position)
        (slope,) = torch.autograd.grad(energy, position, create_graph=True)
        return energy, -slope

    def energy_of(
        self, graph: tg.Graph, kind: torch.Tensor, position: torch.Tensor
    ) -> torch.Tensor:
        """The energy of all atoms."""
        scalars = self.kinds(kind)
        vectors = scalars.new_zeros(len(kind), 3, scalars.shape[1])
        state = (scalars, vectors) if self.has_vectors else (scalars,)
        for layer in self.layers:
            state = layer(graph, state, position)
        found: torch.Tensor = self.energy(state[0]).sum()
        return found


def loss_of(
    model: Potential, graph: tg.Graph, kind: torch.Tensor, position: torch.Tensor
) -> torch.Tensor:
    """A loss of energy and forces, whose gradient takes second derivatives."""
    energy, force = model(graph, kind, position)
    return energy.square() / len(kind) ** 2 + force.square().mean()
