"""Compiled kernels on a device, and launches with their arguments laid out beforehand.

A launch takes a few microseconds: every argument of the driver's call is made once, and the
kernel's arguments are read from slots of 8 bytes, of which only those that change are written.
"""

import ctypes
import struct
import threading
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from tiga.errors import UnsupportedByBackend
from tiga.runtime.driver import INVALID_CONTEXT, Driver

_MAX_DYNAMIC_SHARED = 8
_STATIC_SHARED = 1
_LOCAL_BYTES = 3
_REGISTERS = 4
_MOST_SHARED = 97
_STATIC_LIMIT = 48 * 2**10
"""Bytes of shared memory that a block has without asking for more."""

_ONE = ctypes.c_uint(1)


class Function:
    """One kernel of a compiled binary, on one device.

    `registers` and `spilled_bytes` are per thread, as the driver reports them.
    """

    def __init__(self, driver: Driver, binary: bytes, name: str, threads: int, shared: int) -> None:
        self.driver, self.name = driver, name
        self.threads, self.shared = threads, shared
        self.block = (ctypes.c_uint(threads), _ONE, _ONE, ctypes.c_uint(shared))
        self._module, self.handle = ctypes.c_void_p(), ctypes.c_void_p()
        most = driver.attribute(_MOST_SHARED)
        if shared > most:
            raise UnsupportedByBackend(
                f"kernel {name} needs {shared} bytes of shared memory, and a block of this device "
                f"has {most}"
            )
        image = ctypes.create_string_buffer(binary, len(binary))
        driver.call("cuModuleLoadData", ctypes.byref(self._module), image)
        symbol = ctypes.c_char_p(name.encode())
        driver.call("cuModuleGetFunction", ctypes.byref(self.handle), self._module, symbol)
        if shared > _STATIC_LIMIT - self._fact(_STATIC_SHARED):
            wanted = ctypes.c_int(_MAX_DYNAMIC_SHARED), ctypes.c_int(shared)
            driver.call("cuFuncSetAttribute", self.handle, *wanted)
        self.registers = self._fact(_REGISTERS)
        self.spilled_bytes = self._fact(_LOCAL_BYTES)

    def _fact(self, number: int) -> int:
        value = ctypes.c_int()
        what = ctypes.c_int(number)
        self.driver.call("cuFuncGetAttribute", ctypes.byref(value), what, self.handle)
        return value.value


@lru_cache(maxsize=64)
def stream_handle(stream: int) -> ctypes.c_void_p:
    """A stream as launches take it."""
    return ctypes.c_void_p(stream)


class Slots:
    """Arguments of kernels, 8 bytes each: addresses, whole numbers, and bits of floats.

    The first `varying` of them are written anew for every run, the rest stays. A kernel's argument
    of 4 bytes is the low half of its slot.
    """

    def __init__(self, varying: int, fixed: Sequence[int]) -> None:
        self._array = (ctypes.c_uint64 * max(varying + len(fixed), 1))()
        self._array[varying : varying + len(fixed)] = [number % 2**64 for number in fixed]
        self._pack = struct.Struct(f"={varying}Q").pack_into
        self._tables: list[np.ndarray] = []
        self.lock = threading.Lock()

    def fill(self, addresses: Sequence[int]) -> None:
        """Write the arguments that change. Hold `lock` from here to the last launch."""
        self._pack(self._array, 0, *addresses)

    def table(self, places: Sequence[int]) -> ctypes.c_void_p:
        """What the driver takes for arguments: a pointer to each, in a kernel's order."""
        return self.tables(np.array(places, np.int64), (0,))[0]

    def tables(self, places: np.ndarray, starts: Sequence[int]) -> list[ctypes.c_void_p]:
        """Tables of several kernels, whose places lie one after another: where each starts."""
        pointers = ctypes.addressof(self._array) + 8 * places
        self._tables.append(pointers)
        first = pointers.ctypes.data
        return [ctypes.c_void_p(first + 8 * start) for start in starts]


def launcher(
    function: Function, grid: tuple[int, int, int], slots: Slots, table: ctypes.c_void_p
) -> Callable[[Any], None]:
    """A launch over a grid with the arguments of a table of `slots`.

    It takes a stream, as a `ctypes.c_void_p`, and copies the arguments before it returns. The
    device should be the thread's current one; on a thread that has none it is made current.
    """
    driver = function.driver
    launch = driver.library.cuLaunchKernel
    head = (function.handle, *map(ctypes.c_uint, grid), *function.block)

    def run(stream: Any) -> None:
        code = launch(*head, stream, table, None)
        if code in INVALID_CONTEXT:
            driver.activate()
            code = launch(*head, stream, table, None)
        if code:
            driver.refuse(f"to launch {function.name}", code)

    run.slots = slots  # type: ignore[attr-defined]  # the table points into it
    return run


def launch_once(
    function: Function,
    grid: tuple[int, int, int],
    arguments: Sequence[int],
    hidden: int,
    stream: int,
) -> None:
    """Launch over a grid on a stream with arguments in a kernel's order, then `hidden` ones that
    are 0."""
    slots = Slots(0, [*arguments, *(0,) * hidden])
    table = slots.table(range(len(arguments) + hidden))
    launcher(function, grid, slots, table)(ctypes.c_void_p(stream))


class FreeLaunch:
    """Launches of a function over any grid with any arguments, whose slots are used again.

    One thread launches at a time. Python's lock is kept meanwhile.
    """

    def __init__(self, function: Function, arguments: int, hidden: int) -> None:
        """It takes so many arguments, and `hidden` ones that are 0."""
        self._slots = Slots(arguments, (0,) * hidden)
        self._table = self._slots.table(range(arguments + hidden))
        self._function, self._launch = function, function.driver.brief.cuLaunchKernel

    def run(self, stream: Any, grid: tuple[int, int, int], arguments: Sequence[int]) -> None:
        """Launch on a stream, a `ctypes.c_void_p`."""
        function = self._function
        self._slots.fill([argument % 2**64 for argument in arguments])
        call = (
            function.handle,
            *map(ctypes.c_uint, grid),
            *function.block,
            stream,
            self._table,
            None,
        )
        code = self._launch(*call)
        if code in INVALID_CONTEXT:
            function.driver.activate()
            code = self._launch(*call)
        if code:
            function.driver.refuse(f"to launch {function.name}", code)
