"""Programs on NVIDIA GPUs: the same runs, on the tensors whose addresses a CPU run takes."""

from collections.abc import Callable, Mapping, Sequence
from ctypes import c_void_p
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from weakref import ref

import torch

from tiga.backends.llvm.sorts import SORTER
from tiga.backends.triton.executable import Executable, compile_program
from tiga.backends.triton.record import Frame, Record, is_aligned
from tiga.errors import InvalidType, OutOfBudget
from tiga.frontends.torch.dtypes import torch_dtype
from tiga.frontends.torch.gpu_replay import Replay
from tiga.frontends.torch.scalars import number_on
from tiga.paging.span import PagePlan
from tiga.relations.snapshot import Snapshot
from tiga.relations.sorting import offer
from tiga.runtime.cuda import current_stream, on
from tiga.runtime.tiers import size_text
from tiga.trace.program import Program
from tiga.types import Space


@lru_cache(maxsize=1024)
def gpu_executable(program: Program) -> Executable:
    """The program compiled for GPUs, once. Graphs that come from the host are sorted by compiled
    kernels from here on."""
    offer(SORTER)
    return compile_program(program)


class OutOfDeviceMemory(OutOfBudget, torch.OutOfMemoryError):
    """A GPU has not enough memory left for a run; what it holds of the run is free again."""


@dataclass(eq=False)
class GpuRuns:
    """The runs of one program on GPUs; `pages` tells of the last one over a graph in a file."""

    executable: Executable
    pages: PagePlan | None = None

    @property
    def has_run(self) -> bool:
        """Whether there was any."""
        return self.executable.has_run or self.pages is not None

    def run(
        self,
        topology: Snapshot,
        values: Sequence[Any],
        outputs: Sequence[torch.Tensor],
        device: torch.device,
        extents: Mapping[Space, int],
    ) -> Replay | None:
        """Compute the outputs from contiguous tensors and Python numbers, on the device's current
        stream. What it returns leads other tensors the same way, where that takes launches only.

        Raises:
            InvalidType: a tensor lies on another device.
        """
        if not outputs:  # a derivative that is zero throughout
            return None
        with on(device):
            record, frame = self._bound(topology, values, outputs, extents, device)
            record.play(frame)
        aligned = is_aligned(frame.addresses) if device.type == "cuda" else False
        if not aligned or record.launches is None:
            return None
        shapes = tuple((tuple(o.shape), o.dtype) for o in outputs)
        dtypes = tuple(torch_dtype(n.type.dtype) for n in self.executable.plan.inputs)
        return Replay(ref(topology), device, dtypes, shapes, ref(record))

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
            record, frame = self._bound(topology, values, outputs, extents, device)

        def launch() -> None:
            with on(device):
                stream = c_void_p(current_stream(device))
                record.play(Frame(frame.given, frame.arena, frame.addresses, stream))

        return launch

    def _bound(
        self,
        topology: Snapshot,
        values: Sequence[Any],
        outputs: Sequence[torch.Tensor],
        extents: Mapping[Space, int],
        device: torch.device,
    ) -> tuple[Record, Frame]:
        topologies = [topology] * len(self.executable.relations)
        tensors = tensors_on(self.executable, values, device)
        return self.executable.bind(topologies, tensors, outputs, extents)


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
