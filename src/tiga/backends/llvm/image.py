"""Machine code that can be put anywhere in memory, and that is kept in files."""

import ctypes
import json
import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

_WORD = struct.Struct("<Q")


@dataclass(frozen=True)
class Image:
    """Code and its constants as one block.

    `entries` are the places of functions in it; `own` those of addresses within the block, which
    are kept as places in it; `outside` those of addresses of functions of the process, such as
    `memset`, by their names and what is added to them.
    """

    code: bytes
    entries: Mapping[str, int]
    own: tuple[int, ...]
    outside: tuple[tuple[int, str, int], ...]

    def packed(self) -> bytes:
        """As bytes, for a file."""
        told = {"entries": dict(self.entries), "own": self.own, "outside": self.outside}
        header = json.dumps(told).encode()
        return _WORD.pack(len(header)) + header + self.code

    @staticmethod
    def unpacked(data: bytes) -> "Image":
        """The image that `packed` gave, whole."""
        (length,) = _WORD.unpack_from(data)
        start = _WORD.size + length
        told = json.loads(data[_WORD.size : start])
        outside = tuple((at, name, addend) for at, name, addend in told["outside"])
        return Image(data[start:], told["entries"], tuple(told["own"]), outside)

    @property
    def is_known(self) -> bool:
        """Whether this process has all functions that the code calls."""
        return all(address_of(name) for _, name, _ in self.outside)


class LoadedImage:
    """An image in memory. Its memory is written, then made executable, and never both."""

    def __init__(self, image: Image) -> None:
        """Load the code of an image that is known here.

        Raises:
            OSError: the system gives no memory for code.
        """
        flags, access = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, mmap.PROT_READ | mmap.PROT_WRITE
        self._memory = mmap.mmap(-1, len(image.code), flags=flags, prot=access)
        base = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        self._memory[: len(image.code)] = image.code
        for at in image.own:
            (place,) = _WORD.unpack_from(self._memory, at)
            _WORD.pack_into(self._memory, at, (base + place) % 2**64)
        for at, name, addend in image.outside:
            _WORD.pack_into(self._memory, at, (address_of(name) + addend) % 2**64)
        _make_executable(base, len(image.code))
        self.addresses = {name: base + place for name, place in image.entries.items()}
        """The addresses of functions, as long as this lives."""


@lru_cache(maxsize=1)
def _process() -> Any:
    """What every library of the process can call."""
    return ctypes.CDLL(None, use_errno=True)


@lru_cache(maxsize=64)
def address_of(name: str) -> int:
    """The address of a function of the process; 0 if it has none of this name."""
    try:
        return ctypes.cast(getattr(_process(), name), ctypes.c_void_p).value or 0
    except AttributeError:
        return 0


def _make_executable(base: int, nbytes: int) -> None:
    protect = _process().mprotect
    protect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    if protect(base, nbytes, mmap.PROT_READ | mmap.PROT_EXEC) != 0:
        raise OSError(ctypes.get_errno(), "memory cannot be made executable")
