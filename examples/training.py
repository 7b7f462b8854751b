"""How the examples train a classifier of nodes."""

from collections.abc import Callable

import torch
from graphs import Sample
from torch import nn


def train(
    network: nn.Module, scores: Callable[[], torch.Tensor], sample: Sample, steps: int = 60
) -> float:
    """Fit the labels that may be seen; returns the accuracy on the others."""
    optimiser = torch.optim.Adam(network.parameters(), lr=0.01, weight_decay=1e-3)
    for _ in range(steps):
        optimiser.zero_grad()
        seen = sample.train
        nn.functional.cross_entropy(scores()[seen], sample.labels[seen]).backward()
        optimiser.step()
    with torch.no_grad():
        right = scores().argmax(1) == sample.labels
    return right[~sample.train].float().mean().item()
