"""Programs on NVIDIA GPUs: the same runs, on the tensors whose addresses a CPU run takes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import torch

from tiga.backends.triton.executable import Executable, compile_program
from tiga.errors import InvalidType
from tiga.frontends.torch.dtypes import torch_dtype
from tiga.relations import Graph
from tiga.relations.snapshot import Snapshot
from tiga.runtime.cuda import capability, current_stream, on
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


def run_on_gpu(
    executable: Executable,
    topology: Snapshot,
    values: Sequence[Any],
    outputs: Sequence[torch.Tensor],
    device: torch.device,
    extents: Mapping[Space, int],
) -> None:
    """Compute the outputs from contiguous tensors and Python numbers, on the current stream."""
    tensors = tensors_on(executable, values, device)
    executable.run([topology] * len(executable.relations), tensors, outputs, extents)


def prepare_on_gpu(
    executable: Executable,
    topology: Snapshot,
    values: Sequence[Any],
    outputs: Sequence[torch.Tensor],
    device: torch.device,
    extents: Mapping[Space, int],
) -> Callable[[], None]:
    """A launch of `run_on_gpu` with memory of its own, on the stream that is current then."""
    tensors = tensors_on(executable, values, device)
    with on(device):
        record, frame = executable.bind(
            [topology] * len(executable.relations), tensors, outputs, extents
        )

    def launch() -> None:
        with on(device):
            record.play(replace(frame, stream=current_stream(device)))

    return launch


def tensors_on(
    executable: Executable, values: Sequence[Any], device: torch.device
) -> Sequence[torch.Tensor]:
    """The values, Python numbers among them as tensors; refuses tensors on other devices."""
    found = []
    for i, value in enumerate(values):
        if not isinstance(value, torch.Tensor):
            dtype = torch_dtype(executable.plan.inputs[i].type.dtype)
            value = torch.full((), value, dtype=dtype, device=device)
        elif value.device != device:
            raise InvalidType(
                f"a tensor that `edge` or `node` reads is on {value.device}, but the graph and its "
                f"fields are on {device}: move the kernel there, `kernel.to({str(device)!r})`."
            )
        found.append(value)
    return found
