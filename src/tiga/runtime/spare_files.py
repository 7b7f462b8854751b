"""Files of values that are gone, kept for values of the same size that come.

A program that goes on makes results of the same sizes again and again. What a file system frees it
has to find again, and to begin anew: writing to blocks that were written to before takes down to
half the time, and freeing a file of some GiB up to as long as writing it.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from tiga.runtime.spill import SpillFile
from tiga.runtime.turns import Turns

LEAST = 2**24
"""Bytes of a file that is worth keeping."""

# How often this process was forked, a fact about it: the children of each fork may still have the
# memory that was mapped from files by then, so these serve nobody else.
_forks = [0]


def _count_fork() -> None:
    _forks[0] += 1


os.register_at_fork(before=_count_fork)


@dataclass(frozen=True)
class OwnFile:
    """A file for one value of `nbytes` bytes, made after so many forks of the process."""

    file: SpillFile
    nbytes: int
    forks: int

    @staticmethod
    def new(directory: object, nbytes: int) -> "OwnFile":
        """A file with so many bytes reserved, at its beginning.

        Raises:
            OSError: the disk is full.
        """
        file = SpillFile(directory)
        try:
            start = file.allocate(nbytes)
        except BaseException:
            file.close()
            raise
        assert start == 0, "a new file is empty"
        return OwnFile(file, nbytes, _forks[0])


@dataclass
class SpareFiles:
    """Files that wait, `room()` bytes of them at most, and none unless `keeps`.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as directory:
        ...     spares = SpareFiles(lambda: 2**25, keeps=True)
        ...     first = OwnFile.new(directory, 2**24)
        ...     spares.give(first)
        ...     again = spares.take(2**24)
        ...     again is first, spares.take(2**24)
        (True, None)
        >>> first.file.close()
    """

    room: Callable[[], int]
    keeps: bool = False
    _waiting: list[OwnFile] = field(default_factory=list)
    _turns: Turns = field(default_factory=Turns, repr=False)

    @property
    def nbytes(self) -> int:
        """Bytes of the files that wait."""
        return sum([own.nbytes for own in self._waiting])

    def take(self, nbytes: int) -> OwnFile | None:
        """A file of just so many bytes, if one waits. They are whatever was stored there."""
        with self._turns:
            self._drop(lambda own: own.forks != _forks[0])
            found = next((own for own in self._waiting if own.nbytes == nbytes), None)
            if found is not None:
                self._waiting.remove(found)
        if found is not None:  # what the page cache has of it would only be written again
            os.posix_fadvise(found.file.fd, 0, 0, os.POSIX_FADV_DONTNEED)
        return found

    def give(self, own: OwnFile) -> None:
        """Keep a file that nobody uses, or close it. Finalizers may call it."""
        self._turns.later(partial(self._give, own))

    def _give(self, own: OwnFile) -> None:
        if not self.keeps or own.nbytes < LEAST or own.forks != _forks[0]:
            own.file.close()
            return
        self._waiting.append(own)
        self._shrink(self.room())

    def shrink(self, nbytes: int | None = None) -> None:
        """Close files, those first that wait longest, until they have no more than `nbytes` bytes,
        or no more than there is room for."""
        with self._turns:
            self._shrink(self.room() if nbytes is None else nbytes)

    def _shrink(self, nbytes: int) -> None:
        while self._waiting and self.nbytes > nbytes:
            self._waiting.pop(0).file.close()

    def _drop(self, unfit: Callable[[OwnFile], bool]) -> None:
        for own in [own for own in self._waiting if unfit(own)]:
            self._waiting.remove(own)
            own.file.close()

    def begin(self) -> None:
        """Keep files from now on."""
        self.keeps = True

    def end(self) -> None:
        """Keep none any more."""
        self.keeps = False
        self.shrink(0)
