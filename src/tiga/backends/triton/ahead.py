"""Compile the kernels of a plan side by side, before the first of them is loaded.

Triton writes its IR under Python's lock; LLVM and ptxas, which take most of the time, run without.
"""

from collections.abc import Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tiga.backends.triton.compiled import compile_kernel, is_interpreted, without_name
from tiga.backends.triton.loaded import Kernel
from tiga.runtime.parallel import available_cores

MOST_THREADS = 8
"""More wait for Python's lock."""

Wanted = tuple[Kernel, tuple[bool, ...]]
"""A kernel, and which of its pointers are aligned."""


def compile_ahead(wanted: Sequence[Wanted], capability: int) -> None:
    """Compile kernels for a compute capability, so that `Kernel.form` has only to load them.

    Kernels that differ in nothing but their names are compiled once, under one of these.
    """
    if is_interpreted():
        return
    alike: dict[Hashable, list[Wanted]] = {}
    for kernel, aligned in wanted:
        if not kernel.is_compiled(capability, aligned):
            key = without_name(kernel.source), aligned
            alike.setdefault(key, []).append((kernel, aligned))
    groups = sorted(alike.values(), key=_length, reverse=True)

    def compiled(group: Sequence[Wanted]) -> Any:
        kernel, aligned = group[0]
        return compile_kernel(kernel.source, capability, aligned)

    for group, made in zip(groups, _side_by_side(compiled, groups), strict=True):
        for kernel, aligned in group:
            kernel.compiled[capability, aligned] = made


def _side_by_side(compiled: Any, groups: Sequence[Sequence[Wanted]]) -> list[Any]:
    threads = min(len(groups), available_cores(), MOST_THREADS)
    if threads < 2:
        return [compiled(group) for group in groups]
    with ThreadPoolExecutor(threads, thread_name_prefix="tiga-compile") as pool:
        return list(pool.map(compiled, groups))


def _length(group: Sequence[Wanted]) -> int:
    """About how long a kernel takes to compile: the longest go first."""
    return len(group[0][0].source.text)
