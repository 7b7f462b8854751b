"""Pages through memory: read ahead by threads of their own, computed in order, written behind."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, wait
from contextlib import nullcontext
from dataclasses import dataclass, field
from queue import SimpleQueue
from threading import Lock
from typing import Any

from tiga.paging.span import NOTHING_HELD, Course, Held
from tiga.runtime.arena import Arena, ArenaFull
from tiga.runtime.crew import Crew

READERS = 2
"""Pages that are read at a time: where one waits for the disk, another is checked."""

WRITERS = 1
"""Pages that are written at a time."""


@dataclass(frozen=True)
class Job:
    """One page: `read` stages it in an arena, `run` computes what that gives. If it does not fit
    after all, `smaller` are the jobs that take its place. One that is `at_hand` takes no longer to
    stage than to hand over to another thread."""

    read: Callable[[Arena], Any]
    run: Callable[[Any], None]
    smaller: Callable[[], Iterable["Job"]]
    at_hand: bool = False

    def attempt(self, arena: Arena) -> Any:
        """The page; None if it does not fit the arena."""
        try:
            return self.read(arena)
        except ArenaFull:
            return None


def never() -> Iterator[Job]:
    """What takes the place of a page whose size is certain."""
    raise AssertionError("a page took more memory than was planned")


@dataclass(eq=False)
class Arenas:
    """The memory that pages are staged in, kept from step to step while it serves.

    `charge` counts bytes as used and returns what takes them back, `make` gives an arena of so
    many bytes.
    """

    charge: Callable[[int], Callable[[], None]]
    make: Callable[[int], Arena] = Arena
    free: "SimpleQueue[Arena]" = field(default_factory=SimpleQueue)
    held: Held = NOTHING_HELD
    _uncharge: Callable[[], None] | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of all of them."""
        return self.held.count * self.held.nbytes

    def provide(self, spans: Course, limit: int) -> None:
        """Have the memory for a step, of which all that there is must be free."""
        needed = self.held.after(spans, limit)
        if needed is self.held:
            return
        self.close()
        self._uncharge = self.charge(needed.count * needed.nbytes)
        self.held = needed
        for _ in range(needed.count):
            self.free.put(self.make(needed.nbytes))

    def borrow(self, use: Callable[[Arena], None]) -> None:
        """Use an arena between pages."""
        arena = self.free.get()
        try:
            arena.reset()
            use(arena)
        finally:
            arena.reset()
            self.free.put(arena)

    def leave(self) -> None:
        """Count the memory as used no longer, though it stays: somebody else counts it."""
        self._uncount()
        self.charge = _counted_elsewhere

    def _uncount(self) -> None:
        uncharge, self._uncharge = self._uncharge, None
        if uncharge is not None:
            uncharge()

    def resume(self, charge: Callable[[int], Callable[[], None]]) -> None:
        """Count it as used again, in another call."""
        self.charge = charge
        self._uncharge = charge(self.nbytes)

    def close(self) -> None:
        """Give the memory back."""
        self.free = SimpleQueue()
        self.held = NOTHING_HELD
        self._uncount()


def _counted_elsewhere(nbytes: int) -> Callable[[], None]:
    raise AssertionError("memory of pages is asked for where nobody counts it")


@dataclass
class Pipeline:
    """One step's pages after another; up to `depth` of them are read ahead of the one that is
    computed, as far as there are arenas.

    A page's arena is free again when its results are written. `helpers` are the threads that read
    and write; `one_by_one` where pages store rows among those of others, so that only one may.
    """

    arenas: Arenas
    depth: int
    helpers: "Helpers"
    one_by_one: bool = False
    ahead: "deque[Ahead]" = field(default_factory=deque)
    written: "deque[Future[None]]" = field(default_factory=deque)
    _turn: Lock = field(default_factory=Lock)

    def run(self, jobs: Iterable[Job]) -> None:
        """Do all jobs.

        Raises:
            What reading, computing or writing raised first.
        """
        left = iter(jobs)
        try:
            while self._read_ahead(left):
                self._do(*self.ahead.popleft().read())
        finally:
            # Their memory may go only then.
            for one in self.ahead:
                one.page.cancel()
            wait([one.page for one in self.ahead])
            self.ahead.clear()
            wait(self.written)
        while self.written:
            self.written.popleft().result()

    def _read_ahead(self, left: Iterator[Job]) -> bool:
        """Start to read as many pages as may be, one at least; False when there are none left."""
        while not self.ahead or (len(self.ahead) <= self.depth and not self.arenas.free.empty()):
            job = next(left, None)
            if job is None:
                break
            arena = self.arenas.free.get()
            page = self.helpers.read(job, arena)
            self.ahead.append(Ahead(job, arena, page))
        return bool(self.ahead)

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
        self.written.append(self.helpers.writers.submit(self._finish, page.finish, arena))
        while self.written and self.written[0].done():
            self.written.popleft().result()

    def _finish(self, stores: Iterable[Callable[[], None]], arena: Arena) -> None:
        try:
            with self._turn if self.one_by_one else nullcontext():
                for store in stores:
                    store()
        finally:
            self._release(arena)

    def _release(self, arena: Arena) -> None:
        arena.reset()
        self.arenas.free.put(arena)


@dataclass(frozen=True)
class Ahead:
    """A page that is being read."""

    job: Job
    arena: Arena
    page: "Future[Any]"

    def read(self) -> tuple[Job, Arena, Any]:
        """The job, and the page when it is there."""
        job, arena, page = self.job, self.arena, self.page
        del self  # what reading raises knows this call, and should not be known by it
        try:
            return job, arena, page.result()
        finally:
            del page


class Helpers:
    """The threads of a run, which start with their first work."""

    def __init__(self, readers: int = READERS, writers: int = WRITERS) -> None:
        self.readers = Crew(readers, "tiga-read")
        self.writers = Crew(writers, "tiga-write")

    def read(self, job: Job, arena: Arena) -> "Future[Any]":
        """The page of a job, when it is there."""
        if not job.at_hand:
            return self.readers.submit(job.attempt, arena)
        page: Future[Any] = Future()
        try:
            page.set_result(job.attempt(arena))
        except BaseException as error:  # raised again where the page is asked for
            page.set_exception(error)
        return page

    def __enter__(self) -> "Helpers":
        return self

    def __exit__(self, *raised: object) -> None:
        try:
            self.readers.close()
        finally:
            self.writers.close()
