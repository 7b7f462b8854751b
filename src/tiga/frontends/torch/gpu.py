"""Programs on NVIDIA GPUs: the same runs, on the tensors whose addresses a CPU run takes."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import torch

from tiga.backends.triton.executable import Executable, compile_program
from tiga.errors import InvalidType
from tiga.frontends.torch.dtypes import torch_dtype
from tiga.relations import Graph
from tiga.trace.program import Program
from tiga.types import Space

_CPU = torch.device("cpu")


def device_of(graph: Graph) -> torch.device:
    """Where a graph's index arrays lie, and with them the fields and results of a call."""
    template = graph.input.template
    return _CPU if template is None else template.device


def on_gpu(graph: Graph) -> bool:
    """Whether calls on a graph run on a GPU."""
    return device_of(graph).type == "cuda"


@lru_cache(maxsize=1024)
def gpu_executable(program: Program) -> Executable:
    """The program compiled for GPUs, once."""
    return compile_program(program)


def run_on_gpu(
    program: Program,
    graph: Graph,
    values: Sequence[Any],
    outputs: Sequence[torch.Tensor],
    extents: Mapping[Space, int],
) -> None:
    """Compute the outputs from contiguous tensors and Python numbers, on the current stream."""
    device = device_of(graph)
    tensors = [
        value
        if isinstance(value, torch.Tensor)
        else torch.full((), value, dtype=torch_dtype(node.type.dtype), device=device)
        for value, node in zip(values, program.inputs, strict=True)
    ]
    strays = {t.device for t in tensors} - {device}
    if strays:
        raise InvalidType(
            f"a tensor that `edge` or `node` reads is on {strays.pop()}, but the graph and its "
            f"fields are on {device}: move the kernel there, `kernel.to({str(device)!r})`."
        )
    gpu_executable(program).run([graph] * len(program.relations), tensors, outputs, extents)
