"""Programs on arrays: run on the GPU where operands are, by compiled code, or op by op by numpy."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tiga import knobs
from tiga.frontends.tensor.lazy import COMPILE_FROM
from tiga.runtime.device_array import DeviceArray
from tiga.tensor_compiler import call_library, compile_tensors
from tiga.trace.program import Program


class Ran(NamedTuple):
    """The outputs of a program, what computed them, and milliseconds spent on compiling."""

    outputs: list[Any]
    backend: str
    compile_ms: float


def run_program(program: Program, arrays: Sequence[Any]) -> Ran:
    """The outputs of a program: on a GPU where operands are on one, else by compiled code or numpy
    as the backend setting and its size say."""
    there = next((a for a in arrays if isinstance(a, DeviceArray)), None)
    if there is not None:
        return _run_on_gpu(program, arrays, there.machine.index)
    mode = knobs.read("tensor_backend")
    large = max((node.type.size for node in program.order), default=0) >= COMPILE_FROM
    if mode == "native" or (mode == "auto" and large):
        executable = compile_tensors(program, mode == "native")
        spent = 0.0 if executable.is_compiled else executable.compile()
        return Ran(executable.run(arrays), executable.backend, spent)
    return Ran(interpreted(program, arrays), "python-oracle", 0.0)


def interpreted(program: Program, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The outputs of a program, op by op."""
    known = dict(zip(program.inputs, arrays, strict=True))
    for node in program.order:
        if node not in known:
            known[node] = call_library(node, [known[child] for child in node.inputs])
    return [known[node] for node in program.outputs]


def _run_on_gpu(program: Program, arrays: Sequence[Any], index: int) -> Ran:
    from tiga.backends.triton.dense.executable import compile_dense
    from tiga.frontends.tensor.gpu_arrays import on_gpu, room

    executable, where = compile_dense(program), room(index)
    here = where.machine
    spent = 0.0 if executable.is_compiled(here) else executable.compile(here)
    found = executable.run([on_gpu(array, index) for array in arrays], where)
    return Ran(list(found), executable.backend, spent)
