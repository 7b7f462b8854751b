"""Threads that share work."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any


class Crew:
    """Up to `count` threads that take what is submitted in its order; they start with the first.

    An executor of the standard library takes no work once the main thread has ended, where other
    threads of a program may go on; this one does. Its threads are daemons where the one that
    submits is, so that a program may end while such a one computes.

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
        thread = threading.Thread(target=_serve, args=(self._work,), name=name)
        try:
            thread.start()
        except RuntimeError:
            if not self._threads:
                raise
            return  # those that are there do it
        self._threads.append(thread)

    def close(self) -> None:
        """Finish what was submitted and end the threads."""
        for _ in self._threads:
            self._work.put(None)
        for thread in self._threads:
            thread.join()
        self._threads = []

    def __enter__(self) -> "Crew":
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()


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
    else:
        future.set_result(result)
