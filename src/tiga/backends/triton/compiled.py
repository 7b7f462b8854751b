"""From the text of a kernel to something that runs: compiled for a GPU, or interpreted."""

import linecache
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import count
from typing import Any
from weakref import WeakValueDictionary

from tiga.backends.triton.layout import WARP
from tiga.backends.triton.shared_memory import shared_bytes
from tiga.backends.triton.writer import KernelSource
from tiga.errors import UnsupportedByBackend

ALIGNMENT = 16
"""Bytes of the widest access: pointers that are multiples of it are marked."""

_serial = count()

_in_use: "WeakValueDictionary[Hashable, Any]" = WeakValueDictionary()
"""Compiled kernels by all that they are made of, as long as something holds them."""


def _triton() -> Any:
    try:
        import triton
    except ImportError as error:
        raise UnsupportedByBackend(
            "programs on NVIDIA GPUs need Triton 3.6 or newer, which is not installed: "
            "pip install 'tiga-lang[cuda]'"
        ) from error
    return triton


def is_interpreted() -> bool:
    """Whether Triton interprets kernels on the CPU (TRITON_INTERPRET=1)."""
    return bool(_triton().knobs.runtime.interpret)


@lru_cache(maxsize=1024)
def function(source: KernelSource) -> Any:
    """The Triton function of a kernel; its text stays where tracebacks find it."""
    triton = _triton()
    if is_interpreted():
        from tiga.backends.triton import math_interpreted as math
    else:
        from tiga.backends.triton import math_compiled as math  # type: ignore[no-redef]
    from tiga.backends.triton import math_segmented

    file = f"<tiga kernel {next(_serial)}: {source.name}>"
    linecache.cache[file] = (len(source.text), None, source.text.splitlines(True), file)
    known = {**vars(math_segmented), **vars(math)}
    names = {name: value for name, value in known.items() if not name.startswith("_")}
    names |= {"triton": triton, "tl": triton.language, "__name__": "tiga.backends.triton.kernels"}
    exec(compile(source.text, file, "exec"), names)
    return names[source.name]


def compile_kernel(source: KernelSource, capability: int, aligned: Sequence[bool]) -> Any:
    """The kernel for a compute capability (90 for sm_90); needs no GPU.

    `aligned` says per parameter whether its pointer is a multiple of 16 bytes. Kernels of the same
    text but for their names, as programs of a model have, are one while it is in use, under the
    name of the first.
    """
    key = (without_name(source), capability, tuple(aligned))
    found = _in_use.get(key)
    if found is None:
        found = _in_use.setdefault(key, _compiled_to_fit(source, capability, aligned))
    return found


def without_name(source: KernelSource) -> Hashable:
    """All that machine code is made of, but for the name that it has."""
    text = source.text.replace(f"def {source.name}(", "def kernel(", 1)
    return text, tuple((p.name, p.type) for p in source.parameters), source.tile


def _compiled_to_fit(source: KernelSource, capability: int, aligned: Sequence[bool]) -> Any:
    most = SHARED_KIB.get(capability, LEAST_SHARED_KIB) * 1024
    asked = _Asked(source, capability, aligned)
    if asked.may_need_much and (asked.shared_bytes() or 0) > most:
        # Loads that are not started ahead need no buffers.
        return asked.compile(num_stages=1)
    made = asked.compile()
    return made if made.metadata.shared <= most else asked.compile(num_stages=1)


@dataclass(frozen=True)
class _Asked:
    """What Triton is asked to compile."""

    source: KernelSource
    capability: int
    aligned: Sequence[bool]

    @property
    def may_need_much(self) -> bool:
        """Whether values are wide, and Triton chooses how many loads start ahead: only then does it
        pay to find out beforehand what the buffers take."""
        return self.source.tile.warps >= MANY_WARPS and not self.source.tile.stages

    def compile(self, **changes: int) -> Any:
        """The compiled kernel."""
        return _triton().compile(
            self._ast(), target=self._target(), options=self._options() | changes
        )

    def shared_bytes(self) -> int | None:
        """The shared memory that it takes, without compiling it; None if that is not known."""
        return shared_bytes(self._ast(), self._target(), self._options())

    def _ast(self) -> Any:
        signature = {p.name: p.type for p in self.source.parameters}
        places = [i for i, is_aligned in enumerate(self.aligned) if is_aligned]
        attributes = {(i,): [["tt.divisibility", ALIGNMENT]] for i in places}
        return _triton().compiler.ASTSource(function(self.source), signature, {}, attributes)

    def _target(self) -> Any:
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", self.capability, WARP)

    def _options(self) -> dict[str, Any]:
        tile = self.source.tile
        # Without fusion of products and sums, what is computed again has the same bits everywhere.
        options = {"num_warps": tile.warps, "enable_fp_fusion": False}
        if tile.stages:
            options["num_stages"] = tile.stages
        if tile.registers:
            options["maxnreg"] = tile.registers
        return options


MANY_WARPS = 8
"""Warps of kernels that may need more shared memory than there is: those of wide products."""

SHARED_KIB = {80: 163, 87: 163, 90: 227, 100: 227, 103: 227}
"""Shared memory that a program may take, by compute capability."""

LEAST_SHARED_KIB = 99
"""The same of all others since Ampere."""
