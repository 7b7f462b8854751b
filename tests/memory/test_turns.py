"""What finalizers do, wherever a collection runs them: nothing waits, nothing comes in between."""

import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tiga.runtime.scope import Scope
from tiga.runtime.spill import SpillFile
from tiga.runtime.tiers import Account
from tiga.runtime.turns import Turns

PATIENCE = 300.0
"""Seconds after which a thread counts as stuck."""


def while_another_has(turns: Turns, work: Callable[[], None]) -> None:
    """Do `work` while another thread is within `turns`, which it leaves afterwards."""
    inside, leave = threading.Event(), threading.Event()

    def holds() -> None:
        with turns:
            inside.set()
            leave.wait(PATIENCE)

    holder, worker = threading.Thread(target=holds), threading.Thread(target=work, daemon=True)
    holder.start()
    assert inside.wait(PATIENCE)
    worker.start()
    worker.join(PATIENCE)
    stuck = worker.is_alive()
    leave.set()
    holder.join()
    assert not stuck


def test_what_is_left_is_done_once_and_after_the_change() -> None:
    turns, done = Turns(), list[int]()
    with turns:
        turns.later(lambda: done.append(1))
        turns.later(lambda: done.append(2))
        assert done == []
    assert done == [1, 2]
    while_another_has(turns, lambda: turns.later(lambda: done.append(3)))
    assert done == [1, 2, 3]


def test_an_error_of_what_is_left_keeps_no_lock() -> None:
    turns = Turns()

    def fails() -> None:
        raise RuntimeError("of a finalizer")

    turns._left.append(fails)
    with pytest.raises(RuntimeError, match="finalizer"), turns:
        raise AssertionError("the body is not reached")
    with turns:
        pass


def test_many_threads_lose_nothing() -> None:
    account = Account("host")

    def work() -> None:
        for _ in range(2000):
            account.release(account.charge(7, "some"))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert (account.live, account.holders) == (0, {})


def test_freed_memory_waits_for_no_thread(tmp_path: Path) -> None:
    """A thread may hold any of the locks and wait for the one that a collection runs in."""
    scope = Scope(spill_dir=tmp_path)
    kept = [np.ones(100) for _ in range(3)]
    for array in kept:
        scope.adopt(array, "an array")
    extents = [scope.spill(b"x" * 5000, "bytes") for _ in range(3)]
    del array

    def frees() -> None:
        kept.pop()
        extents.pop()

    for turns in (scope.host._turns, scope.disk._turns, scope.file._turns):
        while_another_has(turns, frees)
    assert (scope.host.live, scope.disk.live, scope.file.nbytes) == (0, 0, 0)
    scope.adopt(mine := np.ones(100), "an array")
    with scope._lock:
        freer = threading.Thread(target=lambda held: held.clear(), args=([mine],), daemon=True)
        del mine
        freer.start()
        freer.join(PATIENCE)
        assert not freer.is_alive()
    assert scope.host.live == 0


def test_an_extent_freed_in_the_middle_of_an_allocation_comes_after(tmp_path: Path) -> None:
    """A list of free extents that changes while one is taken from it would give one out twice."""
    with SpillFile(tmp_path) as file:
        first, second = file.allocate(5000), file.allocate(5000)
        with file._turns:
            before = list(file._free)
            file.free(first, 5000)
            assert file._free == before
        assert file.allocate(5000) == first
        file.free(second, 5000)
        file.free(first, 5000)
        assert (file.nbytes, file._free) == (0, [])
