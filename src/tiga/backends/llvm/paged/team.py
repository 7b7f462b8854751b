"""Threads that compute pages."""

from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from threading import Lock
from typing import Any

from tiga.backends.llvm.launcher import Launch, SharedLoop, launch
from tiga.runtime.crew import Crew


class Team:
    """At most `threads` threads that compute: those that call, and while they are fewer, others
    that share the tasks of their kernels and sleep until the next one.

    OpenMP's threads spin for a while when a kernel is done. That is right where one kernel follows
    another; while a page is awaited it keeps the threads that read and write from the cores.
    """

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._others = Crew(max(1, threads - 1), "tiga-compute")
        self._calls, self._lock = 0, Lock()

    def run(self, launches: Iterable[Launch]) -> None:
        """Run kernels, each after the one before."""
        with self._called() as spare:
            for one in launches:
                self._share(one, spare)

    @contextmanager
    def _called(self) -> Iterator[int]:
        """A call for the body of a `with`: how many threads are spare."""
        with self._lock:
            self._calls += 1
            spare = max(0, self.threads - self._calls)
        try:
            yield spare
        finally:
            with self._lock:
                self._calls -= 1

    def _share(self, one: Launch, spare: int) -> None:
        helpers = min(spare, -(-one.num_tasks // one.grain) - 1)
        if helpers <= 0:
            launch(one.kernel, one.args, one.num_tasks, 1)
            return
        loop = SharedLoop(one)
        helped: list[Future[Any]] = []
        with suppress(RuntimeError):  # the system gives no thread: this one does it
            helped += (self._others.submit(loop.work) for _ in range(helpers))
        loop.work()
        for part in helped:
            if not part.cancel():  # who comes too late has nothing left to take
                part.result()

    def __enter__(self) -> "Team":
        return self

    def __exit__(self, *raised: object) -> None:
        self._others.close()
