"""Kernels on a GPU without torch: compile, load, launch, and the memory they work on.

    device = Device(0)
    kernel = device.kernel(source)                  # a KernelSource: compiled and loaded once
    x = device.allocate(nbytes)                     # addresses are plain integers
    device.copy_in(x, array.ctypes.data, nbytes)
    device.launch(kernel, (blocks, 1, 1), (x, y, count))
    device.copy_out(array.ctypes.data, y, nbytes)
    device.synchronize()
    device.free(x)

All work goes to the device's current stream, in order; nothing but `synchronize` and copies out
to pageable memory waits for the device. The driver is NVIDIA's own (`tiga.runtime.driver`).
"""

import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache

from tiga.backends.triton.compiled import compile_kernel
from tiga.backends.triton.loaded import DeviceKernel
from tiga.backends.triton.writer import KernelSource
from tiga.errors import InvalidType
from tiga.runtime.driver import driver
from tiga.runtime.functions import launch_once

Number = int | float

_stream: ContextVar[int] = ContextVar("tiga_gpu_stream", default=0)

_FLOATS = {"fp32": ("<f", "<I"), "fp64": ("<d", "<Q")}
"""How the bits of a float argument are packed, by its type in a kernel's signature."""


class Device:
    """One NVIDIA GPU. Cheap to make; kernels are kept per device.

    Raises:
        UnsupportedByBackend: no NVIDIA driver, or no such device.
    """

    def __init__(self, index: int = 0) -> None:
        self.index = index
        self.driver = driver(index)
        self.capability = self.driver.capability()

    # memory

    def allocate(self, nbytes: int) -> int:
        """The address of device memory, a multiple of 256.

        Raises:
            OutOfBudget: the device has not so much left; nothing changed.
        """
        return self.driver.allocate_on(self.stream, nbytes)

    def free(self, address: int) -> None:
        """Give memory back; work that was launched on the current stream may still use it."""
        self.driver.free_on(self.stream, address)

    def copy_in(self, device: int, host: int, nbytes: int) -> None:
        """From host memory at address `host` to the device."""
        self.driver.copy_in_on(self.stream, device, host, nbytes)

    def copy_out(self, host: int, device: int, nbytes: int) -> None:
        """From the device to host memory; call `synchronize` before reading it."""
        self.driver.copy_out_on(self.stream, host, device, nbytes)

    def copy(self, to: int, source: int, nbytes: int) -> None:
        """Within the device."""
        self.driver.copy_on(self.stream, to, source, nbytes)

    def allocate_pinned(self, nbytes: int) -> int:
        """The address of host memory that the device copies from and to directly; copies between
        the two are waited for by `synchronize` alone."""
        return self.driver.allocate_pinned(nbytes)

    def free_pinned(self, address: int) -> None:
        """Give pinned memory back; no copy may be under way."""
        self.driver.free_pinned(address)

    def zero(self, address: int, nbytes: int) -> None:
        """Set memory to zero."""
        self.driver.zero_on(self.stream, address, nbytes)

    # kernels

    def kernel(self, source: KernelSource) -> DeviceKernel:
        """A kernel compiled for this device and loaded, once. Pointers that it is given must be
        multiples of 16.

        Raises:
            UnsupportedByBackend: Triton is missing, or it refuses the kernel.
        """
        return _kernel(self.index, source)

    def launch(
        self, kernel: DeviceKernel, grid: tuple[int, int, int], arguments: Sequence[Number]
    ) -> None:
        """Run a kernel over a grid on the current stream, with an address or a number for each
        parameter, in order. For launches that repeat, see `tiga.runtime.functions.launcher`."""
        types = [p.type for p in kernel.source.parameters]
        given = [slot_of(t, a) for t, a in zip(types, arguments, strict=True)]
        launch_once(kernel.function, grid, given, kernel.hidden, self.stream)

    # streams and events

    @property
    def stream(self) -> int:
        """The handle of the calling thread's current stream: 0, the default stream, unless a
        `using` says otherwise. Torch's default stream is the same one."""
        return _stream.get()

    @contextmanager
    def using(self, stream: int) -> Iterator[None]:
        """Make a stream current for the body of a `with`, in this thread or task only."""
        token = _stream.set(stream)
        try:
            yield
        finally:
            _stream.reset(token)

    def new_stream(self) -> int:
        """The handle of a stream of its own."""
        return self.driver.new_stream()

    def record_event(self) -> int:
        """An event that happens when the current stream has done what it holds by now."""
        return self.driver.record_event(self.stream)

    def wait_event(self, event: int) -> None:
        """Let the current stream's later work wait for an event of another stream."""
        self.driver.wait_event(self.stream, event)

    def synchronize(self) -> None:
        """Wait until the current stream's work is done.

        Raises:
            UnsupportedByBackend: a kernel failed.
        """
        self.driver.synchronize(self.stream)


def slot_of(type_: str, argument: Number) -> int:
    """The 8 bytes of an argument of a type in a kernel's signature.

    Raises:
        InvalidType: a float for a parameter that takes none.
    """
    if type_ in _FLOATS:
        write, read = _FLOATS[type_]
        bits: int = struct.unpack(read, struct.pack(write, argument))[0]
        return bits
    if not isinstance(argument, int):
        raise InvalidType(f"a kernel's parameter of type {type_} takes an int; got {argument!r}.")
    return argument


@lru_cache(maxsize=4096)
def _kernel(index: int, source: KernelSource) -> DeviceKernel:
    aligned = [p.type.startswith("*") for p in source.parameters]
    compiled = compile_kernel(source, Device(index).capability, aligned)
    return DeviceKernel.load(source, compiled, index)
