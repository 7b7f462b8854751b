"""Memory that is mapped from a file, and how to find the file from the address.

Kernels on pages read such arrays with plain reads, a page of rows at a time, so that the process
holds no more of them than it means to.
"""

import ctypes
import mmap
import os
from typing import Any
from weakref import WeakValueDictionary

import numpy as np


class Mapped:
    """A mapped byte range of an open file; lives as long as an array over it does."""

    def __init__(self, memory: mmap.mmap, skip: int, fd: int, offset: int, nbytes: int,
                 owner: Any, shared: bool) -> None:  # fmt: skip
        self.memory, self.skip, self.shared = memory, skip, shared
        self.fd, self.offset, self.nbytes, self.owner = fd, offset, nbytes, owner

    @property
    def address(self) -> int:
        """That of the first byte."""
        whole = np.frombuffer(self.memory, np.uint8)
        return int(whole.__array_interface__["data"][0]) + self.skip

    def part(self) -> None:
        """Let writes to the memory no longer reach the file."""
        start, length = self.address - self.skip, self.skip + self.nbytes
        access, how = mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | _MAP_FIXED
        found = _mmap(start, length, access, how, self.fd, self.offset - self.skip)
        assert found == start, "the memory that is mapped already can be mapped again"
        self.shared = False

    @property
    def __array_interface__(self) -> dict[str, Any]:
        data = (self.address, False)
        return {"version": 3, "shape": (self.nbytes,), "typestr": "|u1", "data": data}


_MAP_FIXED = 0x10
_mmap = ctypes.CDLL(None, use_errno=True).mmap
_mmap.restype = ctypes.c_void_p
_mmap.argtypes = (
    ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long
)  # fmt: skip

# Which file an address belongs to, for as long as it is mapped: a fact about the process.
_by_address: "WeakValueDictionary[int, Mapped]" = WeakValueDictionary()


def map_file(fd: int, offset: int, nbytes: int, owner: Any, shared: bool) -> np.ndarray:
    """The bytes of a file as an array, uint8 `[nbytes]`.

    `shared`: writes reach the file; else they stay in memory. `owner` keeps the descriptor open.
    """
    if not nbytes:
        return np.empty(0, np.uint8)
    skip = offset % mmap.ALLOCATIONGRANULARITY
    access = mmap.ACCESS_WRITE if shared else mmap.ACCESS_COPY
    memory = mmap.mmap(fd, skip + nbytes, access=access, offset=offset - skip)
    mapped = Mapped(memory, skip, fd, offset, nbytes, owner, shared)
    array = np.asarray(mapped)
    _by_address[array.ctypes.data] = mapped
    return array


def file_at(address: int, nbytes: int) -> Mapped | None:
    """The mapping that starts at an address, if it holds so many bytes."""
    found = _by_address.get(address)
    return found if found is not None and nbytes <= found.nbytes else None


def written(address: int) -> None:
    """Let memory that was written to no longer stand for the bytes of its file, if these are not
    written with it."""
    found = _by_address.get(address)
    if found is not None and not found.shared:
        del _by_address[address]


def _part_all() -> None:
    """A forked process has values of its own: what it writes must not reach its parent's."""
    for mapped in list(_by_address.values()):
        if mapped.shared:
            mapped.part()


os.register_at_fork(after_in_child=_part_all)
