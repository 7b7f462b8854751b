"""Runs on a GPU that differ from the one before in their tensors only."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from weakref import ReferenceType

import torch

from tiga.backends.triton.record import Record, is_aligned
from tiga.frontends.torch.scalars import number_on
from tiga.relations.snapshot import Snapshot

_TENSORS = (torch.Tensor, torch.nn.Parameter)
_empty = torch.empty
# What torch.cuda's own look-ups ask once they know that CUDA is up; it is, where tensors lie there.
_current_device = getattr(torch._C, "_cuda_getDevice", None)
_current_stream = getattr(torch._C, "_cuda_getCurrentRawStream", None)


@dataclass(frozen=True)
class Lane:
    """A program on a topology with everything looked up. `inputs` are the dtypes of its inputs,
    `outputs` shapes and dtypes; `record` launches kernels only. A lane keeps neither the topology
    nor the record, which holds its arrays on the device, alive."""

    topology: "ReferenceType[Snapshot]"
    device: torch.device
    inputs: tuple[torch.dtype, ...]
    outputs: tuple[tuple[tuple[int, ...], torch.dtype], ...]
    record: "ReferenceType[Record]"

    def run(self, values: Sequence[Any]) -> list[torch.Tensor] | None:
        """The outputs for contiguous tensors and numbers, computed on the current stream.

        None, with nothing done, where the lane does not lead: a tensor on another device or at an
        odd address, another device current, or no memory left.
        """
        record, device = self.record(), self.device
        if record is None:
            return None
        addresses, numbers = [], []
        for position, value in enumerate(values):
            if type(value) not in _TENSORS:
                if not isinstance(value, (int, float)):
                    return None
                value = number_on(value, self.inputs[position], device)
                numbers.append(value)
            elif value.device != device:
                return None
            addresses.append(value.data_ptr())
        index = device.index
        if not is_aligned(addresses) or _current_device() != index:  # type: ignore[misc]
            return None
        try:
            outputs = [_empty(shape, dtype=dtype, device=device) for shape, dtype in self.outputs]
            addresses += [output.data_ptr() for output in outputs]
            record.launch(addresses, _current_stream(index))  # type: ignore[misc]
        except torch.OutOfMemoryError:
            return None
        return outputs
