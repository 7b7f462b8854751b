"""Pages side by side: each is done once, in memory of its own; an error of any ends them all."""

import itertools
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest

from tiga.backends.llvm.paged.launch import Pieces
from tiga.paging.lanes import Lanes
from tiga.paging.pipeline import Arenas, Job
from tiga.paging.span import Span, Spans
from tiga.runtime.arena import Arena

NBYTES = 4096


class Page:
    def __init__(self, number: Any, finish: Iterable[Callable[[], None]] = ()) -> None:
        self.number, self.finish = number, list(finish)


def never() -> Iterable[Job]:
    raise AssertionError("it fits")


def run(jobs: Iterable[Job], arenas: int, one_by_one: bool = False) -> None:
    """Do the jobs; all arenas are free afterwards, whatever happens."""
    page = Span(0, 1, (0, 1), ((0, 1),), nbytes=NBYTES)
    pool = Arenas(lambda nbytes: lambda: None)
    pool.provide(Spans((page,), arenas), arenas * NBYTES)
    try:
        Lanes(pool, one_by_one).run(jobs)
    finally:
        assert pool.free.qsize() == arenas
        assert not any(t.name.startswith("tiga-page") for t in threading.enumerate())


@pytest.mark.parametrize("arenas", [1, 2, 5])
def test_each_page_is_done_once_in_memory_of_its_own(arenas: int) -> None:
    written: list[int] = []
    held: set[int] = set()

    def job(number: int) -> Job:
        def read(arena: Arena) -> Page:
            assert arena.address not in held
            held.add(arena.address)
            block = arena.take(8, np.dtype(np.uint8))
            block[:] = number
            time.sleep(0.001 * (number % 3))

            def write() -> None:
                written.append(int(block[0]))
                held.discard(arena.address)

            return Page(number, [write])

        return Job(read, lambda page: None, never)

    run(map(job, range(60)), arenas)
    assert sorted(written) == list(range(60))


def test_pages_are_done_at_the_same_time() -> None:
    meeting = threading.Barrier(3)
    job = Job(lambda arena: Page(0), lambda page: meeting.wait(300) and None, never)
    run([job] * 3, 3)


def test_one_page_stores_at_a_time_where_they_must() -> None:
    storing = threading.Lock()

    def store() -> None:
        assert storing.acquire(blocking=False)
        time.sleep(0.001)
        storing.release()

    run([Job(lambda arena: Page(0, [store]), lambda page: None, never)] * 30, 4, True)


def test_what_does_not_fit_is_cut() -> None:
    done: list[Any] = []

    def job(name: Any, nbytes: int) -> Job:
        def read(arena: Arena) -> Page:
            arena.take(nbytes, np.dtype(np.uint8))
            return Page(name)

        def smaller() -> Iterable[Job]:
            return (job((name, i), nbytes // 2) for i in range(2))

        return Job(read, lambda page: done.append(page.number), smaller)

    run([job(0, 10), job(1, 3 * NBYTES), job(2, NBYTES)], 2)
    large = [((1, i), j) for i in range(2) for j in range(2)]
    assert sorted(done, key=str) == sorted([0, *large, 2], key=str)


@pytest.mark.parametrize("stage", ["read", "run", "write", "next"])
def test_an_error_ends_it(stage: str) -> None:
    """Of more pages than there is time for."""

    def fails(number: int, where: str) -> None:
        if number == 5 and where == stage:
            raise RuntimeError(f"page {number}")

    def job(number: int) -> Job:
        fails(number, "next")

        def read(arena: Arena) -> Page:
            fails(number, "read")
            return Page(number, [lambda: fails(number, "write")])

        return Job(read, lambda page: fails(page.number, "run"), never)

    with pytest.raises(RuntimeError, match="page 5"):
        run(map(job, itertools.count()), 3)


def test_partial_sums_have_the_order_of_rows_whichever_page_was_first() -> None:
    node: Any = "sum"
    pieces = Pieces()
    for first in (20, 0, 10):
        block = np.array([[first], [first + 1], [first + 2]], np.uint8)
        pieces.add(node, first, block, 2)
    assert pieces.tasks(node) == 6
    assert pieces.whole(node).ravel().tolist() == [0, 1, 10, 11, 20, 21, 2, 12, 22]
