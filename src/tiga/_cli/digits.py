"""The demonstration's data and network: handwritten digits, each linked to its look-alikes."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.neighbors import kneighbors_graph
from torch import nn

import tiga as tg

NEIGHBOURS, HIDDEN, CLASSES = 16, 64, 10
LABELLED = 0.1
"""Part of the digits whose label training may see; the rest is for the test."""


@dataclass(frozen=True)
class Digits:
    """Images as nodes and their nearest images as sources, in CSR form.

    `x` f32 [N, 64] pixels, `labels` i64 [N], `row_ptr` i64 [N+1], `source` i64 [E],
    `w` f32 [E, 1] closeness in (0, 1], `train` i64 and `test` i64: positions of nodes.
    """

    x: torch.Tensor
    labels: torch.Tensor
    row_ptr: torch.Tensor
    source: torch.Tensor
    w: torch.Tensor
    train: torch.Tensor
    test: torch.Tensor

    @property
    def destination(self) -> torch.Tensor:
        return torch.repeat_interleave(torch.arange(len(self.x)), self.row_ptr.diff())

    def repeated(self, copies: int) -> "Digits":
        """The same graph `copies` times side by side: more work of the same kind."""
        nodes, edges = len(self.x), len(self.source)
        shift = torch.arange(copies)[:, None]
        return Digits(
            self.x.repeat(copies, 1),
            self.labels.repeat(copies),
            torch.cat([torch.zeros(1, dtype=torch.int64), *(self.row_ptr[1:] + shift * edges)]),
            (self.source + shift * nodes).flatten(),
            self.w.repeat(copies, 1),
            (self.train + shift * nodes).flatten(),
            (self.test + shift * nodes).flatten(),
        )


def load(seed: int = 0) -> Digits:
    """The 1,797 digits that scikit-learn ships, with their k-nearest-neighbour graph."""
    pixels, labels = load_digits(return_X_y=True)
    pixels = pixels.astype(np.float32) / 16
    near = kneighbors_graph(pixels, NEIGHBOURS, mode="distance")
    closeness = np.exp(-((near.data / near.data.mean()) ** 2)).astype(np.float32)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    cut = int(LABELLED * len(labels))
    return Digits(
        torch.from_numpy(pixels),
        torch.from_numpy(labels).long(),
        torch.from_numpy(near.indptr).long(),
        torch.from_numpy(near.indices).long(),
        torch.from_numpy(closeness)[:, None],
        order[:cut],
        order[cut:],
    )


class Diffuse(tg.MessagePassing, nn.Module):
    """Move every node towards its neighbours: h + rate · mean(w · tanh(h_src − h_dst))."""

    reducer = tg.mean()

    def __init__(self, width: int) -> None:
        super().__init__()
        self.rate = nn.Parameter(torch.zeros(width))

    def edge(self, src: Any, dst: Any, edge: Any) -> torch.Tensor:
        return edge.w * torch.tanh(src.h - dst.h)

    def node(self, dst: Any, aggregate: torch.Tensor) -> torch.Tensor:
        return dst.h + torch.exp(self.rate) * aggregate


class PlainDiffuse(nn.Module):
    """The same layer in plain torch, with an array of edges × features."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.rate = nn.Parameter(torch.zeros(width))

    def forward(
        self, h: torch.Tensor, w: torch.Tensor, source: torch.Tensor, destination: torch.Tensor
    ) -> torch.Tensor:
        message = w * torch.tanh(h[source] - h[destination])
        total = torch.zeros_like(h).index_add_(0, destination, message)
        count = torch.bincount(destination, minlength=len(h)).clamp(min=1)
        return h + torch.exp(self.rate) * total / count[:, None]


class Network(nn.Module):
    """Two layers, each a learned map of every node and a `Diffuse` along the edges."""

    def __init__(self, layer: Callable[[int], nn.Module]) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(64, HIDDEN), nn.Linear(HIDDEN, CLASSES)
        self.spread, self.settle = layer(HIDDEN), layer(CLASSES)

    def forward(
        self, x: torch.Tensor, along: Callable[[nn.Module, torch.Tensor], torch.Tensor]
    ) -> torch.Tensor:
        hidden = torch.relu(along(self.spread, self.first(x)))
        return along(self.settle, self.second(hidden))


def tiga_network(digits: Digits) -> tuple[Network, Callable[[], torch.Tensor]]:
    """The network on tiga, and a function that computes its scores [N, 10]."""
    graph = tg.Graph.from_csr(digits.row_ptr, digits.source, num_src=len(digits.x))
    network = Network(Diffuse)

    def along(layer: nn.Module, h: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = layer(graph=graph, ndata={"h": h}, edge={"w": digits.w})
        return out

    return network, lambda: network(digits.x, along)


def plain_network(digits: Digits) -> tuple[Network, Callable[[], torch.Tensor]]:
    """The network in plain torch, and a function that computes its scores [N, 10]."""
    destination = digits.destination
    network = Network(PlainDiffuse)

    def along(layer: nn.Module, h: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = layer(h, digits.w, digits.source, destination)
        return out

    return network, lambda: network(digits.x, along)


def compiled_network(digits: Digits) -> tuple[Network, Callable[[], torch.Tensor]]:
    """The plain network under torch.compile."""
    network, scores = plain_network(digits)
    return network, torch.compile(scores, dynamic=False)


WAYS = {"tiga": tiga_network, "torch": plain_network, "torch.compile": compiled_network}


def training_step(
    digits: Digits, network: nn.Module, scores: Callable[[], torch.Tensor]
) -> Callable[[], torch.Tensor]:
    """One step: forward, loss on the labelled digits, backward. Returns the loss when called."""

    def step() -> torch.Tensor:
        network.zero_grad()
        loss = nn.functional.cross_entropy(scores()[digits.train], digits.labels[digits.train])
        loss.backward()
        return loss.detach()

    return step
