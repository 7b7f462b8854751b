"""Temporary bytes on disk: one file per owner that has no name, so that no crash leaves it behind.

The file is opened without a name (or loses it at once), and the kernel frees its blocks when the
last descriptor closes, however the process ends. Where a file system cannot make nameless files, a
crash between two system calls may leave an empty one; the next owner removes those of processes
that are no longer there, and only those: a name tells the process, as far as this one can see it,
and a lock that the file's owner holds tells of the others, in other containers say.
"""

import fcntl
import os
import stat
import weakref
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tiga.errors import InvalidState, InvalidValue
from tiga.runtime.paths import as_path
from tiga.runtime.turns import Turns

_PREFIX = ".tiga-spill-"
ALIGNMENT = 4096
_PIECE = 64 * 2**20


def default_directory() -> Path:
    """Where temporary bytes go unless told: TMPDIR, else /var/tmp, which is on disk."""
    return Path(os.environ.get("TMPDIR") or "/var/tmp")


class SpillFile:
    """Extents of a nameless file in `directory`: allocated, read, written and freed by offset.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as directory, SpillFile(directory) as file:
        ...     start = file.allocate(3)
        ...     file.write(start, b"abc")
        ...     bytes(file.read(start, 3))
        b'abc'
    """

    def __init__(self, directory: Any = None) -> None:
        self.directory = default_directory() if directory is None else as_path(directory)
        if not self.directory.is_dir():
            raise InvalidValue(
                f"spill directory: expected an existing directory, got {str(directory)!r}; "
                "create it first."
            )
        remove_leftovers(self.directory)
        self._end = 0
        self._begin()

    def _begin(self) -> None:
        """Have an empty file, whose extents start where those of a parent process ended."""
        self._process, self._inherited = os.getpid(), self._end
        self._fd = _open_nameless(self.directory)
        self._closer = weakref.finalize(self, os.close, self._fd)
        self._free: list[tuple[int, int]] = []
        self._turns = Turns()

    def _require_own(self, offset: int) -> None:
        """Refuse an extent of the parent process, which may be something else by now."""
        if offset < self._inherited or self._process != os.getpid():
            raise InvalidState(
                "a value that was spilled before this process was forked belongs to its parent; "
                "expected one in memory: call `realize()` on it before the fork."
            )

    @property
    def fd(self) -> int:
        """The descriptor of the file."""
        return self._fd

    @property
    def nbytes(self) -> int:
        """The length of the file."""
        return self._end

    def allocate(self, nbytes: int) -> int:
        """The offset of `nbytes`, reserved on disk: a full disk is found here, not when writing.

        Raises:
            OSError: the disk is full.
        """
        if self._process != os.getpid():
            self._begin()
        size = _rounded(nbytes)
        with self._turns:
            for i, (start, length) in enumerate(self._free):
                if length >= size:
                    self._free[i : i + 1] = [(start + size, length - size)] * (length > size)
                    break
            else:
                start, self._end = self._end, self._end + size
        try:
            os.posix_fallocate(self._fd, start, max(size, 1))
        except OSError as error:
            self.free(start, nbytes)
            raise OSError(
                error.errno,
                f"cannot spill {nbytes} bytes to {self.directory}: {error.strerror}; free disk "
                "space there or choose another directory",
            ) from None
        return start

    def free(self, start: int, nbytes: int) -> None:
        """Give an extent back; the end of the file is cut off when it is free. Those of a parent
        process are its own to free. Finalizers may call it."""
        if start < self._inherited or self._process != os.getpid():
            return
        self._turns.later(partial(self._give_back, start, _rounded(nbytes)))

    def _give_back(self, start: int, nbytes: int) -> None:
        merged: list[tuple[int, int]] = []
        for at, length in sorted([*self._free, (start, nbytes)]):
            if merged and sum(merged[-1]) == at:
                merged[-1] = (merged[-1][0], merged[-1][1] + length)
            elif length:
                merged.append((at, length))
        if merged and sum(merged[-1]) == self._end:
            self._end = merged.pop()[0]
            os.ftruncate(self._fd, self._end)
        self._free = merged

    def write(self, offset: int, data: Any) -> None:
        """Store bytes at an offset."""
        self._require_own(offset)
        pwrite_all(self._fd, data, offset)

    def read(self, offset: int, nbytes: int) -> np.ndarray:
        """The `nbytes` at an offset, uint8 `[nbytes]`.

        Raises:
            InvalidState: they were stored before this process was forked.
        """
        self._require_own(offset)
        block = np.empty(nbytes, np.uint8)
        pread_into(self._fd, block, offset)
        return block

    def close(self) -> None:
        """Free everything."""
        self._closer()

    def __enter__(self) -> "SpillFile":
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()


def _rounded(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def pwrite_all(fd: int, data: Any, offset: int) -> None:
    """Write all of a contiguous buffer at an offset; raises OSError when the disk is full."""
    left = memoryview(data).cast("B") if len(memoryview(data)) else memoryview(b"")
    while len(left):
        count = os.pwrite(fd, left[:_PIECE], offset)
        left, offset = left[count:], offset + count


def pread_into(fd: int, block: np.ndarray, offset: int) -> None:
    """Fill a contiguous array from a file.

    Raises:
        EOFError: the file ends before.
    """
    left = memoryview(block.reshape(-1).view(np.uint8).data) if block.size else memoryview(b"")
    while len(left):
        count = os.preadv(fd, [left[:_PIECE]], offset)
        if count == 0:
            raise EOFError(f"the file ends at byte {offset}, {len(left)} bytes too early")
        left, offset = left[count:], offset + count


def _open_nameless(directory: Path) -> int:
    if hasattr(os, "O_TMPFILE"):
        try:
            return os.open(directory, os.O_RDWR | os.O_CLOEXEC | os.O_TMPFILE, 0o600)
        except OSError as error:
            if isinstance(error, PermissionError):
                raise
    fd, path = open_named(directory, _PREFIX, 0o600)
    path.unlink()
    return fd


def open_named(directory: Path, prefix: str, mode: int) -> tuple[int, Path]:
    """A new file that nobody removes as a leftover while it is open, and its path."""
    while True:
        path = directory / f"{prefix}{process_name()}-{os.urandom(8).hex()}"
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        if not _lock(fd, fcntl.LOCK_EX) or os.fstat(fd).st_nlink:
            return fd, path
        os.close(fd)  # taken for a leftover before it was locked


def _lock(fd: int, how: int) -> bool:
    """Lock a file; False if somebody else has it, or the file system has no locks."""
    try:
        fcntl.flock(fd, how)
    except OSError:
        return False
    return True


def process_name() -> str:
    """This process in a file name, told apart from a later one of the same number by its start."""
    return _process(os.getpid())


def _process(pid: int) -> str:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return f"{pid}-{fields[19]}"
    except (OSError, IndexError):
        return f"{pid}-0"


def remove_leftovers(directory: Path) -> int:
    """Remove what crashed processes of this user left in a spill directory; the number of files.

    Files of living processes and of other users stay.
    """
    return remove_of_dead(directory, _PREFIX)


def remove_of_dead(directory: Path, prefix: str) -> int:
    """Remove this user's files `prefix<process name>-...` of processes that are no longer there;
    the number of files."""
    try:
        found = list(directory.glob(f"{prefix}*"))
    except OSError:
        return 0  # a folder that may be written but not listed
    return sum(_removed(path, path.name[len(prefix) :]) for path in found)


def _removed(path: Path, owner: str) -> bool:
    """Remove a file if nobody has it; whether that was so."""
    pid, _, rest = owner.partition("-")
    if not pid.isdecimal() or _process(int(pid)) == f"{pid}-{rest.split('-')[0]}":
        return False
    try:
        found = path.lstat()
        if found.st_uid != os.getuid() or not stat.S_ISREG(found.st_mode):
            return False
        fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False  # another process was faster, or may not be looked at
    try:
        if not _lock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB):
            return False
        path.unlink()
    except OSError:
        return False
    finally:
        os.close(fd)
    return True
