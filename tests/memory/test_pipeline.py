"""Pages: computed in order, however many are read ahead; and errors of any of them."""

import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest

from tiga.paging.pipeline import Arenas, Helpers, Job, Pipeline
from tiga.paging.span import Span, Spans
from tiga.runtime.arena import Arena

NBYTES = 4096


class Page:
    def __init__(self, number: int, finish: list[Callable[[], None]]) -> None:
        self.number, self.finish = number, finish


def run(jobs: Iterable[Job], arenas: int, depth: int) -> Arenas:
    """Do the jobs; all arenas are free afterwards."""
    page = Span(0, 1, (0, 1), ((0, 1),), nbytes=NBYTES)
    pool = Arenas(lambda nbytes: lambda: None)
    pool.provide(Spans((page,), arenas), arenas * NBYTES)
    with Helpers() as helpers:
        Pipeline(pool, depth, helpers).run(jobs)
    return pool


def never() -> Iterable[Job]:
    raise AssertionError("it fits")


@pytest.mark.parametrize("depth", [0, 1, 5])
@pytest.mark.parametrize("arenas", [1, 2, 4])
def test_pages_are_computed_in_order_and_each_in_memory_of_its_own(arenas: int, depth: int) -> None:
    computed: list[int] = []
    written: list[int] = []
    held: set[int] = set()
    most, lock = [0], threading.Lock()

    def job(number: int) -> Job:
        def read(arena: Arena) -> Page:
            with lock:
                assert arena.address not in held
                held.add(arena.address)
                most[0] = max(most[0], len(held))
            block = arena.take(8, np.dtype(np.uint8))
            block[:] = number
            time.sleep(0.001 * (number % 3))

            def write() -> None:
                written.append(int(block[0]))
                with lock:
                    held.discard(arena.address)

            return Page(number, [write])

        return Job(read, lambda page: computed.append(page.number), never)

    pool = run(map(job, range(30)), arenas, depth)
    assert computed == written == list(range(30))
    assert pool.free.qsize() == arenas
    assert most[0] <= arenas


@pytest.mark.parametrize("arenas", [1, 3])
def test_what_does_not_fit_is_cut_while_others_are_read(arenas: int) -> None:
    done: list[Any] = []

    def job(name: Any, nbytes: int, parts: int) -> Job:
        def read(arena: Arena) -> Page:
            arena.take(nbytes, np.dtype(np.uint8))
            return Page(name, [])

        def smaller() -> Iterable[Job]:
            return (job((name, i), nbytes // parts, parts) for i in range(parts))

        return Job(read, lambda page: done.append(page.number), smaller)

    run([job(0, 10, 2), job(1, 3 * NBYTES, 2), job(2, 10, 2)], arenas, 2)
    large = [((1, i), j) for i in range(2) for j in range(2)]
    assert done == [0, *large, 2]


@pytest.mark.parametrize("stage", ["read", "run", "write"])
def test_an_error_ends_it(stage: str) -> None:
    started: list[int] = []

    def fails(number: int, where: str) -> None:
        if number == 5 and where == stage:
            raise RuntimeError(f"page {number}")

    def job(number: int) -> Job:
        def read(arena: Arena) -> Page:
            started.append(number)
            fails(number, "read")
            return Page(number, [lambda: fails(number, "write")])

        return Job(read, lambda page: fails(page.number, "run"), never)

    with pytest.raises(RuntimeError, match="page 5"):
        run(map(job, range(1000)), 3, 2)
    assert len(started) < 100
