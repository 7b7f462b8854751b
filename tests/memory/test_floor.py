"""Threads that have the floor in turn."""

import threading
from queue import SimpleQueue
from typing import Any

import numpy as np

from tiga.runtime.floor import Floor, off_the_floor
from tiga.runtime.pages import MemoryRows


def test_one_thread_has_it_at_a_time_and_leaves_it_to_wait() -> None:
    floor, told, order = Floor(), SimpleQueue[None](), []

    def waits() -> None:
        with floor.held():
            order.append("first")
            with off_the_floor():
                told.get(timeout=10)
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
        thread.join(10)
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

    class Target(np.ndarray):
        def __setitem__(self, place: Any, value: Any) -> None:
            found.append(floor.lock.locked())
            super().__setitem__(place, value)

    class Watched(MemoryRows):
        def _typed(self, block: np.ndarray) -> np.ndarray:
            return super()._typed(block).view(Target)

    rows, out = Watched(np.arange(6.0).reshape(3, 2)), np.empty((2, 16), np.uint8)
    with floor.held():
        rows.read_into(1, out)
    rows.read_into(1, out)
    assert found == [False, False]
    assert np.array_equal(out.view(np.float64), [[2, 3], [4, 5]])
