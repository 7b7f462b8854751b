"""Programs over graphs on a GPU: the same executables as for torch tensors, on native memory.

Work lists of graphs are built by torch for now, so these calls need it.
"""

import ctypes
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from tiga.backends.triton.dense_run import Room
from tiga.backends.triton.executable import Executable, compile_program
from tiga.backends.triton.machine import Interpreter
from tiga.errors import UnsupportedByBackend
from tiga.frontends.dlpack import torch_of
from tiga.runtime.device_array import DeviceArray
from tiga.trace.program import Program
from tiga.types import Space, Type


@lru_cache(maxsize=256)
def gpu_executable(program: Program) -> Executable:
    """The program for GPUs, once."""
    return compile_program(program)


def run_walk(
    program: Program, topology: Any, arrays: Sequence[DeviceArray], types: Sequence[Type],
    extents: dict[Space, int], room: Room,
) -> list[DeviceArray]:  # fmt: skip
    """All outputs of a program on a graph's snapshot.

    Raises:
        UnsupportedByBackend: torch is not installed, or the graph is in a file.
    """
    try:
        import torch
    except ImportError:
        raise UnsupportedByBackend(
            "message passing on a GPU needs torch, which builds the work lists of graphs: "
            "pip install 'tiga-lang[cuda]', or use tensors on the CPU."
        ) from None
    if not hasattr(topology, "keep"):
        raise UnsupportedByBackend("a graph in a file is not walked on a GPU; load it first.")
    outputs = [room.array(type_) for type_ in types]
    inputs, results = ([_as_torch(array) for array in group] for group in (arrays, outputs))
    relations = (topology,) * len(program.relations)
    executable = gpu_executable(program)
    if isinstance(room.machine, Interpreter):
        executable.run(relations, inputs, results, extents)
        return outputs
    # Native tensors are computed on the default stream.
    with torch.cuda.stream(torch.cuda.default_stream(room.machine.index)):
        executable.run(relations, inputs, results, extents)
    return outputs


def _as_torch(array: DeviceArray) -> Any:
    """A torch tensor of the same memory; on the CPU where Triton interprets."""
    if not isinstance(array.machine, Interpreter):
        return torch_of(array)
    block: Any = (ctypes.c_ubyte * max(array.nbytes, 1)).from_address(array.address)
    return torch_of(np.ndarray(array.shape, array.dtype, block))
