"""NVIDIA's driver, as far as buffers need it: memory, pinned memory and copies, by ctypes.

It uses each device's primary context, the one that other libraries in the process share.
"""

import ctypes
from functools import lru_cache
from typing import Any

from tiga.errors import UnsupportedByBackend

_LIBRARIES = ("libcuda.so.1", "libcuda.so")


class Driver:
    """One device. Every call makes its context current on the calling thread first."""

    def __init__(self, library: Any, device: int) -> None:
        self._library = library
        handle, self._context = ctypes.c_int(), ctypes.c_void_p()
        self._check("cuDeviceGet", ctypes.byref(handle), ctypes.c_int(device))
        self._check("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), handle)

    def allocate(self, nbytes: int) -> int:
        """The address of device memory."""
        address = ctypes.c_uint64()
        self._call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(max(nbytes, 1)))
        return address.value

    def free(self, address: int) -> None:
        """Give device memory back."""
        self._call("cuMemFree_v2", ctypes.c_uint64(address))

    def allocate_pinned(self, nbytes: int) -> int:
        """The address of host memory that the device can copy from and to directly."""
        address = ctypes.c_void_p()
        count = ctypes.c_size_t(max(nbytes, 1))
        self._call("cuMemHostAlloc", ctypes.byref(address), count, ctypes.c_uint(0))
        return int(address.value or 0)

    def free_pinned(self, address: int) -> None:
        """Give pinned memory back."""
        self._call("cuMemFreeHost", ctypes.c_void_p(address))

    def copy_in(self, device: int, host: int, nbytes: int) -> None:
        """From host to device; done when it returns."""
        self._copy("cuMemcpyHtoD_v2", ctypes.c_uint64(device), ctypes.c_void_p(host), nbytes)

    def copy_out(self, host: int, device: int, nbytes: int) -> None:
        """From device to host; done when it returns."""
        self._copy("cuMemcpyDtoH_v2", ctypes.c_void_p(host), ctypes.c_uint64(device), nbytes)

    def zero(self, address: int, nbytes: int) -> None:
        """Set device memory to zero."""
        if nbytes:
            count = ctypes.c_size_t(nbytes)
            self._call("cuMemsetD8_v2", ctypes.c_uint64(address), ctypes.c_ubyte(0), count)

    def _copy(self, name: str, to: Any, source: Any, nbytes: int) -> None:
        if nbytes:
            self._call(name, to, source, ctypes.c_size_t(nbytes))

    def _call(self, name: str, *arguments: Any) -> None:
        self._check("cuCtxSetCurrent", self._context)
        self._check(name, *arguments)

    def _check(self, name: str, *arguments: Any) -> None:
        code = getattr(self._library, name)(*arguments)
        if code:
            text = ctypes.c_char_p()
            self._library.cuGetErrorString(ctypes.c_int(code), ctypes.byref(text))
            reason = (text.value or b"unknown error").decode()
            raise UnsupportedByBackend(f"the CUDA driver refused {name}: {reason} (code {code}).")


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
    return Driver(_library(), device)


def has_gpu() -> bool:
    """Whether device and pinned memory can be had here."""
    return _library() is not None
