"""The small data sets of the examples: neighbour graphs of real measurements, and molecules."""

from dataclasses import dataclass
from math import cos, pi, sin

import numpy as np
import torch
from sklearn.datasets import load_digits, load_iris
from sklearn.neighbors import kneighbors_graph

import tiga as tg


@dataclass(frozen=True)
class Sample:
    """Nodes to classify: `x` f32 [N, F], `labels` i64 [N], which of them may be seen in training
    (`train` bool [N]), and edges from each node's nearest nodes, `edge_index` i64 [2, E]."""

    x: torch.Tensor
    labels: torch.Tensor
    train: torch.Tensor
    edge_index: torch.Tensor

    @property
    def graph(self) -> tg.Graph:
        return tg.Graph.from_edge_index(self.edge_index, num_nodes=len(self.x))

    @property
    def with_loops(self) -> "Sample":
        """The same sample with an edge from every node to itself."""
        loops = torch.arange(len(self.x)).expand(2, -1)
        edges = torch.cat([self.edge_index, loops], dim=1)
        return Sample(self.x, self.labels, self.train, edges)

    @property
    def in_degree(self) -> torch.Tensor:
        """Number of edges that lead to each node, f32 [N]."""
        return torch.bincount(self.edge_index[1], minlength=len(self.x)).float()


def _neighbours(values: np.ndarray, labels: np.ndarray, count: int, seen: float) -> Sample:
    near = kneighbors_graph(values, count).tocoo()
    # kneighbors_graph lists the neighbours of each row; here a neighbour is a source.
    edges = torch.from_numpy(np.stack([near.col, near.row])).long()
    train = torch.rand(len(labels), generator=torch.Generator().manual_seed(0)) < seen
    return Sample(
        torch.from_numpy(values.astype(np.float32)), torch.from_numpy(labels).long(), train, edges
    )


def digits(nodes: int = 600) -> Sample:
    """Handwritten digits, 64 pixels each, linked to their 8 nearest images."""
    pixels, labels = load_digits(return_X_y=True)
    return _neighbours(pixels[:nodes] / 16, labels[:nodes], 8, seen=0.2)


def iris() -> Sample:
    """150 flowers with 4 measurements each, linked to their 6 nearest."""
    values, labels = load_iris(return_X_y=True)
    return _neighbours((values - values.mean(0)) / values.std(0), labels, 6, seen=0.2)


@dataclass(frozen=True)
class Molecules:
    """Copies of a molecule in one batch: `position` f64 [N, 3] in Å, `kind` i64 [N] (0 hydrogen,
    1 carbon), `molecule` i64 [N], and an edge between every two atoms of a molecule."""

    position: torch.Tensor
    kind: torch.Tensor
    molecule: torch.Tensor
    edge_index: torch.Tensor
    count: int

    @property
    def graph(self) -> tg.Graph:
        return tg.Graph.from_edge_index(self.edge_index, num_nodes=len(self.kind))

    @property
    def membership(self) -> tg.Graph:
        """From atoms to the molecules they belong to."""
        atoms = torch.arange(len(self.kind))
        return tg.Graph.from_coo(atoms, self.molecule, num_src=len(self.kind), num_dst=self.count)


CARBON_RING, HYDROGEN_RING = 1.39, 2.48
"""Distances of the atoms of benzene from its centre in Å: a regular hexagon of each kind."""


def benzene(count: int = 16, shake: float = 0.05) -> Molecules:
    """Benzene molecules whose atoms are displaced at random."""
    angles = [pi / 3 * k for k in range(6)]
    ring = [(r * cos(a), r * sin(a), 0.0) for r in (CARBON_RING, HYDROGEN_RING) for a in angles]
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(count, 12, 3, generator=generator, dtype=torch.float64)
    position = torch.tensor(ring, dtype=torch.float64) + shake * noise
    pairs = torch.tensor([(i, j) for i in range(12) for j in range(12) if i != j]).T
    edges = (pairs[:, None, :] + 12 * torch.arange(count)[None, :, None]).flatten(1)
    return Molecules(
        position.flatten(0, 1),
        torch.tensor([1] * 6 + [0] * 6).repeat(count),
        torch.arange(count).repeat_interleave(12),
        edges,
        count,
    )
