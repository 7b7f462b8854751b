"""GPUs as torch's tensors are on them: memory, streams, and arrays of indices.

Under Triton's interpreter the device is the CPU.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from importlib.metadata import version
from itertools import pairwise
from typing import Any

import numpy as np

from tiga.runtime.host_arrays import side_by_side
from tiga.types import DType

_ALREADY = nullcontext()

INTERPRETED = 0
"""The capability of no GPU."""

SHORT = 2**15
"""Numbers that 16 bits hold."""

REPEATS = 10
"""Launches that are timed."""


@lru_cache(maxsize=16)
def capability(device: Any) -> int:
    """The compute capability of a device, 90 for 9.0; 0 for the CPU."""
    import torch

    if device.type != "cuda":
        return INTERPRETED
    major, minor = torch.cuda.get_device_capability(device)
    return 10 * major + minor


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


class TorchArrays:
    """Functions of index tensors; see `tiga.runtime.platform.IndexArrays`."""

    def numbers(self, values: Sequence[Any]) -> list[int]:
        import torch

        found: list[int] = torch.stack([value.reshape(()).long() for value in values]).tolist()
        return found

    def minimum(self, x: Any) -> Any:
        return x.min()

    def maximum(self, x: Any) -> Any:
        return x.max()

    def total(self, x: Any) -> Any:
        return x.sum()

    def positions(self, like: Any, count: int) -> Any:
        import torch

        return torch.arange(count, device=like.device)

    def full(self, like: Any, count: int, value: int) -> Any:
        return like.new_full((count,), value)

    def cast(self, x: Any, bits: int) -> Any:
        return x.int() if bits == 32 else x.long()

    def contiguous(self, x: Any) -> Any:
        return x.contiguous()

    def join(self, parts: Sequence[Any]) -> Any:
        import torch

        return torch.cat(list(parts))

    def running_sums(self, x: Any) -> Any:
        return x.cumsum(0)

    def where(self, mask: Any) -> Any:
        return mask.nonzero().flatten()

    def put(self, target: Any, positions: Any, values: Any) -> Any:
        target[positions] = values
        return target

    def sort(self, keys: Any, count: int) -> tuple[Any, Any]:
        found = keys.sort(stable=True)
        return found.values, found.indices

    def order(self, keys: Any, count: int) -> Any:
        # torch sorts by all bits of the type, whatever they hold.
        short = keys.short() if count <= SHORT else keys
        return self.sort(short, count)[1]

    def rows(self, starts: Any, total: int) -> Any:
        numbers = self.positions(starts, len(starts) - 1)
        return numbers.repeat_interleave(starts.diff(), output_size=total)

    def before(self, ordered: Any, bounds: Any) -> Any:
        import torch

        return torch.searchsorted(ordered, bounds)

    def bits(self, positions: Any, count: int) -> Any:
        import torch

        marks = torch.zeros(count, dtype=torch.uint8, device=positions.device)
        marks[positions] = 1
        weights = torch.tensor([1 << i for i in range(8)], dtype=torch.uint8, device=marks.device)
        return (marks.view(-1, 8) * weights).sum(1, dtype=torch.uint8).view(torch.int32)


@dataclass(frozen=True, eq=False)
class TorchPlatform:
    """A device of torch's; see `tiga.runtime.platform.Platform`."""

    device: Any

    arrays = TorchArrays()

    @cached_property
    def name(self) -> str:
        return str(self.device)

    @cached_property
    def is_gpu(self) -> bool:
        return bool(self.device.type == "cuda")

    @cached_property
    def index(self) -> int:
        return self.device.index or 0

    @cached_property
    def capability(self) -> int:
        return capability(self.device)

    def on(self) -> AbstractContextManager[Any]:
        return on(self.device)

    def stream(self) -> int:
        return current_stream(self.device)

    def address(self, array: Any) -> int:
        address: int = array.data_ptr()
        return address

    def arena(self, nbytes: int) -> Any:
        import torch

        return torch.empty(nbytes, dtype=torch.uint8, device=self.device)

    def arenas(self, nbytes: int) -> Callable[[], Any]:
        import torch

        return partial(torch.empty, nbytes, dtype=torch.uint8, device=self.device)

    def view(self, arena: Any, offset: int, count: int, dtype: DType) -> Any:
        import torch

        piece = arena[offset : offset + count * dtype.itemsize]
        return piece.view(getattr(torch, dtype.name))

    def zero(self, arena: Any, offset: int, nbytes: int) -> None:
        arena[offset : offset + nbytes].zero_()

    def copy(self, target: Any, source: Any) -> None:
        target.copy_(source)

    def constant(self, numbers: tuple[int, ...]) -> Any:
        return _constant(numbers, self.device)

    def sent(self, host: np.ndarray) -> Any:
        import torch

        return torch.from_numpy(np.array(host)).to(self.device)

    def sent_together(self, hosts: Sequence[np.ndarray]) -> list[Any]:
        import torch

        block, places = side_by_side(hosts)
        there = torch.from_numpy(block).to(self.device)
        of_size = {4: there.view(torch.int32), 8: there.view(torch.int64)}
        return [
            of_size[host.itemsize][place // host.itemsize : place // host.itemsize + host.size]
            for host, place in zip(hosts, places, strict=True)
        ]

    def owns(self, array: Any) -> bool:
        return bool(getattr(array, "device", None) == self.device)

    def description(self) -> str:
        import torch

        name = torch.cuda.get_device_name(self.device)
        return f"{name}, CUDA {torch.version.cuda}, {version('triton')}"

    def may_wait(self) -> bool:
        import torch

        return self.is_gpu and not torch.cuda.is_current_stream_capturing()

    def milliseconds(self, call: Callable[[], None]) -> float:
        """By the device's clock."""
        import torch

        call()
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(REPEATS + 1)]
        marks[0].record()
        for mark in marks[1:]:
            call()
            mark.record()
        torch.cuda.synchronize()
        return min(a.elapsed_time(b) for a, b in pairwise(marks))


@lru_cache(maxsize=16)
def torch_platform(device: Any) -> TorchPlatform:
    """The platform of a device of torch's."""
    return TorchPlatform(device)


@lru_cache(maxsize=256)
def _constant(numbers: tuple[int, ...], device: Any) -> Any:
    import torch

    return torch.tensor(numbers, dtype=torch.int32, device=device)
