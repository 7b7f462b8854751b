"""Energies from products of spherical harmonics, and forces, which turn as the molecule does."""

import math

import numpy as np
import torch
from forces import Total, fit
from torch import nn

import tiga as tg

PARTS = 1, 3, 5
"""Components of degree 0, 1 and 2 in a feature of nine."""


def harmonics(u: torch.Tensor) -> torch.Tensor:
    """Real spherical harmonics up to degree 2 of unit vectors [..., 3]: [..., 9]."""
    x, y, z = u.unbind(-1)
    flat = math.sqrt(15)
    return torch.stack(
        [
            torch.ones_like(x), math.sqrt(3) * x, math.sqrt(3) * y, math.sqrt(3) * z,
            flat * x * y, flat * y * z, math.sqrt(5) / 2 * (3 * z * z - 1), flat * z * x,
            flat / 2 * (x * x - y * y),
        ],
        -1,
    ) / math.sqrt(4 * math.pi)  # fmt: skip


def products() -> torch.Tensor:
    """The integrals over the sphere of products of three harmonics, f64 [9, 9, 9]: with them, the
    product of two features is one again. Exact, by Gauss's points along z and equal angles."""
    heights, weights = np.polynomial.legendre.leggauss(4)
    angles = 2 * np.pi * np.arange(8) / 8
    z, angle = (torch.from_numpy(v.ravel()) for v in np.meshgrid(heights, angles, indexing="ij"))
    ring = torch.sqrt(1 - z * z)
    values = harmonics(torch.stack([ring * angle.cos(), ring * angle.sin(), z], -1))
    each = torch.from_numpy(weights).repeat_interleave(8) * 2 * np.pi / 8
    return torch.einsum("p,pi,pj,pk->ijk", each, values, values, values)


class Product(tg.MessagePassing, nn.Module):
    """h_i + Σ_j filter(|r_j − r_i|) · (h_j × Y(r_j − r_i)): features [N, C, 9], a filter for each
    channel and degree."""

    def __init__(self, width: int, basis: int = 8, cutoff: float = 6.0) -> None:
        super().__init__()
        self.register_buffer("centres", torch.linspace(0.5, cutoff, basis))
        self.register_buffer("couple", products().float())
        self.sharpness = (basis / cutoff) ** 2
        self.filter = nn.Sequential(
            nn.Linear(basis, width), nn.SiLU(), nn.Linear(width, width * len(PARTS))
        )

    def edge(self, src, dst, edge):
        apart = src.r - dst.r
        distance = apart.norm(dim=-1, keepdim=True)
        waves = torch.exp(-self.sharpness * (distance - self.centres) ** 2)
        scales = self.filter(waves).unflatten(-1, (-1, len(PARTS)))
        wide = [scales[..., d : d + 1].expand(-1, -1, n) for d, n in enumerate(PARTS)]
        around = torch.einsum("ijk,...j->...ik", self.couple, harmonics(apart / distance))
        return torch.cat(wide, -1) * (src.h @ around)

    def node(self, dst, aggregate):
        return dst.h + aggregate


class Model(nn.Module):
    """Energies of molecules [M], and forces on atoms [N, 3] = −∂energy/∂position."""

    def __init__(self, width: int = 8, layers: int = 2) -> None:
        super().__init__()
        self.kinds, self.width = nn.Embedding(2, width), width
        self.products = nn.ModuleList(Product(width) for _ in range(layers))
        self.energy = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 1))
        self.total = Total()

    def forward(self, batch, graph, membership, position):
        position = position.detach().requires_grad_()
        scalars = self.kinds(batch.kind)[:, :, None]
        h = nn.functional.pad(scalars, (0, sum(PARTS) - 1))
        for product in self.products:
            h = product(graph=graph, ndata={"r": position, "h": h})
        energy = self.total(graph=membership, src={"energy": self.energy(h[:, :, 0])[:, 0]})
        (slope,) = torch.autograd.grad(energy.sum(), position, create_graph=True)
        return energy, -slope


def main() -> tuple[float, float]:
    losses = fit(Model, rate=0.05, steps=60)
    print(f"Equivariant forces on benzene: loss from {losses[0]:.3f} to {losses[-1]:.3f}")
    return losses[0], losses[-1]


if __name__ == "__main__":
    main()
