"""Runs on a GPU that differ from the one before in their tensors only."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any
from weakref import ReferenceType

import torch

from tiga.backends.triton.compiled import ALIGNMENT
from tiga.backends.triton.record import Record
from tiga.frontends.torch.scalars import number_on
from tiga.relations.snapshot import Snapshot

_TENSORS = (torch.Tensor, torch.nn.Parameter)
_empty = torch.empty
# What the compiled programs of torch allocate by: without a look at modes and dispatch keys, which
# takes the larger part of `torch.empty`. It allocates on the current device.
_empty_on_current = getattr(torch._C._dynamo.guards, "_empty_strided_cuda", None)
# What torch.cuda's own look-ups ask once they know that CUDA is up; it is, where tensors lie there.
_current_device = getattr(torch._C, "_cuda_getDevice", None)
_current_stream = getattr(torch._C, "_cuda_getCurrentRawStream", None)


@dataclass(frozen=True)
class Replay:
    """A program on a topology with everything looked up. `inputs` are the dtypes of its inputs,
    `outputs` shapes and dtypes; `record` launches kernels only. A replay keeps neither the topology
    nor the record, which holds its arrays on the device, alive."""

    topology: "ReferenceType[Snapshot]"
    device: torch.device
    inputs: tuple[torch.dtype, ...]
    outputs: tuple[tuple[tuple[int, ...], torch.dtype], ...]
    record: "ReferenceType[Record]"

    @cached_property
    def index(self) -> int | None:
        """The number of the device."""
        return self.device.index

    @cached_property
    def makers(self) -> tuple[tuple[Callable[..., torch.Tensor], tuple[Any, ...]], ...]:
        """What makes each output, and what it takes."""
        if self.device.type != "cuda" or _empty_on_current is None:
            make = partial(_empty, device=self.device)
            return tuple((partial(make, dtype=dtype), (shape,)) for shape, dtype in self.outputs)
        return tuple(
            (_empty_on_current, (shape, _strides(shape), dtype)) for shape, dtype in self.outputs
        )

    def run(self, values: Sequence[Any]) -> list[torch.Tensor] | None:
        """The outputs for contiguous tensors and numbers, computed on the current stream.

        None, with nothing done, where it does not serve: a tensor on another device or at an
        odd address, another device current, or no memory left.
        """
        record, device, index = self.record(), self.device, self.index
        if record is None or _current_device() != index:  # type: ignore[misc]
            return None
        addresses, bits = [], 0
        for value in values:
            if type(value) not in _TENSORS:
                return self._run_with_numbers(values)
            if value.device != device:
                return None
            address = value.data_ptr()
            addresses.append(address)
            bits |= address
        if bits % ALIGNMENT:
            return None
        try:
            outputs = [make(*how) for make, how in self.makers]
            for output in outputs:
                addresses.append(output.data_ptr())
            record.launch(addresses, _current_stream(index))  # type: ignore[misc]
        except torch.OutOfMemoryError:
            return None
        return outputs

    def _run_with_numbers(self, values: Sequence[Any]) -> list[torch.Tensor] | None:
        """As `run`, with each number as a tensor, which is alive until all is launched."""
        tensors = []
        for value, dtype in zip(values, self.inputs, strict=True):
            if isinstance(value, (int, float)):
                value = number_on(value, dtype, self.device)
            elif type(value) not in _TENSORS:
                return None
            tensors.append(value)
        return self.run(tensors)


def _strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of a contiguous tensor, as torch has them: empty axes count as one."""
    strides = [1]
    for extent in shape[:0:-1]:
        strides.append(strides[-1] * max(extent, 1))
    return tuple(reversed(strides[: len(shape)]))
