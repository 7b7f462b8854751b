"""Threads that share work."""

import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any


class Crew:
    """Up to `count` threads that take what is submitted in its order; they start with the first.

    An executor of the standard library takes no work once the main thread has ended, where other
    threads of a program may go on; this one does. Its threads are daemons, and end with it when it
    was not closed, as where a program is interrupted on the way there: no program waits for them.

    Example:
        >>> with Crew(2, "adder") as crew:
        ...     crew.submit(sum, [1, 2]).result()
        3
    """

    def __init__(self, count: int, name: str) -> None:
        self.count, self.name = count, name
        self._work: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._starting = threading.Lock()
        weakref.finalize(self, _end, self._work, self._threads).atexit = False

    def submit(self, function: Callable[..., Any], *given: Any) -> "Future[Any]":
        """What a call of `function` gives, or raises; cancelled, it is not made.

        Raises:
            RuntimeError: the system gives no thread.
        """
        if len(self._threads) < self.count:
            with self._starting:
                self._start()
        future: Future[Any] = Future()
        self._work.put((future, lambda: function(*given)))
        return future

    def _start(self) -> None:
        if len(self._threads) >= self.count:
            return  # another thread has started the last
        name = f"{self.name}-{len(self._threads)}"
        thread = threading.Thread(target=_serve, args=(self._work,), name=name, daemon=True)
        self._threads.append(thread)  # first: an interrupt may come when it has started
        try:
            thread.start()
        except RuntimeError:
            self._threads.remove(thread)
            if not self._threads:
                raise
            # else those that are there do it

    def close(self) -> None:
        """Finish what was submitted and end the threads."""
        threads = list(self._threads)
        _end(self._work, self._threads)
        for thread in threads:
            if thread.is_alive():
                thread.join()

    def __enter__(self) -> "Crew":
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()


def _end(work: "SimpleQueue[Any]", threads: list[threading.Thread]) -> None:
    """Let so many threads end, once."""
    while threads:
        threads.pop()
        work.put(None)


def _serve(work: "SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None]") -> None:
    while (item := work.get()) is not None:
        _do(*item)
        del item  # and with it what the work refers to


def _do(future: "Future[Any]", call: Callable[[], Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = call()
    except BaseException as error:  # raised again by whom it works for
        future.set_exception(error)
        del future  # the error's traceback has this call: the two would hold each other
    else:
        future.set_result(result)
