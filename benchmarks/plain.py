"""The measured programs in plain torch: what a user writes without tiga."""

from collections.abc import Callable
from typing import Any

import torch


def weighted_sum(
    x: torch.Tensor, w: torch.Tensor, source: torch.Tensor, destination: torch.Tensor
) -> torch.Tensor:
    """`Σ w · x_src`: gather, multiply, index_add."""
    return torch.zeros_like(x).index_add_(0, destination, w * x[source])


Torch = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


def difference_sum(
    x: torch.Tensor, source: torch.Tensor, destination: torch.Tensor
) -> torch.Tensor:
    """Sum of `relu(x_src − x_dst)`: gather and index_add."""
    message = torch.relu(x[source] - x[destination])
    return torch.zeros_like(x).index_add_(0, destination, message)


def difference_scatter(reduce: str) -> Torch:
    """`relu(x_src − x_dst)` under one of scatter_reduce's names of reductions."""

    def run(x: torch.Tensor, source: torch.Tensor, destination: torch.Tensor) -> torch.Tensor:
        message = torch.relu(x[source] - x[destination])
        index = destination[:, None].expand_as(message)
        return torch.zeros_like(x).scatter_reduce(0, index, message, reduce, include_self=False)

    return run


def difference_mean_by_count(
    x: torch.Tensor, source: torch.Tensor, destination: torch.Tensor
) -> torch.Tensor:
    """Mean of `relu(x_src − x_dst)` as a sum over a count."""
    count = torch.zeros_like(x[:, :1]).index_add_(
        0, destination, torch.ones_like(destination, dtype=x.dtype)[:, None]
    )
    return difference_sum(x, source, destination) / count.clamp(min=1)


def with_gradient(run: Callable[..., torch.Tensor]) -> Callable[..., tuple[torch.Tensor, ...]]:
    """Forward, then the gradient to the first argument under the cotangent `seed`."""

    def both(x: torch.Tensor, *rest: Any, seed: torch.Tensor) -> tuple[torch.Tensor, ...]:
        out = run(x, *rest)
        (dx,) = torch.autograd.grad(out, x, seed)
        return out.detach(), dx

    return both
