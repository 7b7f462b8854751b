"""One thread at a time at work in Python, where several prepare pages.

Every call of numpy or of the system leaves Python's own lock and takes it again, tens of times for
a page; while other threads want it, each time one of them is woken, which takes longer than most
of these calls. So such threads have the floor in turn, and leave it where they read, copy or wait
for long.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager


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
