"""Kernels that can be launched: compiled and loaded on a device, or interpreted."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tiga.backends.triton.compiled import compile_kernel, function, is_interpreted
from tiga.backends.triton.writer import KernelSource
from tiga.runtime.driver import driver
from tiga.runtime.functions import Function


@dataclass(frozen=True)
class DeviceKernel:
    """A compiled kernel on a device. `hidden` counts parameters that Triton adds after the
    kernel's own: pointers to scratch memory, which none of ours uses."""

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
    entry = ptx[ptx.index(f".entry {source.name}(") :]
    return entry[: entry.index(")")].count(".param ") - len(source.parameters)


@dataclass(frozen=True)
class Interpreted:
    """A kernel that Triton interprets, on tensors of the CPU."""

    launch: Callable[..., Any]


@dataclass
class Kernel:
    """A kernel with the forms loaded so far, by device and alignment of its pointers."""

    source: KernelSource
    forms: dict[tuple[Any, tuple[bool, ...]], DeviceKernel | Interpreted] = field(
        default_factory=dict
    )

    def form(
        self, device: Any, capability: int, aligned: tuple[bool, ...]
    ) -> DeviceKernel | Interpreted:
        """What runs on a device with pointers of these alignments."""
        form = self.forms.get((device, aligned))
        if form is None:
            form = self.forms[device, aligned] = self._form(device, capability, aligned)
        return form

    def _form(
        self, device: Any, capability: int, aligned: tuple[bool, ...]
    ) -> DeviceKernel | Interpreted:
        if is_interpreted():
            return Interpreted(function(self.source))
        compiled = compile_kernel(self.source, capability, aligned)
        return DeviceKernel.load(self.source, compiled, device.index)
