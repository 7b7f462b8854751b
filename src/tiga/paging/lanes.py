"""Pages side by side: each of several threads reads a page, computes it, writes what it gives, and
takes the next.

Nothing waits for another page: while some are read or written others are computed, and what a core
has read is in its caches when it computes. For pages that may be computed in any order.
"""

from collections.abc import Iterable, Iterator
from concurrent.futures import wait
from contextlib import nullcontext
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

from tiga.paging.pipeline import Arenas, Job
from tiga.runtime.arena import Arena
from tiga.runtime.crew import Crew


@dataclass
class Lanes:
    """One step's pages, one at a time in each arena there is.

    `one_by_one` where pages store rows among those of others, so that only one may at a time.
    """

    arenas: Arenas
    one_by_one: bool = False
    _storing: Any = field(default_factory=Lock)

    def run(self, jobs: Iterable[Job]) -> None:
        """Do all jobs.

        Raises:
            What reading, computing or writing raised first.
        """
        left, count = Left(iter(jobs)), self.arenas.held.count
        with Crew(count, "tiga-page") as crew:
            try:
                wait([crew.submit(self._serve, left) for _ in range(count)])
            finally:
                left.end()
        left.raise_first()

    def _serve(self, left: "Left") -> None:
        arena = self.arenas.free.get()
        try:
            for job in left:
                self._do(job, arena)
        except BaseException as error:  # raised again by whom it works for
            left.end(error)
        finally:
            arena.reset()
            self.arenas.free.put(arena)

    def _do(self, job: Job, arena: Arena) -> None:
        arena.reset()
        page = job.attempt(arena)
        if page is None:
            for part in job.smaller():
                self._do(part, arena)
            return
        job.run(page)
        with self._storing if self.one_by_one else nullcontext():
            for store in page.finish:
                store()


class Left:
    """The jobs that nobody has taken, and what failed: then no more are."""

    def __init__(self, jobs: Iterator[Job]) -> None:
        self._jobs, self._lock, self._ended = jobs, Lock(), False
        self._failed: list[BaseException] = []

    def __iter__(self) -> Iterator[Job]:
        while (job := self._next()) is not None:
            yield job

    def _next(self) -> Job | None:
        with self._lock:
            return None if self._ended else next(self._jobs, None)

    def end(self, error: BaseException | None = None) -> None:
        """Let nobody take another."""
        self._ended = True
        if error is not None:
            self._failed.append(error)

    def raise_first(self) -> None:
        """Raise what failed first, if something did, and keep none of it: an error holds on to all
        that the calls on its way did."""
        failed, self._failed = self._failed, []
        try:
            if failed:
                raise failed[0]
        finally:
            del failed
