"""Kernels that can be launched: compiled and loaded on a device, or interpreted."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from tiga.backends.triton.compiled import compile_kernel, function, is_interpreted
from tiga.backends.triton.writer import KernelSource
from tiga.runtime.driver import driver
from tiga.runtime.functions import Function


@dataclass(frozen=True)
class DeviceKernel:
    """A compiled kernel on a device. `hidden` counts parameters that Triton adds after the
    kernel's own: pointers to scratch memory, which none of ours uses. The name in profiles is that
    of `compiled`, which kernels of equal text share."""

    source: KernelSource
    compiled: Any
    function: Function
    hidden: int

    @staticmethod
    def load(source: KernelSource, compiled: Any, index: int) -> "DeviceKernel":
        """What `compile_kernel` made of a text, on a device."""
        facts = compiled.metadata
        assert not facts.global_scratch_size, f"{facts.name} wants scratch memory"
        threads = facts.num_warps * facts.target.warp_size
        binary = compiled.asm["cubin"]
        made = Function(driver(index), binary, facts.name, threads, facts.shared)
        return DeviceKernel(source, compiled, made, hidden_parameters(compiled, source))


def hidden_parameters(compiled: Any, source: KernelSource) -> int:
    """How many parameters the machine code has beside the text's own."""
    ptx: str = compiled.asm["ptx"]
    entry = ptx[ptx.index(f".entry {compiled.metadata.name}(") :]
    return entry[: entry.index(")")].count(".param ") - len(source.parameters)


@dataclass(frozen=True)
class Interpreted:
    """A kernel that Triton interprets, on memory of the CPU."""

    source: KernelSource

    def run(self, grid: tuple[int, int, int], arguments: Sequence[float]) -> None:
        """Run it over a grid, with an address or a number for each parameter, in order."""
        types = [parameter.type for parameter in self.source.parameters]
        with np.errstate(all="ignore"):
            function(self.source)[grid](*map(interpreted, types, arguments))


def interpreted(type_: str, argument: float) -> Any:
    """An argument as the interpreter takes it, with exactly the type of the signature."""
    import triton.language as tl
    from triton.runtime.interpreter import TensorHandle

    if type_.startswith("*"):
        kind = tl.pointer_type(tl.str_to_ty(type_[1:], None))
        return tl.tensor(TensorHandle(np.array([argument], np.uint64), kind), kind)
    kind = tl.str_to_ty(type_, None)
    numpy = {"fp32": np.float32, "fp64": np.float64, "i32": np.int32, "i64": np.int64}[type_]
    return tl.tensor(TensorHandle(np.array([argument], numpy), kind), kind)


@dataclass(eq=False)
class Kernel:
    """A kernel with the forms loaded so far, by device and alignment of its pointers.

    `compiled` is what was compiled ahead, by compute capability and alignment, until it is loaded.
    """

    source: KernelSource
    compiled: dict[tuple[int, tuple[bool, ...]], Any] = field(default_factory=dict)
    forms: dict[tuple[int, tuple[bool, ...]], DeviceKernel | Interpreted] = field(
        default_factory=dict
    )

    @cached_property
    def keys(self) -> frozenset[Hashable]:
        """What its parameters stand for."""
        return frozenset(parameter.key for parameter in self.source.parameters)

    @cached_property
    def fixed(self) -> tuple[tuple[int, str], ...]:
        """The names of what a graph fixes, with their positions among the parameters."""
        keys = enumerate(p.key for p in self.source.parameters)
        return tuple((position, key) for position, key in keys if isinstance(key, str))

    @cached_property
    def given(self) -> tuple[tuple[int, Any], ...]:
        """The keys of arrays that a run gives, with their positions."""
        keys = enumerate(p.key for p in self.source.parameters)
        return tuple((position, key) for position, key in keys if not isinstance(key, str))

    @cached_property
    def adds(self) -> bool:
        """Whether it leaves pieces of totals."""
        return "piece_base" in self.keys

    def form(
        self, index: int, capability: int, aligned: tuple[bool, ...]
    ) -> DeviceKernel | Interpreted:
        """What runs on a device, by its number, with pointers of these alignments."""
        form = self.forms.get((index, aligned))
        if form is None:
            form = self.forms[index, aligned] = self._form(index, capability, aligned)
        return form

    def is_compiled(self, capability: int, aligned: tuple[bool, ...]) -> bool:
        """Whether nothing is left but to load it, on one device at least."""
        key = capability, aligned
        return key in self.compiled or any(known[1] == aligned for known in self.forms)

    def _form(
        self, index: int, capability: int, aligned: tuple[bool, ...]
    ) -> DeviceKernel | Interpreted:
        if is_interpreted():
            return Interpreted(self.source)
        compiled = self.compiled.pop((capability, aligned), None)
        if compiled is None:
            compiled = compile_kernel(self.source, capability, aligned)
        return DeviceKernel.load(self.source, compiled, index)
