"""Locks for what finalizers change.

A collection runs finalizers at any point of any thread. One that waited for a lock would wait for
ever where the thread that has the lock waits for this one; one that found the lock its own thread's
would come in the middle of another change. So finalizers take no turn: what they have to do is left
here, and done at once if nobody has the lock, else by whoever has it, after their change.
"""

import threading
from collections import deque
from collections.abc import Callable
from typing import Any


class Turns:
    """A lock, for the body of a `with`, and work that waits until nobody has it.

    Example:
        >>> turns, done = Turns(), []
        >>> with turns:
        ...     turns.later(lambda: done.append("later"))
        ...     done.append("first")
        >>> done
        ['first', 'later']
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._left: deque[Callable[[], Any]] = deque()

    def __enter__(self) -> None:
        self._lock.acquire()
        try:
            self._catch_up()
        except BaseException:
            self._lock.release()
            raise

    def __exit__(self, *raised: object) -> None:
        self._lock.release()
        self.settle()

    def later(self, work: Callable[[], Any]) -> None:
        """Do `work` when nobody has the lock: now, or when it is given back. Never waits."""
        self._left.append(work)
        self.settle()

    def settle(self) -> None:
        """Do what is left, unless somebody has the lock and will."""
        # Looked at again after the lock is free: what came meanwhile found it taken.
        while self._left and self._lock.acquire(blocking=False):
            try:
                self._catch_up()
            finally:
                self._lock.release()

    def _catch_up(self) -> None:
        while self._left:
            self._left.popleft()()
