"""Threads that compute pages."""

from collections.abc import Iterable

from tiga.backends.llvm.launcher import Launch, SharedLoop, launch
from tiga.runtime.crew import Crew


class Team:
    """`threads` threads, the caller's included, that share the tasks of a kernel and sleep until
    the next one.

    OpenMP's threads spin for a while when a kernel is done. That is right where one kernel follows
    another; while a page is awaited it keeps the threads that read and write from the cores.
    """

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._others = Crew(max(1, threads - 1), "tiga-compute")

    def run(self, launches: Iterable[Launch]) -> None:
        """Run kernels, each after the one before."""
        for one in launches:
            self._share(one)

    def _share(self, one: Launch) -> None:
        count = min(self.threads, -(-one.num_tasks // one.grain))
        if count <= 1:
            launch(one.kernel, one.args, one.num_tasks, 1)
            return
        loop = SharedLoop(one)
        helped = [self._others.submit(loop.work) for _ in range(count - 1)]
        loop.work()
        for part in helped:
            if not part.cancel():  # who comes too late has nothing left to take
                part.result()

    def __enter__(self) -> "Team":
        return self

    def __exit__(self, *raised: object) -> None:
        self._others.close()
