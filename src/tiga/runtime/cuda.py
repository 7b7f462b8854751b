"""What kernels on NVIDIA GPUs need of torch: memory, addresses and facts about the device.

Under Triton's interpreter the device is the CPU.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache, partial
from importlib.metadata import version
from itertools import pairwise
from typing import Any

from tiga.types import DType

_ALREADY = nullcontext()

INTERPRETED = 0
"""The capability of no GPU."""


def arena(nbytes: int, device: Any) -> Any:
    """Memory from torch's allocator, on its current stream."""
    import torch

    return torch.empty(nbytes, dtype=torch.uint8, device=device)


def arenas(nbytes: int, device: Any) -> Callable[[], Any]:
    """As `arena`, for many of one size."""
    import torch

    return partial(torch.empty, nbytes, dtype=torch.uint8, device=device)


def view(arena: Any, offset: int, count: int, dtype: DType) -> Any:
    """`count` values from byte `offset` of an arena, as a tensor."""
    import torch

    piece = arena[offset : offset + count * dtype.itemsize]
    return piece.view(getattr(torch, dtype.name))


def address(tensor: Any) -> Any:
    """What a launch takes for a tensor: its address, or under the interpreter the tensor."""
    return tensor.data_ptr() if tensor.is_cuda else tensor


@lru_cache(maxsize=256)
def constant(numbers: tuple[int, ...], device: Any) -> Any:
    """An int32 tensor of these numbers, kept for the next use."""
    import torch

    return torch.tensor(numbers, dtype=torch.int32, device=device)


@lru_cache(maxsize=16)
def capability(device: Any) -> int:
    """The compute capability of a device, 90 for 9.0; 0 for the CPU."""
    import torch

    if device.type != "cuda":
        return INTERPRETED
    major, minor = torch.cuda.get_device_capability(device)
    return 10 * major + minor


def machine(device: Any) -> str:
    """What times of kernels depend on: the device and the versions of what compiles for it."""
    import torch

    return f"{torch.cuda.get_device_name(device)}, CUDA {torch.version.cuda}, {version('triton')}"


def may_wait(device: Any) -> bool:
    """Whether times can be taken: on a GPU, and in no graph that is being captured."""
    import torch

    return device.type == "cuda" and not torch.cuda.is_current_stream_capturing()


def milliseconds(call: Callable[[], None], repeats: int = 10) -> float:
    """The least time of a call on the current stream, by the device's clock."""
    import torch

    call()
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(repeats + 1)]
    marks[0].record()
    for mark in marks[1:]:
        call()
        mark.record()
    torch.cuda.synchronize()
    return min(a.elapsed_time(b) for a, b in pairwise(marks))


def on(device: Any) -> AbstractContextManager[Any]:
    """Make a device the current one."""
    import torch

    # A tensor lies on the device, so that CUDA is up; torch.cuda's own look-up asks for that first.
    if device.type != "cuda" or device.index == torch._C._cuda_getDevice():
        return _ALREADY
    return torch.cuda.device(device)


def current_stream(device: Any) -> int:
    """The handle of torch's current stream on a device."""
    import torch

    if device.type != "cuda":
        return 0
    return torch._C._cuda_getCurrentRawStream(device.index)
