"""Programs on NVIDIA GPUs: the same runs, on the tensors whose addresses a CPU run takes."""

from collections.abc import Callable, Mapping, Sequence
from ctypes import c_void_p
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any
from weakref import ref

import torch

from tiga.backends.triton.executable import Executable, compile_program
from tiga.backends.triton.record import Frame, Record, is_aligned
from tiga.errors import InvalidType, OutOfBudget
from tiga.frontends.torch.dtypes import torch_dtype
from tiga.relations import Graph
from tiga.relations.snapshot import Snapshot
from tiga.runtime.cuda import capability, current_stream, on
from tiga.runtime.tiers import size_text
from tiga.trace.program import Program
from tiga.types import Space

_CPU = torch.device("cpu")


def device_of(graph: Graph) -> torch.device:
    """Where a graph's index arrays lie, and with them the fields and results of a call."""
    template = graph.input.template
    return _CPU if template is None else template.device


def on_gpu(device: torch.device) -> bool:
    """Whether calls on graphs of this device run on a GPU."""
    return device.type == "cuda"


def gpu_target() -> int:
    """The compute capability to show code for: this machine's, 90 (for sm_90) without a GPU."""
    if not torch.cuda.is_available():
        return 90
    return capability(torch.device("cuda", torch.cuda.current_device()))


@lru_cache(maxsize=1024)
def gpu_executable(program: Program) -> Executable:
    """The program compiled for GPUs, once."""
    return compile_program(program)


class OutOfDeviceMemory(OutOfBudget, torch.OutOfMemoryError):
    """A GPU has not enough memory left for a run; what it holds of the run is free again."""


@dataclass(eq=False)
class GpuRuns:
    """The runs of one program on GPUs.

    `last` is the record of the last run with aligned tensors, and what it serves: the topology
    (held weakly), the device and the extents that no relation fixes.
    """

    executable: Executable
    last: tuple[Any, torch.device, Mapping[Space, int], Record] | None = None

    def run(
        self,
        topology: Snapshot,
        values: Sequence[Any],
        outputs: Sequence[torch.Tensor],
        device: torch.device,
        extents: Mapping[Space, int],
    ) -> None:
        """Compute the outputs from contiguous tensors and Python numbers, on the device's current
        stream.

        Raises:
            InvalidType: a tensor lies on another device.
        """
        with on(device):
            record, frame = self._bound(topology, values, outputs, device, extents)
            record.play(frame)

    def out_of_memory(
        self, topology: Snapshot, device: torch.device, outputs: int
    ) -> OutOfDeviceMemory:
        """The error for a run whose outputs take so many bytes, which the device has not."""
        records = self.executable.by_topology.get(topology) or {}
        scratch = max((record.nbytes for record in records.values()), default=0)
        known = f"{size_text(scratch)} of scratch" if records else "its scratch and work list"
        free, total = torch.cuda.mem_get_info(device) if device.type == "cuda" else (0, 0)
        return OutOfDeviceMemory(
            f"{device} is out of memory: the run needs {size_text(outputs)} for its outputs and "
            f"{known} beside its inputs; {size_text(free)} of {size_text(total)} are free, and "
            f"torch holds {size_text(torch.cuda.memory_reserved(device))}. Nothing was changed: "
            f"free tensors, or run on a part of the graph."
        )

    def prepare(
        self,
        topology: Snapshot,
        values: Sequence[Any],
        outputs: Sequence[torch.Tensor],
        device: torch.device,
        extents: Mapping[Space, int],
    ) -> Callable[[], None]:
        """A launch of `run` with memory of its own, on the stream that is current then."""
        with on(device):
            record, frame = self._bound(topology, values, outputs, device, extents)

        def launch() -> None:
            with on(device):
                record.play(replace(frame, stream=c_void_p(current_stream(device))))

        return launch

    def _bound(
        self,
        topology: Snapshot,
        values: Sequence[Any],
        outputs: Sequence[torch.Tensor],
        device: torch.device,
        extents: Mapping[Space, int],
    ) -> tuple[Record, Frame]:
        given = (*tensors_on(self.executable, values, device), *outputs)
        last = self.last
        if last is None or last[0]() is not topology or last[1:3] != (device, extents):
            return self._first(topology, given, device, extents)
        addresses = [tensor.data_ptr() for tensor in given]
        if not is_aligned(addresses):
            return self._first(topology, given, device, extents)
        return last[3], last[3].bind(given, addresses, current_stream(device))

    def _first(
        self,
        topology: Snapshot,
        given: Sequence[torch.Tensor],
        device: torch.device,
        extents: Mapping[Space, int],
    ) -> tuple[Record, Frame]:
        executable = self.executable
        count = len(executable.plan.inputs)
        topologies = [topology] * len(executable.relations)
        record, frame = executable.bind(topologies, given[:count], given[count:], extents)
        if device.type == "cuda" and is_aligned(frame.addresses):
            self.last = (ref(topology), device, extents, record)
        return record, frame


def tensors_on(
    executable: Executable, values: Sequence[Any], device: torch.device
) -> Sequence[torch.Tensor]:
    """The values, Python numbers among them as tensors; refuses tensors on other devices."""
    found = []
    for i, value in enumerate(values):
        if not isinstance(value, torch.Tensor):
            dtype = executable.plan.inputs[i].type.dtype
            value = number_on(value, torch_dtype(dtype), device)
        elif value.device != device:
            raise InvalidType(
                f"a tensor that `edge` or `node` reads is on {value.device}, but the graph and its "
                f"fields are on {device}: move the kernel there, `kernel.to({str(device)!r})`."
            )
        found.append(value)
    return found


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
def _kept_float(digits: str, dtype: torch.dtype, device: torch.device, stream: int) -> torch.Tensor:
    # By digits: -0.0 is not 0.0, and NaN is itself.
    return torch.full((), float.fromhex(digits), dtype=dtype, device=device)


@lru_cache(maxsize=1024)
def _kept_int(value: int, dtype: torch.dtype, device: torch.device, stream: int) -> torch.Tensor:
    return torch.full((), value, dtype=dtype, device=device)
