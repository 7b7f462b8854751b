"""The machine that kernels of whole tensors run on: a GPU, or Triton's interpreter on the CPU.

Both have the same memory, copies and launches; addresses are plain integers. The interpreted one
is for tests and for looking at what kernels do, not for speed.
"""

import ctypes
from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

import numpy as np

from tiga.backends.triton.compiled import is_interpreted
from tiga.backends.triton.device import Device, Number, slot_of
from tiga.backends.triton.loaded import Interpreted
from tiga.backends.triton.writer import KernelSource
from tiga.runtime.driver import StreamEvent
from tiga.runtime.functions import Slots, launcher
from tiga.runtime.queue import READY, Event

if TYPE_CHECKING:
    from tiga.backends.triton.native import NativePlatform

Arguments = Sequence[Number | None]
"""A number for each parameter of a kernel, None where a launch gives an address."""

Launch = Callable[[Sequence[int]], None]
"""Run a kernel with these addresses, in the order of the parameters that had None."""


class Gpu(Device):
    """A GPU of NVIDIA's."""

    @cached_property
    def platform(self) -> "NativePlatform":
        """What programs over graphs need of it."""
        return _platform(self)

    def event(self) -> StreamEvent:
        """When what was given to it so far is done."""
        return StreamEvent(self.driver, self.stream)

    def bind(
        self, source: KernelSource, grid: tuple[int, int, int], arguments: Arguments
    ) -> Launch:
        """A launch of a kernel over a grid; compiles and loads it if need be."""
        kernel = self.kernel(source)
        types = [p.type for p in source.parameters]
        varying = [i for i, argument in enumerate(arguments) if argument is None]
        fixed = [i for i, argument in enumerate(arguments) if argument is not None]
        numbers = [slot_of(types[i], arguments[i]) for i in fixed]  # type: ignore[arg-type]
        slots = Slots(len(varying), [*numbers, *(0,) * kernel.hidden])
        order = {parameter: slot for slot, parameter in enumerate([*varying, *fixed])}
        hidden = range(len(order), len(order) + kernel.hidden)
        table = slots.table([*map(order.__getitem__, sorted(order)), *hidden])
        run = launcher(kernel.function, grid, slots, table)

        def launch(addresses: Sequence[int]) -> None:
            stream = ctypes.c_void_p(self.stream)
            with slots.lock:
                slots.fill(addresses)
                run(stream)

        return launch

    def lead(self, stream: int) -> None:
        """Keep a stream's later work until what was given to the current one is done."""
        event = self.record_event()
        self.driver.wait_event(stream, event)
        self.driver.close_event(event)


class Interpreter:
    """The CPU in the place of a GPU: memory is the host's, and Triton interprets kernels."""

    capability = 0

    stream = 0

    def __init__(self, index: int = 0) -> None:
        self.index = index
        self._blocks: dict[int, np.ndarray] = {}

    @cached_property
    def platform(self) -> "NativePlatform":
        """What programs over graphs need of it."""
        return _platform(self)

    def allocate(self, nbytes: int) -> int:
        block = np.empty(max(nbytes, 1) + _ALIGNMENT, np.uint8)
        address = -(-block.ctypes.data // _ALIGNMENT) * _ALIGNMENT
        self._blocks[address] = block
        return address

    def free(self, address: int) -> None:
        del self._blocks[address]

    allocate_pinned, free_pinned = allocate, free

    def copy_in(self, device: int, host: int, nbytes: int) -> None:
        ctypes.memmove(device, host, nbytes)

    def copy_out(self, host: int, device: int, nbytes: int) -> None:
        ctypes.memmove(host, device, nbytes)

    def copy(self, to: int, source: int, nbytes: int) -> None:
        ctypes.memmove(to, source, nbytes)

    def zero(self, address: int, nbytes: int) -> None:
        ctypes.memset(address, 0, nbytes)

    def synchronize(self) -> None:
        """Nothing is under way."""

    def event(self) -> Event:
        """What is there already."""
        return READY

    def lead(self, stream: int) -> None:
        """Nothing is under way."""

    def bind(
        self, source: KernelSource, grid: tuple[int, int, int], arguments: Arguments
    ) -> Launch:
        """A launch of an interpreted kernel over a grid."""
        kernel = Interpreted(source)

        def launch(addresses: Sequence[int]) -> None:
            left = iter(addresses)
            kernel.run(grid, [next(left) if a is None else a for a in arguments])

        return launch


_ALIGNMENT = 256


def _platform(machine: "Gpu | Interpreter") -> "NativePlatform":
    from tiga.backends.triton.native import NativePlatform

    return NativePlatform(machine)


@lru_cache(maxsize=16)
def machine(index: int) -> Gpu | Interpreter:
    """The machine of `cuda:index`; with TRITON_INTERPRET=1 an interpreted one.

    Raises:
        UnsupportedByBackend: there is no such GPU, or no Triton.
    """
    return Interpreter(index) if is_interpreted() else Gpu(index)
