"""The order in which a thread takes locks: no two threads then ever wait for one another.

A thread that holds a lock takes only locks that stand further down. What needs one further up is
done before, or after: room for a value that comes back is made before the value's own lock is
taken, as that may move others out. Locks during which none is taken (of an account, a stream, the
pool of memory) need no place.
"""

import threading

ORDER = (
    "hierarchy",  # instances of a `HierarchyRuntime`
    "scope",  # what is charged to an execution scope, and making room there
    "moves",  # a block on its way out of memory
    "value",  # a value that is not in memory, on its way back
    "spill file",  # of a scope, made at its first use
)


class Ordered:
    """A lock with a place in `ORDER`, for the body of a `with`; its thread may take it again.

    Example:
        >>> first, last = Ordered("scope"), Ordered("value")
        >>> with first, last:
        ...     pass
        >>> with last, first:
        ...     pass
        Traceback (most recent call last):
        ...
        AssertionError: a thread that holds the lock of a value takes that of a scope
    """

    __slots__ = ("_lock", "name", "place")

    def __init__(self, name: str) -> None:
        self.name, self.place = name, ORDER.index(name)
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        held = _thread.held
        for other in held if self not in held else ():
            assert other.place < self.place, (
                f"a thread that holds the lock of a {other.name} takes that of a {self.name}"
            )
        self._lock.acquire()
        held.append(self)

    def __exit__(self, *raised: object) -> None:
        _thread.held.pop()
        self._lock.release()


class _Thread(threading.local):
    """What a thread holds, in the order in which it took it."""

    def __init__(self) -> None:
        self.held: list[Ordered] = []


_thread = _Thread()
