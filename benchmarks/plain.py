"""The measured programs in plain torch: what a user writes without tiga."""

from collections.abc import Callable, Mapping

import torch
from torch.nn.functional import leaky_relu

SLOPE = 0.2


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


def difference_std(
    x: torch.Tensor, source: torch.Tensor, destination: torch.Tensor
) -> torch.Tensor:
    """Population standard deviation of `relu(x_src − x_dst)` from its first two moments."""
    message = torch.relu(x[source] - x[destination])
    index = destination[:, None].expand_as(message)
    mean, square = (
        torch.zeros_like(x).scatter_reduce(0, index, part, "mean", include_self=False)
        for part in (message, message * message)
    )
    variance = square - mean * mean
    varies = variance > 0
    # A small number under the root would dominate rows whose messages are nearly equal.
    return torch.where(varies, torch.sqrt(torch.where(varies, variance, 1.0)), 0.0)


def difference_four(
    x: torch.Tensor, source: torch.Tensor, destination: torch.Tensor
) -> torch.Tensor:
    """Sum, mean, maximum and minimum of `relu(x_src − x_dst)`, side by side: [N, 4 F]."""
    message = torch.relu(x[source] - x[destination])
    index = destination[:, None].expand_as(message)
    parts = [
        torch.zeros_like(x).scatter_reduce(0, index, message, reduce, include_self=False)
        for reduce in ("sum", "mean", "amax", "amin")
    ]
    return torch.cat(parts, -1)


def edge_linear(
    x: torch.Tensor, weight: torch.Tensor, source: torch.Tensor, destination: torch.Tensor
) -> torch.Tensor:
    """Sum of `relu(relu(x_src − x_dst) @ weight)`: a product that must be done per edge."""
    message = torch.relu(torch.relu(x[source] - x[destination]) @ weight)
    return torch.zeros_like(x).index_add_(0, destination, message)


def pushed_linear(
    x: torch.Tensor, weight: torch.Tensor, source: torch.Tensor, destination: torch.Tensor
) -> torch.Tensor:
    """Sum of `relu(x_src − x_dst) @ weight`: a product that may be done per node, after the sum."""
    message = torch.relu(x[source] - x[destination]) @ weight
    return torch.zeros_like(x).index_add_(0, destination, message)


def softmax_over_destinations(
    score: torch.Tensor, destination: torch.Tensor, num_nodes: int
) -> torch.Tensor:
    """Softmax of `score` [E, H] among the edges of each destination."""
    index = destination[:, None].expand_as(score)
    empty = score.new_zeros(num_nodes, score.shape[1])
    largest = empty.scatter_reduce(0, index, score.detach(), "amax", include_self=False)
    weight = torch.exp(score - largest[destination])
    return weight / empty.index_add(0, destination, weight)[destination]


def gat(
    x: torch.Tensor,
    weights: Mapping[str, torch.Tensor],
    source: torch.Tensor,
    destination: torch.Tensor,
) -> torch.Tensor:
    """Graph attention: score lrelu(a_src · h_src + a_dst · h_dst), value h_src; [N, H, C]."""
    heads, width = weights["att_src"].shape
    h = (x @ weights["lin"]).view(-1, heads, width)
    from_src, from_dst = (h * weights["att_src"]).sum(-1), (h * weights["att_dst"]).sum(-1)
    score = leaky_relu(from_src[source] + from_dst[destination], SLOPE)
    alpha = softmax_over_destinations(score, destination, len(x))
    return torch.zeros_like(h).index_add_(0, destination, alpha[..., None] * h[source])


def gatv2(
    x: torch.Tensor,
    weights: Mapping[str, torch.Tensor],
    source: torch.Tensor,
    destination: torch.Tensor,
) -> torch.Tensor:
    """Graph attention v2: score a · lrelu(l_src + r_dst), value l_src; [N, H, C]."""
    heads, width = weights["att"].shape
    left, right = ((x @ weights[side]).view(-1, heads, width) for side in ("lin_l", "lin_r"))
    score = (leaky_relu(left[source] + right[destination], SLOPE) * weights["att"]).sum(-1)
    alpha = softmax_over_destinations(score, destination, len(x))
    return torch.zeros_like(left).index_add_(0, destination, alpha[..., None] * left[source])


def with_gradient(run: Callable[..., torch.Tensor]) -> Callable[..., tuple[torch.Tensor, ...]]:
    """Forward, then the gradients to all arguments that want one, under the cotangent `seed`."""

    def both(*inputs: torch.Tensor, seed: torch.Tensor) -> tuple[torch.Tensor, ...]:
        out = run(*inputs)
        wanted = [tensor for tensor in inputs if tensor.requires_grad]
        return out.detach(), *torch.autograd.grad(out, wanted, seed)

    return both
