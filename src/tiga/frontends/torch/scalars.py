"""Numbers that kernels on a GPU read: tensors of one element, kept for the next call."""

from functools import lru_cache
from typing import Any

import torch

from tiga.runtime.cuda import current_stream


def number_on(value: Any, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """A number as a tensor, which kernels read. It is kept for the next call on the same stream: to
    fill one takes as long as a small kernel does."""
    if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
        # Memory of the graph that is being captured: nobody else may read it.
        return torch.full((), value, dtype=dtype, device=device)
    stream = current_stream(device)
    if isinstance(value, float):
        return _kept_float(value.hex(), dtype, device, stream)
    return _kept_int(value, dtype, device, stream)


@lru_cache(maxsize=1024)
@torch.inference_mode(False)
def _kept_float(digits: str, dtype: torch.dtype, device: torch.device, stream: int) -> torch.Tensor:
    # By digits: -0.0 is not 0.0, and NaN is itself.
    return torch.full((), float.fromhex(digits), dtype=dtype, device=device)


@lru_cache(maxsize=1024)
@torch.inference_mode(False)
def _kept_int(value: int, dtype: torch.dtype, device: torch.device, stream: int) -> torch.Tensor:
    return torch.full((), value, dtype=dtype, device=device)
