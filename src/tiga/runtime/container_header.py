"""The header of a container: what a file of named arrays tells of them.

It is 8 bytes of length, then JSON: for each array its dtype, shape and byte range, and under
`__metadata__` the entry `tiga` (a JSON text) and `tiga.crc32`, the checksum of the header with that
number's digits as zeros. Each array has a checksum of its own in the `tiga` entry. Complex numbers
are pairs of floats along a last axis of 2.
"""

import json
import math
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from tiga.errors import InvalidFile

FORMAT = 1
"""Raised when files change in a way that older versions would misread."""

DTYPES = {
    "F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64",
    "I32": "int32", "I16": "int16", "I8": "int8", "U8": "uint8", "BOOL": "bool",
}  # fmt: skip
_CODES = {name: code for code, name in DTYPES.items()}
_PAIRS = {"complex64": "float32", "complex128": "float64"}
_CRC_FIELD = '"tiga.crc32":"'
_ZEROS = "0" * 8
HEADER_LIMIT = 100 * 2**20
HEADER_ALIGNMENT = 64
PAD_FOR = 2**16
"""Bytes of arrays that are worth a start of their own."""

PIECE = 8 * 2**20
"""Bytes of an array that are handled at a time."""


def numpy_dtype(name: str) -> np.dtype:
    """The numpy dtype of a Tiga dtype's name."""
    return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)


@dataclass(frozen=True)
class Entry:
    """An array of a container: its dtype by name, shape, and where its bytes start in the file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    crc32: int

    @property
    def nbytes(self) -> int:
        """Bytes of the array."""
        return math.prod(self.shape) * numpy_dtype(self.dtype).itemsize

    @property
    def row_bytes(self) -> int:
        """Bytes of one entry along the first axis."""
        return math.prod(self.shape[1:]) * numpy_dtype(self.dtype).itemsize


@dataclass(frozen=True)
class Content:
    """An array to write: its bytes come in pieces, so that it need never be in memory whole."""

    dtype: str
    shape: tuple[int, ...]
    pieces: Iterable[np.ndarray]
    pad: bool = False

    @property
    def nbytes(self) -> int:
        """Bytes of the array."""
        return math.prod(self.shape) * numpy_dtype(self.dtype).itemsize

    @staticmethod
    def of(array: np.ndarray, dtype: str) -> "Content":
        """An array in memory, of any strides."""
        return Content(dtype, array.shape, _pieces(array))


def _pieces(array: np.ndarray) -> Iterator[np.ndarray]:
    if not array.ndim:
        yield np.ascontiguousarray(array)
        return
    step = max(1, PIECE // max(1, array.nbytes // max(1, len(array))))
    for start in range(0, len(array), step):
        yield np.ascontiguousarray(array[start : start + step])


def header_bytes(
    contents: Mapping[str, Content], kind: str, info: Any, sums: Mapping[str, int], alignment: int
) -> bytes:
    """The header of a file with these arrays; its length does not depend on the checksums."""
    told = {
        "format": FORMAT,
        "kind": kind,
        "info": info,
        "arrays": {
            name: {"dtype": content.dtype, "crc32": f"{sums[name]:08x}"}
            | ({"pad": True} if content.pad else {})
            for name, content in contents.items()
        },
    }
    described: dict[str, Any] = {"__metadata__": {"tiga": json.dumps(told), "tiga.crc32": _ZEROS}}
    offset = 0
    for name, content in contents.items():
        code, stored = _stored(content.dtype, content.shape)
        end = offset + content.nbytes
        described[name] = {"dtype": code, "shape": stored, "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(described, separators=(",", ":"))
    text += " " * (-(len(text.encode()) + 8) % alignment)
    data = struct.pack("<Q", len(text.encode())) + text.encode()
    digits = f"{zlib.crc32(data):08x}".encode()
    at = data.index(_CRC_FIELD.encode()) + len(_CRC_FIELD)
    return data[:at] + digits + data[at + 8 :]


def _stored(dtype: str, shape: tuple[int, ...]) -> tuple[str, list[int]]:
    if dtype in _PAIRS:
        return _CODES[_PAIRS[dtype]], [*shape, 2]
    return _CODES[dtype], list(shape)


@dataclass(frozen=True)
class Header:
    """What a header tells: the kind of the file, what its writer noted, its arrays, and those of
    zeros between them."""

    kind: str
    info: Any
    entries: dict[str, Entry]
    pads: dict[str, Entry]


def parse_header(data: bytes, size: int) -> Header:
    """The header of a file of so many bytes.

    Raises:
        InvalidFile: Tiga did not write it, or a later version in another format; it was altered; or
            the file is shorter or longer than it says. The message does not name the file.
    """
    described, told = _parsed(data)
    if not _is_whole(data):
        raise InvalidFile("the header was altered or damaged: its checksum differs.")
    every = _entries(described, told["arrays"], len(data))
    end = max((e.offset + e.nbytes for e in every.values()), default=len(data))
    if end != size:
        raise InvalidFile(f"{size} bytes, but its header tells of {end}: it was cut or added to.")
    pads = {n: e for n, e in every.items() if "pad" in told["arrays"][n]}
    entries = {n: e for n, e in every.items() if n not in pads}
    return Header(told["kind"], told["info"], entries, pads)


def _parsed(data: bytes) -> tuple[Any, Any]:
    """What is told of arrays by the format of safetensors, and by Tiga."""
    try:
        described = json.loads(data[8:].decode())
        metadata = described.pop("__metadata__")
        told = json.loads(metadata["tiga"])
        version = told["format"]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise InvalidFile(
            "the header is not one that Tiga wrote: another program's safetensors file is "
            "read with the safetensors package, any other file is none."
        ) from None
    if isinstance(version, int) and version > FORMAT:
        raise InvalidFile(
            f"format {version} is newer than this version of Tiga reads ({FORMAT}); update it."
        )
    return described, told


def _entries(described: Any, told: Any, start: int) -> dict[str, Entry]:
    entries = {}
    try:
        for name, one in described.items():
            dtype = told[name]["dtype"]
            shape = tuple(one["shape"])
            code, stored = _stored(dtype, shape[:-1] if dtype in _PAIRS else shape)
            low, high = one["data_offsets"]
            logical = shape[:-1] if dtype in _PAIRS else shape
            crc = int(told[name]["crc32"], 16)
            entry = Entry(name, dtype, logical, start + low, crc)
            if (code, stored) != (one["dtype"], list(shape)) or entry.nbytes != high - low:
                raise ValueError(name)
            entries[name] = entry
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidFile(f"the header describes no arrays ({error!r}).") from None
    return entries


def _is_whole(data: bytes) -> bool:
    at = data.find(_CRC_FIELD.encode()) + len(_CRC_FIELD)
    digits = data[at : at + 8]
    blank = data[:at] + _ZEROS.encode() + data[at + 8 :]
    return digits == f"{zlib.crc32(blank):08x}".encode()
