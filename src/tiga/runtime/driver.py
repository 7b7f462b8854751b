"""NVIDIA's driver, by ctypes: memory, copies, streams, events and kernels of one device.

It uses each device's primary context, the one that other libraries in the process share. Work
goes to a stream, named by its handle; stream 0 is the device's default stream, torch's as well.
"""

import ctypes
import weakref
from functools import lru_cache
from typing import Any, NoReturn

from tiga.errors import OutOfBudget, UnsupportedByBackend

_LIBRARIES = ("libcuda.so.1", "libcuda.so")

OUT_OF_MEMORY = 2
NOT_READY = 600
INVALID_CONTEXT = (3, 201)
"""What the driver answers on a thread that has no context, or another device's."""

_CAPABILITY = (75, 76)
_RELEASE_THRESHOLD, _RESERVED, _USED = 4, 5, 7
_BRIEF = frozenset(
    ("cuCtxSetCurrent", "cuEventCreate", "cuEventRecord", "cuEventDestroy_v2", "cuStreamWaitEvent")
)

_NON_BLOCKING = 1
_DEVICE_MAP = 2
_NO_TIMING = 2


class Driver:
    """One device. Every call makes its context current on the calling thread first."""

    def __init__(self, library: Any, device: int, brief: Any = None) -> None:
        """`brief` is the library for calls of a microsecond, during which Python's lock is kept:
        another thread that got it would have to be waited for."""
        self.library, self.brief = library, brief or library
        self.index = device
        self._handle, self._context = ctypes.c_int(), ctypes.c_void_p()
        self._check("cuDeviceGet", ctypes.byref(self._handle), ctypes.c_int(device))
        self._check("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), self._handle)
        self._has_pool = False

    def activate(self) -> None:
        """Make this device's context the calling thread's."""
        self._check("cuCtxSetCurrent", self._context)

    def attribute(self, number: int) -> int:
        """A fact about the device, by its number in the driver's list."""
        value = ctypes.c_int()
        self._check("cuDeviceGetAttribute", ctypes.byref(value), ctypes.c_int(number), self._handle)
        return value.value

    def capability(self) -> int:
        """The compute capability: 90 for 9.0."""
        major, minor = map(self.attribute, _CAPABILITY)
        return 10 * major + minor

    def name(self) -> str:
        """The device's name, as its maker gives it."""
        text = ctypes.create_string_buffer(256)
        self._check("cuDeviceGetName", text, ctypes.c_int(256), self._handle)
        return text.value.decode()

    def allocate(self, nbytes: int) -> int:
        """The address of device memory."""
        address = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(max(nbytes, 1)))
        return address.value

    def free(self, address: int) -> None:
        """Give device memory back."""
        self.call("cuMemFree_v2", ctypes.c_uint64(address))

    def allocate_on(self, stream: int, nbytes: int) -> int:
        """The address of device memory for work on a stream: memory that `free_on` gave back is
        used again without asking the driver for more, and nothing waits.

        Raises:
            OutOfBudget: the device has not so much memory left.
        """
        if not self._has_pool:
            self._keep_freed_memory()
        address = ctypes.c_uint64()
        count = ctypes.c_size_t(max(nbytes, 1))
        self.call("cuMemAllocAsync", ctypes.byref(address), count, ctypes.c_void_p(stream))
        return address.value

    def free_on(self, stream: int, address: int) -> None:
        """Give memory back once the work that a stream holds by now is done."""
        self.call("cuMemFreeAsync", ctypes.c_uint64(address), ctypes.c_void_p(stream))

    def memory_left(self) -> int:
        """Bytes that `allocate_on` can give: those of the device, and those kept for later."""
        free, total, pool = ctypes.c_size_t(), ctypes.c_size_t(), self._pool()
        self.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        reserved, used = ctypes.c_uint64(), ctypes.c_uint64()
        for number, value in ((_RESERVED, reserved), (_USED, used)):
            self._check("cuMemPoolGetAttribute", pool, ctypes.c_int(number), ctypes.byref(value))
        return free.value + reserved.value - used.value

    def _pool(self) -> ctypes.c_void_p:
        pool = ctypes.c_void_p()
        self._check("cuDeviceGetDefaultMemPool", ctypes.byref(pool), self._handle)
        return pool

    def _keep_freed_memory(self) -> None:
        pool = self._pool()
        everything = ctypes.c_uint64(2**64 - 1)
        number = ctypes.c_int(_RELEASE_THRESHOLD)
        self._check("cuMemPoolSetAttribute", pool, number, ctypes.byref(everything))
        self._has_pool = True

    def allocate_pinned(self, nbytes: int) -> int:
        """The address of host memory that the device can copy from and to directly."""
        address = ctypes.c_void_p()
        count = ctypes.c_size_t(max(nbytes, 1))
        self.call("cuMemHostAlloc", ctypes.byref(address), count, ctypes.c_uint(0))
        return int(address.value or 0)

    def free_pinned(self, address: int) -> None:
        """Give pinned memory back."""
        self.call("cuMemFreeHost", ctypes.c_void_p(address))

    def pin(self, address: int, nbytes: int) -> bool:
        """Pin memory that the process has already; False if the driver refuses."""
        self.activate()
        place, count = ctypes.c_void_p(address), ctypes.c_size_t(nbytes)
        return not self.library.cuMemHostRegister_v2(place, count, ctypes.c_uint(_DEVICE_MAP))

    def address_of_pinned(self, address: int) -> int:
        """Where kernels find pinned memory."""
        found, place = ctypes.c_uint64(), ctypes.c_void_p(address)
        self.call("cuMemHostGetDevicePointer_v2", ctypes.byref(found), place, ctypes.c_uint(0))
        return found.value

    def unpin(self, address: int) -> None:
        """Take back what `pin` did."""
        self.call("cuMemHostUnregister", ctypes.c_void_p(address))

    def copy_in(self, device: int, host: int, nbytes: int) -> None:
        """From host to device; done when it returns."""
        self._copy("cuMemcpyHtoD_v2", ctypes.c_uint64(device), ctypes.c_void_p(host), nbytes)

    def copy_out(self, host: int, device: int, nbytes: int) -> None:
        """From device to host; done when it returns."""
        self._copy("cuMemcpyDtoH_v2", ctypes.c_void_p(host), ctypes.c_uint64(device), nbytes)

    def copy_in_on(
        self, stream: int, device: int, host: int, nbytes: int, pinned: bool = False
    ) -> None:
        """From host to device, in order with a stream. Pageable memory may be changed when it
        returns, `pinned` memory only when the stream has got there: then this only begins."""
        self._copy_on(stream, "cuMemcpyHtoDAsync_v2", ctypes.c_uint64(device),
                      ctypes.c_void_p(host), nbytes, pinned)  # fmt: skip

    def copy_out_on(
        self, stream: int, host: int, device: int, nbytes: int, pinned: bool = False
    ) -> None:
        """From device to host, in order with a stream; `synchronize` before reading."""
        self._copy_on(stream, "cuMemcpyDtoHAsync_v2", ctypes.c_void_p(host),
                      ctypes.c_uint64(device), nbytes, pinned)  # fmt: skip

    def copy_on(self, stream: int, to: int, source: int, nbytes: int) -> None:
        """Within the device, in order with a stream."""
        self._copy_on(stream, "cuMemcpyDtoDAsync_v2", ctypes.c_uint64(to),
                      ctypes.c_uint64(source), nbytes)  # fmt: skip

    def _copy_on(
        self, stream: int, name: str, to: Any, source: Any, nbytes: int, pinned: bool = False
    ) -> None:
        if nbytes:
            self.activate()
            count, handle = ctypes.c_size_t(nbytes), ctypes.c_void_p(stream)
            self._check(name, to, source, count, handle, pinned=pinned)

    def zero(self, address: int, nbytes: int) -> None:
        """Set device memory to zero."""
        if nbytes:
            count = ctypes.c_size_t(nbytes)
            self.call("cuMemsetD8_v2", ctypes.c_uint64(address), ctypes.c_ubyte(0), count)

    def zero_on(self, stream: int, address: int, nbytes: int) -> None:
        """Set device memory to zero, in order with a stream."""
        if nbytes:
            count, zero = ctypes.c_size_t(nbytes), ctypes.c_ubyte(0)
            stream_handle = ctypes.c_void_p(stream)
            self.call("cuMemsetD8Async", ctypes.c_uint64(address), zero, count, stream_handle)

    # streams and events

    def new_stream(self) -> int:
        """The handle of a stream whose work runs beside that of others."""
        handle = ctypes.c_void_p()
        self.call("cuStreamCreate", ctypes.byref(handle), ctypes.c_uint(_NON_BLOCKING))
        return handle.value or 0

    def close_stream(self, stream: int) -> None:
        """Free a stream once its work is done."""
        self.call("cuStreamDestroy_v2", ctypes.c_void_p(stream))

    def synchronize(self, stream: int = 0) -> None:
        """Wait until the work that a stream holds is done.

        Raises:
            UnsupportedByBackend: a kernel failed; the message has the driver's reason.
        """
        self.call("cuStreamSynchronize", ctypes.c_void_p(stream))

    def record_event(self, stream: int = 0) -> int:
        """The handle of an event that happens when a stream has done what it holds by now."""
        handle = ctypes.c_void_p()
        self.call("cuEventCreate", ctypes.byref(handle), ctypes.c_uint(_NO_TIMING))
        self.call("cuEventRecord", handle, ctypes.c_void_p(stream))
        return handle.value or 0

    def wait_event(self, stream: int, event: int) -> None:
        """Keep a stream's later work until an event has happened; the host does not wait."""
        flags = ctypes.c_uint(0)
        self.call("cuStreamWaitEvent", ctypes.c_void_p(stream), ctypes.c_void_p(event), flags)

    def has_happened(self, event: int) -> bool:
        """Whether an event has happened."""
        self.activate()
        code = self.library.cuEventQuery(ctypes.c_void_p(event))
        if code not in (0, NOT_READY):
            self.refuse("cuEventQuery", code)
        return not code

    def close_event(self, event: int) -> None:
        """Free an event."""
        self.call("cuEventDestroy_v2", ctypes.c_void_p(event))

    # calls

    def _copy(self, name: str, to: Any, source: Any, nbytes: int) -> None:
        if nbytes:
            self.call(name, to, source, ctypes.c_size_t(nbytes))

    def call(self, name: str, *arguments: Any) -> None:
        self.activate()
        self._check(name, *arguments)

    def _check(self, name: str, *arguments: Any, pinned: bool = False) -> None:
        library = self.brief if name in _BRIEF or pinned else self.library
        code = getattr(library, name)(*arguments)
        if code:
            self.refuse(name, code)

    def refuse(self, name: str, code: int) -> NoReturn:
        """Raise for what a call of the driver answered."""
        text = ctypes.c_char_p()
        self.library.cuGetErrorString(ctypes.c_int(code), ctypes.byref(text))
        reason = (text.value or b"unknown error").decode()
        kind = OutOfBudget if code == OUT_OF_MEMORY else UnsupportedByBackend
        raise kind(f"the CUDA driver refused {name}: {reason} (code {code}).")


class StreamEvent:
    """When a stream of a GPU has done what it held when this was made.

    It is what `tiga.runtime.queue.Event` is for work on threads of the host, but for failures.
    """

    def __init__(self, driver: Driver, stream: int) -> None:
        self._driver, self.handle = driver, driver.record_event(stream)
        weakref.finalize(self, driver.close_event, self.handle).atexit = False

    def query(self) -> bool:
        """Whether it is done."""
        return self._driver.has_happened(self.handle)

    @property
    def ready(self) -> bool:
        """Whether it is done."""
        return self.query()

    def wait(self) -> None:
        """Return when it is done."""
        self._driver.call("cuEventSynchronize", ctypes.c_void_p(self.handle))


@lru_cache(maxsize=1)
def _library() -> Any:
    for name in _LIBRARIES:
        try:
            library = ctypes.CDLL(name)
        except OSError:
            continue
        if library.cuInit(ctypes.c_uint(0)) == 0:
            return library
    return None


@lru_cache(maxsize=16)
def driver(device: int = 0) -> Driver:
    """The driver of a device.

    Raises:
        UnsupportedByBackend: no NVIDIA driver, or no such device.
    """
    if _library() is None:
        raise UnsupportedByBackend(
            "device and host-pinned memory need an NVIDIA driver and a GPU, and there is none "
            "here; use the tiers 'host' and 'nvme'."
        )
    return Driver(_library(), device, ctypes.PyDLL(_library()._name))


def device_count() -> int:
    """How many GPUs there are."""
    count = ctypes.c_int()
    library = _library()
    return 0 if library is None or library.cuDeviceGetCount(ctypes.byref(count)) else count.value


def has_gpu() -> bool:
    """Whether device and pinned memory can be had here."""
    return _library() is not None
