"""Gradients for a batch of cotangents, as `is_grads_batched` and vectorized Jacobians ask for.

torch hands a backward function batched tensors then, which have no data of their own: each sample
is taken out and run alone.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch

is_batched = torch._C._functorch.is_legacy_batchedtensor


def _level() -> int:
    level = torch._C._vmapmode_increment_nesting()
    torch._C._vmapmode_decrement_nesting()
    return level - 1


def _unwrap(value: Any, level: int) -> Any:
    # The size is read only for values without a batch axis.
    return torch._remove_batch_dim(value, level, 1, 0)


def stacked(runs: Sequence[Sequence[torch.Tensor]]) -> list[torch.Tensor]:
    """One tensor per output, of all runs along a new first axis."""
    return [torch.stack(list(parts)) for parts in zip(*runs, strict=True)]


def per_sample(function: Callable[..., Sequence[Any]], values: Sequence[Any]) -> tuple[Any, ...]:
    """`function` of tensors, Nones among them, of which some are batched: one call per sample,
    the results batched again."""
    level = _level()
    batched = [isinstance(v, torch.Tensor) and is_batched(v) for v in values]
    plain = [_unwrap(v, level) if b else v for v, b in zip(values, batched, strict=True)]
    size = next(v.shape[0] for v, b in zip(plain, batched, strict=True) if b)
    runs = [
        function(*(v[i] if b else v for v, b in zip(plain, batched, strict=True)))
        for i in range(size)
    ]
    return tuple(
        None if parts[0] is None else torch._add_batch_dim(torch.stack(parts), 0, level)
        for parts in zip(*runs, strict=True)
    )
