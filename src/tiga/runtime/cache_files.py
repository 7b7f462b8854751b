"""Files that one process leaves for later ones, in a folder that nobody else can write to.

Each begins with a checksum of the rest, so what is damaged or was never ours counts as missing, and
appears under its name only when it is complete: any number of processes may read and write at once.
A process that cannot use the folder has no files, which is no error.
"""

import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from time import time
from typing import NamedTuple

_CHECKSUM = sha256().digest_size

LOOKS = 16
"""A process looks at what the folder holds whenever it wrote this part of what it may hold."""

TOUCHED_AFTER = 86400.0
"""Seconds after which a file that is read counts as new again: those read long ago go first."""

_OTHERS = stat.S_IWGRP | stat.S_IWOTH

_ENDING = ".cached"
# What our files end in: no other file of the folder is ever removed.


def cache_folder(kind: str) -> Path | None:
    """Where files of a kind are kept for later processes; None where there is no home for them.

    Example:
        >>> cache_folder("tiles").parts[-2:]
        ('tiga', 'tiles')
    """
    given = os.environ.get("XDG_CACHE_HOME")
    try:
        home = Path(given) if given else Path.home() / ".cache"
    except RuntimeError:  # no home is known
        return None
    return home / "tiga" / kind


class Held(NamedTuple):
    """What is in the folder."""

    files: int
    nbytes: int


@dataclass
class CacheFiles:
    """The files of a folder, about `most` bytes of them: the oldest go when there are more.

    `unseen` are the bytes that this process wrote since it looked at what all have written.
    """

    folder: Path
    most: int
    unseen: int = sys.maxsize

    def read(self, name: str) -> bytes | None:
        """What was written under a name; None if nothing was, or it is not as it was written."""
        try:
            with _opened(self.folder) as folder:
                data = _read(name, folder)
        except OSError:
            return None
        content = data[_CHECKSUM:]
        return content if sha256(content).digest() == data[:_CHECKSUM] else None

    def write(self, name: str, content: bytes) -> bool:
        """Keep something under a name; whether that could be done."""
        try:
            os.makedirs(self.folder, mode=0o700, exist_ok=True)
            with _opened(self.folder) as folder:
                _write(name, sha256(content).digest() + content, folder)
                self._make_room(len(content), folder)
        except OSError:
            return False
        return True

    def held(self) -> Held | None:
        """How many files there are, and their bytes; None if the folder is not to be trusted."""
        try:
            with _opened(self.folder) as folder:
                sizes = [nbytes for _, nbytes, _ in _listed(folder)]
        except FileNotFoundError:
            return Held(0, 0)
        except OSError:
            return None
        return Held(len(sizes), sum(sizes))

    def _make_room(self, written: int, folder: int) -> None:
        """Remove the oldest files if there may be too many bytes."""
        self.unseen += written
        if self.unseen < self.most // LOOKS:
            return
        self.unseen = 0
        files = _listed(folder)
        over = sum(nbytes for _, nbytes, _ in files) - self.most
        if over <= 0:
            return
        over += self.most // LOOKS  # what may come before the next look
        for _, nbytes, name in sorted(files):
            if over <= 0:
                return
            with suppress(FileNotFoundError):  # another process made room as well
                os.unlink(name, dir_fd=folder)
            over -= nbytes


@lru_cache(maxsize=16)
def cache_files(folder: Path, most: int) -> CacheFiles:
    """Those of a folder, the same in the whole process."""
    return CacheFiles(folder, most)


@contextmanager
def _opened(folder: Path) -> Iterator[int]:
    """A descriptor of the folder: what is opened by it is in the folder that was looked at.

    Raises:
        OSError: there is none, or others may write to it.
    """
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        _require_own(opened)
        yield opened
    finally:
        os.close(opened)


def _require_own(opened: int) -> os.stat_result:
    """What is known of an open file or folder.

    Raises:
        PermissionError: it is somebody else's, or others may write to it.
    """
    found = os.fstat(opened)
    if found.st_uid != os.geteuid() or found.st_mode & _OTHERS:
        raise PermissionError("others may write to this")
    return found


def _read(name: str, folder: int) -> bytes:
    with open(_descriptor(name + _ENDING, os.O_RDONLY, folder), "rb") as file:
        found = _require_own(file.fileno())
        if time() - found.st_mtime > TOUCHED_AFTER:
            with suppress(OSError):  # a folder that is only read
                os.utime(file.fileno())
        return file.read()


def _write(name: str, data: bytes, folder: int) -> None:
    partial = f".{name}.{os.urandom(8).hex()}{_ENDING}"
    try:
        with open(_descriptor(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, folder), "wb") as file:
            file.write(data)
        os.replace(partial, name + _ENDING, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with suppress(OSError):
            os.unlink(partial, dir_fd=folder)
        raise


def _descriptor(name: str, flags: int, folder: int) -> int:
    # Without O_NONBLOCK, to open a pipe that somebody put there would wait for its other end.
    return os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600, dir_fd=folder)


def _listed(folder: int) -> list[tuple[int, int, str]]:
    """When each of our files was written or read last, its bytes and its name."""
    found = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if not entry.name.endswith(_ENDING) or not entry.is_file(follow_symlinks=False):
                continue
            with suppress(FileNotFoundError):  # another process made room meanwhile
                facts = entry.stat(follow_symlinks=False)
                found.append((facts.st_mtime_ns, facts.st_size, entry.name))
    return found
