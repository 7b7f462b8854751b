"""Values through compiled kernels."""

from collections.abc import Sequence
from time import perf_counter
from typing import Any

import numpy as np

from tiga import knobs
from tiga.frontends.tensor.program import program_of
from tiga.frontends.tensor.residency import scratch
from tiga.tensor_compiler import compile_tensors
from tiga.trace.node import Node


def run_compiled(roots: Sequence[Node], native: bool = False) -> tuple[list[np.ndarray], dict]:
    """Values of `roots`, and how they were computed."""
    start = perf_counter()
    bundle = program_of(roots)
    before = compile_tensors.cache_info().hits
    relaxed = knobs.current().relaxed_math
    executable = compile_tensors(bundle.program, native, relaxed)
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
        "relaxed_math": relaxed,
    }
    return _own(arrays, bundle.arrays), execution


def _own(arrays: Sequence[np.ndarray], given: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Outputs in row-major memory that neither an input nor another output shares."""
    taken = list(given)
    owned: list[np.ndarray] = []
    for array in arrays:
        shared = any(np.may_share_memory(array, other) for other in taken)
        whole = array.flags.c_contiguous and array.flags.writeable and not shared
        owned.append(array if whole else np.array(array, order="C"))
        taken.append(owned[-1])
    return owned
