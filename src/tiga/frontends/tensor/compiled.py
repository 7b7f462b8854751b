"""Values through compiled kernels."""

from collections.abc import Sequence
from time import perf_counter
from typing import Any

import numpy as np

from tiga.frontends.tensor.program import program_of
from tiga.frontends.tensor.residency import scratch
from tiga.tensor_compiler import compile_tensors
from tiga.trace.node import Node


def run_compiled(roots: Sequence[Node], native: bool = False) -> tuple[list[np.ndarray], dict]:
    """Values of `roots`, and how they were computed."""
    start = perf_counter()
    bundle = program_of(roots)
    before = compile_tensors.cache_info().hits
    executable = compile_tensors(bundle.program, native)
    hit = compile_tensors.cache_info().hits > before
    compile_ms = executable.compile()
    launched = perf_counter()
    with scratch(executable):
        arrays = executable.run(bundle.arrays)
    done = perf_counter()
    execution: dict[str, Any] = {
        "backend": executable.backend,
        "semantic_hash": executable.semantic_hash,
        "cache_hit": hit,
        "compile_ms": compile_ms,
        "launch_ms": (done - launched) * 1e3,
        "materialize_ms": (done - start) * 1e3,
        "kernels": len(executable.kernels),
        "library_calls": executable.calls,
        "saved_bytes": 0,
        "relaxed_math": True,
    }
    given = set(map(id, bundle.arrays))
    return [_own(array, given) for array in arrays], execution


def _own(array: np.ndarray, given: set[int]) -> np.ndarray:
    """An output in row-major memory that nothing else shares."""
    base = array if array.base is None else array.base
    shared = id(base) in given or id(array) in given or array.base is not None
    return np.array(array, order="C") if shared or not array.flags.c_contiguous else array
