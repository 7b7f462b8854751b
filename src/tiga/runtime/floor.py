"""One thread at a time at work in Python, where several prepare pages.

Every call of numpy or of the system leaves Python's own lock and takes it again, tens of times for
a page; while other threads want it, each time one of them is woken, which takes longer than most
of these calls. So such threads have the floor in turn, and leave it where they read, copy or wait
for long.
"""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import wait
from contextlib import contextmanager

from tiga.runtime.crew import Crew

PART = 2**20
"""Bytes that are worth handing over to another thread, at least."""

PARTS = 8
"""Threads that move what is long: so many reach most of what memory gives. Shorter parts, in more
turns, wait for Python's lock as long as they copy."""


class Floor:
    """What one thread has at a time.

    Example:
        >>> floor = Floor()
        >>> with floor.held():
        ...     with off_the_floor():
        ...         pass  # others may have it here
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Have the floor for the body of a `with`."""
        with self.lock:
            _held.floor = self
            try:
                yield
            finally:
                _held.floor = None


_held = threading.local()


@contextmanager
def off_the_floor() -> Iterator[None]:
    """Leave the floor for the body of a `with`, if this thread has it."""
    floor: Floor | None = getattr(_held, "floor", None)
    if floor is None:
        yield
        return
    _held.floor = None
    floor.lock.release()
    try:
        yield
    finally:
        floor.lock.acquire()
        _held.floor = floor


@contextmanager
def helped_by(crew: Crew, parts: int = 0) -> Iterator[None]:
    """Let threads of a crew move what is long for this one, in so many parts (0: `PARTS`), in the
    body of a `with`."""
    before, _held.help = getattr(_held, "help", None), (crew, parts or PARTS)
    try:
        yield
    finally:
        _held.help = before


def by_parts(nbytes: int, move: Callable[[int, int], None], unit: int = 1) -> None:
    """Move bytes [0, nbytes) by calls of `move`, which takes a range that begins and ends at a
    multiple of `unit`: off the floor, and several at a time where this thread has help.

    Raises:
        What a call raised first; others are done by then.
    """
    help_: tuple[Crew, int] | None = getattr(_held, "help", None)
    with off_the_floor():
        count = min(help_[1], nbytes // PART) if help_ else 1
        if help_ is None or count < 2:
            move(0, nbytes)
            return
        step = -(-nbytes // (count * unit)) * unit
        parts = [
            help_[0].submit(move, low, min(low + step, nbytes)) for low in range(step, nbytes, step)
        ]
        try:
            move(0, step)
        finally:
            wait(parts)
        for part in parts:
            part.result()
