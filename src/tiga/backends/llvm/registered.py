"""The object files of code that LLVM has loaded in this process, found as a debugger finds them.

LLVM puts the object file of everything that it loads into a list for debuggers (GDB's interface for
code that is compiled while a program runs), with the addresses at which its sections are. MLIR has
a function that writes an object file to disk, but that makes LLVM handle the signals of the
process: a program's own handlers would be called no more.

Other threads add to the list and remove from it meanwhile. So memory is read by system calls, which
fail where a plain access would end the process, and what is found is only taken after it has been
compared with the code that is there (`object_file`).
"""

import ctypes
import os
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache

from tiga.backends.llvm.machine_code import compiler_library

_DESCRIPTOR = struct.Struct("@IIPP")  # version, what happened last, to which entry; the first entry
_ENTRY = struct.Struct("@PPPQ")  # the entries after and before; where an object file is; its bytes
_VERSION = 1

MOST_ENTRIES = 64
"""So many are looked at: new ones come first."""

MOST_BYTES = 2**26
"""No kernel's object file is larger."""

Memory = Callable[[int, int], bytes]
"""Reads bytes of this process, so many at an address.

Raises:
    OSError: there is no memory there, or the system does not let itself be asked.
"""


@contextmanager
def own_memory() -> Iterator[Memory]:
    """What reads this process's memory, whatever is there."""
    with open("/proc/self/mem", "rb", buffering=0) as file:

        def read(address: int, nbytes: int) -> bytes:
            found = os.pread(file.fileno(), nbytes, address) if address < 2**63 else b""
            if len(found) != nbytes:
                raise OSError(f"no {nbytes} bytes of memory at {address:#x}")
            return found

        yield read


@lru_cache(maxsize=1)
def _descriptor_address() -> int:
    """Where the list begins; 0 if the library has none."""
    try:
        found = ctypes.c_char.in_dll(ctypes.CDLL(str(compiler_library())), "__jit_debug_descriptor")
    except ValueError:
        return 0
    return ctypes.addressof(found)


def object_files(memory: Memory) -> Iterator[bytes]:
    """Object files that are loaded, the last one first.

    Raises:
        OSError: an entry is gone.
    """
    place = _descriptor_address()
    if not place:
        return
    version, _, _, entry = _DESCRIPTOR.unpack(memory(place, _DESCRIPTOR.size))
    for _ in range(MOST_ENTRIES):
        if version != _VERSION or not entry:
            return
        entry, _, start, nbytes = _ENTRY.unpack(memory(entry, _ENTRY.size))
        if 0 < nbytes < MOST_BYTES:
            yield memory(start, nbytes)
