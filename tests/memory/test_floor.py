"""Threads that have the floor in turn."""

import threading
from queue import SimpleQueue
from typing import Any

import numpy as np
import pytest

from tiga.runtime.crew import Crew
from tiga.runtime.floor import PART, Floor, by_parts, helped_by, off_the_floor
from tiga.runtime.pages import MemoryRows

PATIENCE = 300.0


def test_one_thread_has_it_at_a_time_and_leaves_it_to_wait() -> None:
    floor, told, order = Floor(), SimpleQueue[None](), []

    def waits() -> None:
        with floor.held():
            order.append("first")
            with off_the_floor():
                told.get(timeout=PATIENCE)
            order.append("third")

    def speaks() -> None:
        with floor.held():
            order.append("second")
            told.put(None)

    threads = [threading.Thread(target=waits), threading.Thread(target=speaks)]
    threads[0].start()
    while not order:
        pass
    threads[1].start()
    for thread in threads:
        thread.join(PATIENCE)
    assert order == ["first", "second", "third"]


def test_what_fails_off_the_floor_comes_back_to_it() -> None:
    floor = Floor()
    with floor.held():
        try:
            with off_the_floor():
                assert not floor.lock.locked()
                raise ValueError
        except ValueError:
            assert floor.lock.locked()
    assert not floor.lock.locked()


def test_rows_are_copied_off_the_floor() -> None:
    floor, found = Floor(), []

    class Watched(np.ndarray):
        def __setitem__(self, key: Any, value: Any) -> None:
            found.append(floor.lock.locked())
            super().__setitem__(key, value)

    class Rows(MemoryRows):
        def _typed(self, block: np.ndarray) -> np.ndarray:
            return super()._typed(block).view(Watched)

    rows, out = Rows(np.arange(6.0).reshape(3, 2)), np.empty((2, 16), np.uint8)
    with floor.held():
        rows.read_into(1, out)
    rows.read_into(1, out)
    assert found == [False, False]
    assert np.array_equal(out.view(np.float64), [[2, 3], [4, 5]])


@pytest.mark.parametrize("nbytes", [0, 5, PART - 1, 2 * PART, 5 * PART + 3])
def test_every_byte_is_moved_once(nbytes: int) -> None:
    moved, threads = np.zeros(nbytes, np.uint8), set[str]()

    def move(low: int, high: int) -> None:
        moved[low:high] += 1
        threads.add(threading.current_thread().name)

    by_parts(nbytes, move)
    assert len(threads) == 1
    with Crew(2, "helper") as crew, helped_by(crew, 3):
        by_parts(nbytes, move)
    by_parts(nbytes, move)
    assert (moved == 3).all()
    assert any(name.startswith("helper") for name in threads) == (nbytes >= 2 * PART)


def test_parts_begin_at_whole_units() -> None:
    found = []
    with Crew(2, "helper") as crew, helped_by(crew, 4):
        by_parts(7 * PART, lambda low, high: found.append((low, high)), unit=PART)
    assert sorted(found) == [(0, 2 * PART), (2 * PART, 4 * PART), (4 * PART, 6 * PART),
                             (6 * PART, 7 * PART)]  # fmt: skip


@pytest.mark.parametrize("fails", [0, 2 * PART])
def test_a_part_that_fails(fails: int) -> None:
    """It is raised when the others are done; the floor is had again."""
    done, floor = [], Floor()

    def move(low: int, high: int) -> None:
        if low == fails:
            raise OSError("a part")
        done.append(low)

    with Crew(2, "helper") as crew, helped_by(crew, 4), floor.held():
        with pytest.raises(OSError, match="a part"):
            by_parts(4 * PART, move)
        assert floor.lock.locked()
    assert len(done) == 3
