"""Values through compiled kernels."""

from collections.abc import Sequence
from time import perf_counter
from typing import Any

import numpy as np

from tiga.frontends.tensor.planned import (
    Entry,
    Run,
    anywhere,
    bundle_of,
    graph_calls,
    keep,
    places_of,
)
from tiga.frontends.tensor.recipe import Recipe, structure
from tiga.tensor_compiler import TensorExecutable, compile_tensors
from tiga.trace.node import Node

CACHE: dict[Any, Entry[TensorExecutable]] = {}
"""Compiled expressions by their structure, the oldest first."""


def _entry(
    roots: Sequence[Node], key: Any, order: list[Node], calls: Sequence[int], native: bool,
    relaxed: bool,
) -> Entry[TensorExecutable]:  # fmt: skip
    bundle = bundle_of(roots, order, calls)
    executable = compile_tensors(bundle.program, native, relaxed)
    entry = Entry(executable, places_of(bundle, order))
    keep(CACHE, key, entry)
    return entry


def run_compiled(
    roots: Sequence[Node], native: bool = False, relaxed: bool = True
) -> tuple[list[np.ndarray], Run]:
    """Values of `roots`, and how they were computed."""
    start = perf_counter()
    shape, order = structure(roots)
    calls = graph_calls(roots, order)
    key = (anywhere(shape) if calls else shape, native, relaxed)
    entry = CACHE.get(key)
    hit = entry is not None
    if entry is None:
        entry = _entry(roots, key, order, calls, native, relaxed)
    executable = entry.executable
    given = [order[i].cell.array for i in entry.inputs]  # type: ignore[attr-defined]
    compile_ms = 0.0 if executable.is_compiled else executable.compile()
    launched = perf_counter()
    arrays = executable.run(given, [order[i].op.compute for i in calls])
    done = perf_counter()
    recipe = Recipe(len(roots), shape, order)
    how = Run(recipe, executable, hit, relaxed, compile_ms, done - launched, done - start)
    return (arrays if executable.fresh else _own(arrays, given)), how


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
