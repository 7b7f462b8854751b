"""Values through compiled kernels."""

from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from tiga.frontends.tensor.program import program_of
from tiga.frontends.tensor.recipe import Recipe, structure
from tiga.tensor_compiler import TensorExecutable, compile_tensors
from tiga.trace.node import Node


@dataclass(frozen=True)
class Entry:
    """A compiled expression: which values in memory its inputs are, by their place in the walk."""

    executable: TensorExecutable
    inputs: tuple[int, ...]


CACHE: dict[Any, Entry] = {}
"""Compiled expressions by their structure, the oldest first."""

MOST_ENTRIES = 1024


class Run(NamedTuple):
    """How values were computed; times in seconds."""

    recipe: Recipe
    executable: TensorExecutable
    cache_hit: bool
    relaxed: bool
    compile_ms: float
    launch: float
    total: float

    def report(self) -> dict[str, Any]:
        """As `Tensor.execution` tells it."""
        return {
            "backend": self.executable.backend,
            "semantic_hash": self.executable.semantic_hash,
            "cache_hit": self.cache_hit,
            "compile_ms": self.compile_ms,
            "launch_ms": self.launch * 1e3,
            "materialize_ms": self.total * 1e3,
            "kernels": len(self.executable.kernels),
            "library_calls": self.executable.calls,
            "saved_bytes": 0,
            "relaxed_math": self.relaxed,
        }


def _entry(
    roots: Sequence[Node], key: Any, order: list[Node], native: bool, relaxed: bool
) -> Entry:
    bundle = program_of(roots)
    place = {id(node): i for i, node in enumerate(order)}
    inputs = tuple(place[id(leaf)] for leaf in bundle.leaves)
    # A call over a graph belongs to that graph, which no cache may keep alive.
    lasting = all(node.op.name != "graph_call" for node in order)
    compile_ = compile_tensors if lasting else compile_tensors.__wrapped__
    entry = Entry(compile_(bundle.program, native, relaxed), inputs)
    if lasting:
        CACHE[key] = entry
    if len(CACHE) > MOST_ENTRIES:
        del CACHE[next(iter(CACHE))]
    return entry


def run_compiled(
    roots: Sequence[Node], native: bool = False, relaxed: bool = True
) -> tuple[list[np.ndarray], Run]:
    """Values of `roots`, and how they were computed."""
    start = perf_counter()
    shape, order = structure(roots)
    key = (shape, native, relaxed)
    entry = CACHE.get(key)
    hit = entry is not None
    if entry is None:
        entry = _entry(roots, key, order, native, relaxed)
    executable = entry.executable
    given = [order[i].cell.array for i in entry.inputs]  # type: ignore[attr-defined]
    compile_ms = 0.0 if executable.is_compiled else executable.compile()
    launched = perf_counter()
    arrays = executable.run(given)
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
