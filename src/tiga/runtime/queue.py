"""Streams of work in order on threads of their own, and the events by which they wait."""

import threading
from collections.abc import Callable, Iterable
from queue import SimpleQueue
from typing import Any


class Event:
    """When something is done, and whether it failed.

    Example:
        >>> event = Event()
        >>> event.query()
        False
        >>> event.set()
        >>> event.wait()
        >>> event.ready
        True
    """

    __slots__ = ("_done", "_error")

    def __init__(self, done: bool = False) -> None:
        self._done = threading.Event()
        self._error: BaseException | None = None
        if done:
            self._done.set()

    def query(self) -> bool:
        """Whether it is done."""
        return self._done.is_set()

    @property
    def ready(self) -> bool:
        """Whether it is done."""
        return self.query()

    def set(self, error: BaseException | None = None) -> None:
        """Mark as done, or as failed with an error that `wait` raises."""
        self._error = error
        self._done.set()

    def wait(self) -> None:
        """Return when it is done; raise what it failed with."""
        self._done.wait()
        if self._error is not None:
            raise self._error

    def settle(self) -> None:
        """Return when it is done or has failed."""
        self._done.wait()


READY = Event(done=True)
"""What is there already."""

_STOP: Any = None


class Stream:
    """Work done in order of submission, on one thread that starts with the first piece.

    Example:
        >>> with Stream() as stream:
        ...     stream.submit(lambda: None).wait()
    """

    def __init__(self, name: str = "tiga-stream") -> None:
        self.name = name
        self._work: SimpleQueue[Any] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._last = READY
        self._lock = threading.Lock()
        self._after: list[Event] = []

    def submit(
        self, work: Callable[[], Any], after: Iterable[Event] = (), behind: Iterable[Event] = ()
    ) -> Event:
        """Do `work` after everything submitted before it and after these events.

        Work `after` a failed event is not done: its own event fails with the same error. Work
        `behind` an event only waits for it, however it ends.
        """
        done = Event()
        with self._lock:
            events = (*self._after, *after)
            self._after = []
            self._start()
            self._work.put((work, events, tuple(behind), done))
            self._last = done
        return done

    def wait_event(self, event: Event) -> None:
        """Let what is submitted next wait for an event."""
        with self._lock:
            self._after.append(event)

    def record_event(self) -> Event:
        """The event of all that was submitted so far."""
        return self._last

    def synchronize(self) -> None:
        """Return when everything submitted is done; raise what the last piece failed with."""
        self._last.wait()

    def close(self) -> None:
        """Finish what was submitted and end the thread."""
        with self._lock:
            thread, self._thread = self._thread, None
        if thread is not None:
            self._work.put(_STOP)
            thread.join()

    def __enter__(self) -> "Stream":
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def _start(self) -> None:
        # The thread of a parent process is not there after a fork.
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while (item := self._work.get()) is not _STOP:
            work, events, behind, done = item
            try:
                for event in behind:
                    event.settle()
                for event in events:
                    event.wait()
                work()
            except BaseException as error:
                done.set(error)
            else:
                done.set()
            del item, work, events, behind, done
