"""Named arrays in one file: a safetensors file whose header also tells what Tiga must check.

Any reader of safetensors reads the file; `container_header` says what is in its header. Where
arrays are to start at blocks of the disk, arrays `pad0`, `pad1`, ... of zeros, which the
format asks for in place of gaps, lie between them.

A file is written under a temporary name, flushed to the disk and then renamed: whoever reads sees
the old file or the new one, never a part. Readers that are attached keep the old one.
"""

import os
import struct
import zlib
from collections.abc import Callable, Iterable, Mapping
from errno import ENOSPC
from pathlib import Path
from typing import Any

import numpy as np

from tiga.errors import InvalidFile, InvalidValue
from tiga.runtime.container_header import (
    HEADER_ALIGNMENT,
    HEADER_LIMIT,
    PAD_FOR,
    PIECE,
    Content,
    Entry,
    Header,
    header_bytes,
    numpy_dtype,
    parse_header,
)
from tiga.runtime.paths import as_path, to_read, to_write
from tiga.runtime.spill import open_named, pread_into, pwrite_all, remove_of_dead

_PARTIAL = ".tiga-save-"

# writing


def write_container(
    path: Any, contents: Mapping[str, Content], kind: str, info: Any = None,
    overwrite: bool = False,
    finished: Callable[[], None] | None = None, alignment: int = HEADER_ALIGNMENT,
) -> Path:  # fmt: skip
    """Write arrays to a new file, or replace one at once with `overwrite`; returns the path.

    `finished` is called when all is on the disk, before the file gets its name. With an `alignment`
    beyond 64, long arrays start at its multiples.

    Raises:
        FileExistsError: there is a file, and no `overwrite`.
        OSError: the disk is full, or the folder cannot be written; no file is left then.
    """
    given, path = as_path(path), to_write(path, overwrite)
    remove_of_dead(path.parent, _PARTIAL)
    fd, partial = open_named(path.parent, _PARTIAL, 0o666)
    try:
        _write_all(fd, padded(contents, alignment), kind, info, alignment)
        os.fsync(fd)
        if finished is not None:
            finished()
        publish(partial, path, overwrite)
    except BaseException as error:
        partial.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno == ENOSPC:
            raise OSError(ENOSPC, f"cannot save {path}: {error.strerror}; make room") from None
        raise
    finally:
        os.close(fd)
    return given


def publish(partial: Path, path: Path, overwrite: bool) -> None:
    """Give a finished file its name, and make that last."""
    if overwrite:
        os.replace(partial, path)
    else:
        try:
            os.link(partial, path)  # unlike a rename, it never replaces a file made meanwhile
        except FileExistsError:
            raise
        except OSError:  # a file system without links
            os.replace(partial, path)
        else:
            partial.unlink()
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def padded(contents: Mapping[str, Content], alignment: int) -> dict[str, Content]:
    """Arrays with zeros between them, such that long ones start at multiples of an alignment."""
    found: dict[str, Content] = {}
    offset = pads = 0
    for name, content in contents.items():
        short = -offset % alignment
        if alignment > HEADER_ALIGNMENT and content.nbytes >= PAD_FOR and short:
            zeros = np.zeros(short, np.uint8)
            found[f"pad{pads}"] = Content("uint8", (short,), [zeros], pad=True)
            offset, pads = offset + short, pads + 1
        found[name] = content
        offset += content.nbytes
    return found


def _write_all(
    fd: int, contents: Mapping[str, Content], kind: str, info: Any, alignment: int
) -> None:
    header = header_bytes(contents, kind, info, dict.fromkeys(contents, 0), alignment)
    sums: dict[str, int] = {}
    offset = len(header)
    for name, content in contents.items():
        start, checksum = offset, 0
        for piece in content.pieces:
            data = piece.reshape(-1).view(np.uint8)
            checksum = zlib.crc32(data.data, checksum)
            pwrite_all(fd, data, offset)
            offset += data.size
        sums[name] = checksum
        assert offset - start == content.nbytes, name
    pwrite_all(fd, header_bytes(contents, kind, info, sums, alignment), 0)


# reading


class Container:
    """An open file of named arrays; its header was checked, its bytes are not yet.

    Raises (`InvalidFile`): the file is shorter or longer than its header says, was not written by
    Tiga, or by a later version in another format, or its header was altered.
    """

    def __init__(self, path: Any) -> None:
        self.path = to_read(path)
        self.fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            header = self._read_header()
        except BaseException:
            self.close()
            raise
        self.kind, self.info = header.kind, header.info
        self.entries, self._pads = header.entries, header.pads

    def read(self, name: str, verify: bool = True) -> np.ndarray:
        """An array in memory; with `verify` its checksum is compared."""
        entry = self.entry(name)
        array = np.empty(entry.shape, numpy_dtype(entry.dtype))
        self.pread(array, entry.offset)
        if verify and zlib.crc32(array.reshape(-1).view(np.uint8).data) != entry.crc32:
            raise self._altered(name)
        return array

    def pread(self, block: np.ndarray, offset: int) -> None:
        """Fill a contiguous array with the bytes at an offset of the file."""
        try:
            pread_into(self.fd, block, offset)
        except EOFError as error:
            raise InvalidFile(f"{self.path}: {error}: it was cut after it was opened.") from None

    def require_length(self, entry: Entry) -> None:
        """Refuse a file that no longer holds all of an array, as memory mapped from it would not.

        Raises:
            InvalidFile: it was cut after it was opened.
        """
        size, end = os.fstat(self.fd).st_size, entry.offset + entry.nbytes
        if size < end:
            raise InvalidFile(
                f"{self.path}: the file ends at byte {size}, {end - size} bytes too early for "
                f"{entry.name!r}: it was cut after it was opened."
            )

    def entry(self, name: str) -> Entry:
        """What is known of an array.

        Raises:
            InvalidFile: there is none of this name.
        """
        if name not in self.entries:
            raise InvalidFile(f"{self.path}: no array {name!r}; it has {sorted(self.entries)}.")
        return self.entries[name]

    def verify(self, names: Iterable[str] | None = None) -> None:
        """Compare the checksums of arrays, by default all, reading them in pieces.

        Raises:
            InvalidFile: one of them was altered.
        """
        block = np.empty(PIECE, np.uint8)
        every = (*self.entries.values(), *self._pads.values())
        for entry in every if names is None else map(self.entry, names):
            checksum = 0
            for start in range(0, entry.nbytes, PIECE):
                part = block[: min(PIECE, entry.nbytes - start)]
                self.pread(part, entry.offset + start)
                checksum = zlib.crc32(part.data, checksum)
            if checksum != entry.crc32:
                raise self._altered(entry.name)

    def close(self) -> None:
        """Close the file; a second time does nothing."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        # When the process ends the module may be gone; what is a default here is not.
        fd, self.fd = getattr(self, "fd", -1), -1
        if fd >= 0:
            close(fd)

    def _altered(self, name: str) -> InvalidFile:
        return InvalidFile(
            f"{self.path}: the bytes of {name!r} do not have the checksum they were written with; "
            "the file was altered or damaged: write it again."
        )

    def _refuse(self, why: str) -> InvalidFile:
        return InvalidFile(f"{self.path}: {why}")

    def _read_header(self) -> Header:
        size = os.fstat(self.fd).st_size
        start = os.pread(self.fd, 8, 0)
        if len(start) < 8:
            raise self._refuse(f"{size} bytes are too few for a snapshot; it was cut, or is none.")
        (length,) = struct.unpack("<Q", start)
        if length > HEADER_LIMIT or 8 + length > size:
            raise self._refuse("not a snapshot, or one that was cut within its header.")
        try:
            return parse_header(start + os.pread(self.fd, length, 8), size)
        except InvalidFile as error:
            raise self._refuse(error.args[0]) from error.__cause__


def require_name(name: Any) -> str:
    """A name that an array in a file can have.

    Raises:
        InvalidValue: no text, empty, or the one name that the format keeps for itself.
    """
    if not isinstance(name, str) or not name or name == "__metadata__":
        raise InvalidValue(f"save: expected names that are text and not empty, got {name!r}.")
    return name
