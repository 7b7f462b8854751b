"""Pages through memory: asked of the disk ahead of time, computed in order, written behind.

What will be read is announced to the system, which fetches it while pages are computed: pages take
memory once only, and no thread of ours takes a core from the kernels.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from itertools import islice
from queue import SimpleQueue
from typing import Any

from tiga.paging.span import NOTHING_HELD, Held, Spans
from tiga.runtime.arena import Arena, ArenaFull


@dataclass(frozen=True)
class Job:
    """One page: `expect` announces what it reads, `read` stages it in an arena, `run` computes
    what that gives. If it does not fit after all, `smaller` are the jobs that take its place."""

    expect: Callable[[], None]
    read: Callable[[Arena], Any]
    run: Callable[[Any], None]
    smaller: Callable[[], Iterable["Job"]]

    def attempt(self, arena: Arena) -> Any:
        """The page; None if it does not fit the arena."""
        try:
            return self.read(arena)
        except ArenaFull:
            return None


@dataclass
class Arenas:
    """The memory that pages are staged in, kept from step to step while it serves.

    `charge` counts bytes as used and returns what takes them back.
    """

    charge: Callable[[int], Callable[[], None]]
    free: "SimpleQueue[Arena]" = field(default_factory=SimpleQueue)
    held: Held = NOTHING_HELD
    _uncharge: Callable[[], None] | None = None

    def provide(self, spans: Spans, limit: int) -> None:
        """Have the memory for a step, of which all that there is must be free."""
        needed = self.held.after(spans, limit)
        if needed is self.held:
            return
        self.close()
        self._uncharge = self.charge(needed.count * needed.nbytes)
        self.held = needed
        for _ in range(needed.count):
            self.free.put(Arena(needed.nbytes))

    def close(self) -> None:
        """Give the memory back."""
        self.free = SimpleQueue()
        self.held = NOTHING_HELD
        if self._uncharge is not None:
            self._uncharge()
            self._uncharge = None


@dataclass
class Pipeline:
    """One step's pages after another; `depth` of them are announced ahead of the one that is
    computed.

    A page's arena is free again when its results are written. `helpers` are two threads: one
    announces, one writes.
    """

    arenas: Arenas
    depth: int
    helpers: "Helpers"
    written: "deque[Future[None]]" = field(default_factory=deque)

    def run(self, jobs: Iterable[Job]) -> None:
        """Do all jobs.

        Raises:
            What reading, computing or writing raised first.
        """
        try:
            for job in self._announced(iter(jobs)):
                arena = self.arenas.free.get()
                self._do(job, arena, job.attempt(arena))
        finally:
            wait(self.written)  # its memory may go only then
        while self.written:
            self.written.popleft().result()

    def _announced(self, left: Iterator[Job]) -> Iterator[Job]:
        ahead = deque(islice(left, self.depth))
        while ahead or not self.depth:
            job = next(left, None)
            if job is not None:
                ahead.append(job)
                if self.depth:
                    self.helpers.announcer.submit(job.expect)
            if not ahead:
                return
            yield ahead.popleft()

    def _do(self, job: Job, arena: Arena, page: Any) -> None:
        if page is None:
            self._release(arena)
            for part in job.smaller():
                arena = self.arenas.free.get()
                self._do(part, arena, part.attempt(arena))
            return
        job.run(page)
        if not page.finish:
            self._release(arena)
            return
        self.written.append(self.helpers.writer.submit(self._finish, page.finish, arena))
        while self.written and self.written[0].done():
            self.written.popleft().result()

    def _finish(self, stores: Iterable[Callable[[], None]], arena: Arena) -> None:
        try:
            for store in stores:
                store()
        finally:
            self._release(arena)

    def _release(self, arena: Arena) -> None:
        arena.reset()
        self.arenas.free.put(arena)


class Helpers:
    """The threads of a run, which start with their first work."""

    def __init__(self) -> None:
        self.announcer = ThreadPoolExecutor(1, "tiga-announce")
        self.writer = ThreadPoolExecutor(1, "tiga-write")

    def __enter__(self) -> "Helpers":
        return self

    def __exit__(self, *raised: object) -> None:
        self.announcer.shutdown(cancel_futures=True)
        self.writer.shutdown()
