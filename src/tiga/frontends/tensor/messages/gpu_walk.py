"""Programs over graphs on a GPU: the same executables as for torch tensors, on native memory."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from tiga.backends.triton.dense.executable import CAPABILITY
from tiga.backends.triton.dense.run import Room
from tiga.backends.triton.executable import Executable, compile_program
from tiga.backends.triton.report import text
from tiga.errors import UnsupportedByBackend
from tiga.runtime.device_array import DeviceArray
from tiga.trace.program import Program
from tiga.types import Space, Type


@lru_cache(maxsize=256)
def gpu_executable(program: Program) -> Executable:
    """The program for GPUs, once."""
    return compile_program(program)


def walk_code(executable: Executable, stage: str) -> str:
    """The text of the kernels of a program over a graph at a stage, for sm_90."""
    return text(executable, stage, CAPABILITY)


def run_walk(
    executable: Executable, topology: Any, arrays: Sequence[DeviceArray], types: Sequence[Type],
    extents: dict[Space, int], room: Room,
) -> list[DeviceArray]:  # fmt: skip
    """All outputs of a program on a graph's snapshot.

    Raises:
        UnsupportedByBackend: the graph is in a file.
    """
    if not hasattr(topology, "keep"):
        raise UnsupportedByBackend("a graph in a file is not walked on a GPU; load it first.")
    outputs = [room.array(type_) for type_ in types]
    relations = (topology,) * len(executable.relations)
    executable.run(relations, arrays, outputs, extents)
    return outputs
