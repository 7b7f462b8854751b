"""The measured reducers as a user of tiga writes them, and the same in plain torch."""

from typing import Any

import torch

import tiga as tg


class OnlineSoftmax(tg.Reducer):
    """A softmax-weighted sum in one pass: the largest score, the weights' sum, the weighted sum."""

    associative = commutative = True

    def identity(self) -> Any:
        return -float("inf"), 0.0, 0.0

    def lift(self, score: torch.Tensor, value: torch.Tensor) -> Any:
        return score, torch.ones_like(score), value

    def combine(self, left: Any, right: Any) -> Any:
        peak = torch.maximum(left[0], right[0])
        shift = torch.where(torch.isinf(peak), torch.zeros_like(peak), peak)
        a, b = torch.exp(left[0] - shift), torch.exp(right[0] - shift)
        total = a * left[1] + b * right[1]
        return peak, total, a[..., None] * left[2] + b[..., None] * right[2]

    def finalize(self, state: Any) -> torch.Tensor:
        _, total, weighted = state
        out: torch.Tensor = weighted / torch.where(total > 0, total, 1.0)[..., None]
        return out


class MatrixProduct(tg.Reducer):
    """Products of 2×2 matrices in edge order."""

    associative = True

    def identity(self) -> torch.Tensor:
        return torch.eye(2)

    def combine(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        return left @ right


class InOrder(MatrixProduct):
    """The same without the claim, so that long rows are gone through by one thread."""

    associative = False


class Decay(tg.Reducer):
    """A memory that fades from edge to edge."""

    def identity(self) -> float:
        return 0.0

    def combine(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        return 0.9 * left + right


class Moments(tg.Reducer):
    """Number, mean and squared deviations, merged as Chan does; the result is the variance."""

    associative = commutative = True

    def identity(self) -> Any:
        return 0.0, 0.0, 0.0

    def lift(self, message: torch.Tensor) -> Any:
        return torch.ones_like(message), message, torch.zeros_like(message)

    def combine(self, left: Any, right: Any) -> Any:
        number = left[0] + right[0]
        share, gap = right[0] / number.clamp(min=1), right[1] - left[1]
        return number, left[1] + gap * share, left[2] + right[2] + gap * gap * left[0] * share

    def finalize(self, state: Any) -> torch.Tensor:
        variance: torch.Tensor = state[2] / state[0].clamp(min=1)
        return variance


class Turns(tg.MessagePassing):
    """Matrices near one, of the source and the edge."""

    def __init__(self, reducer: Any) -> None:
        self.reducer = reducer

    def edge(self, src: Any, dst: Any, edge: Any) -> torch.Tensor:
        return torch.eye(2) + edge.w[..., None, None] * src.m


def padded_product(m: torch.Tensor, w: torch.Tensor, slots: torch.Tensor) -> torch.Tensor:
    """The products of `Turns` by halves, over `slots` int64 [N, D]: edges of each row, -1 for none.

    `m` is [N, 2, 2] of the edges' sources, gathered already; D is a power of two.
    """
    each = torch.eye(2, dtype=m.dtype) + w[:, None, None] * m
    rows = torch.where((slots >= 0)[..., None, None], each[slots], torch.eye(2, dtype=m.dtype))
    while rows.shape[1] > 1:
        rows = rows[:, 0::2] @ rows[:, 1::2]
    return rows[:, 0]
