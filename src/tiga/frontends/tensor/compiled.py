"""Values through compiled kernels."""

from collections.abc import Sequence
from functools import partial
from time import perf_counter

import numpy as np

from tiga.frontends.tensor.planned import Plans, Run
from tiga.frontends.tensor.recipe import Recipe
from tiga.runtime.layout import row_major_copy
from tiga.tensor_compiler import TensorExecutable, compile_tensors
from tiga.trace.node import Node

PLANS: Plans[TensorExecutable] = Plans()
"""Compiled expressions by their structure."""


def run_compiled(
    roots: Sequence[Node], native: bool = False, relaxed: bool = True
) -> tuple[list[np.ndarray], Run]:
    """Values of `roots`, and how they were computed."""
    start = perf_counter()
    make = partial(compile_tensors, native=native, relaxed=relaxed)
    found, entry, hit = PLANS.of(roots, (native, relaxed), make)
    order, executable = found.order, entry.executable
    given = entry.operands(order)
    compile_ms = 0.0 if executable.is_compiled else executable.compile()
    launched = perf_counter()
    arrays = executable.run(given, [order[i].op.compute for i in found.calls])
    done = perf_counter()
    recipe = Recipe(entry.form, order, found.calls)
    how = Run(recipe, executable, hit, relaxed, compile_ms, done - launched, done - start)
    return (arrays if executable.fresh else _own(arrays, given)), how


def _own(arrays: Sequence[np.ndarray], given: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Outputs in row-major memory that neither an input nor another output shares."""
    taken = list(given)
    owned: list[np.ndarray] = []
    for array in arrays:
        shared = any(np.may_share_memory(array, other) for other in taken)
        whole = array.flags.c_contiguous and array.flags.writeable and not shared
        owned.append(array if whole else row_major_copy(array))
        taken.append(owned[-1])
    return owned
