"""Locks are taken in one order, and threads that share values and budgets get the right ones."""

import contextvars
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

import tiga as tg
from tiga.backends.triton.dense.run import Room
from tiga.backends.triton.machine import Interpreter
from tiga.errors import InvalidState
from tiga.runtime.locks import ORDER, Ordered
from tiga.runtime.scope import Scope
from tiga.runtime.tiers import Account

PATIENCE = 300.0
ELEMENTS = 4096
NBYTES = 4 * ELEMENTS


@pytest.fixture(autouse=True)
def in_small_steps() -> Iterator[None]:
    """Threads take turns as often as Python lets them: what may go wrong between two, soon does."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def test_a_thread_takes_locks_in_one_direction() -> None:
    locks = [Ordered(name) for name in ORDER]
    for i, first in enumerate(locks):
        for j, second in enumerate(locks):
            if i < j:
                with first, second, first, second:  # again, as it has them
                    pass
            elif i > j:
                with pytest.raises(AssertionError, match=f"of a {ORDER[j]}$"), first, second:
                    pass
    for lock in locks:
        assert in_thread(lambda lock=lock: lock.__enter__())  # nothing was left taken


def test_two_of_a_kind_are_never_held() -> None:
    with Ordered("scope"), pytest.raises(AssertionError), Ordered("scope"):
        pass


def test_what_a_thread_took_before_it_took_another_again_still_counts() -> None:
    scope, value = Ordered("scope"), Ordered("value")
    with scope, value, scope, pytest.raises(AssertionError), Ordered("moves"):
        pass


def test_what_one_thread_holds_does_not_bind_others() -> None:
    scope, value = Ordered("scope"), Ordered("value")

    def other() -> None:
        with scope:
            pass

    with value:
        assert in_thread(other)


def in_thread(work: Callable[[], Any]) -> bool:
    """Do it in a thread of its own; whether it ended."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    return not thread.is_alive()


def use(values: list[tg.Tensor], seed: int) -> None:
    """Read them all, in some order, beside values of one's own that need the same room."""
    rng = np.random.default_rng(seed)
    for _ in range(3):
        own = [tg.full(ELEMENTS, float(i)) for i in range(6)]
        for i in rng.permutation(len(values)).tolist():
            assert (values[i] * 2.0).sum().item() == 2.0 * i * ELEMENTS
        assert [(x + 1.0).sum().item() for x in own] == [(i + 1.0) * ELEMENTS for i in range(6)]


def run_all(works: list[Callable[[], None]]) -> None:
    failed: list[BaseException] = []

    def caught(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=caught, args=(work,), daemon=True) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert not any(thread.is_alive() for thread in threads), "threads wait for one another"
    if failed:
        raise failed[0]


class Contended(Ordered):
    """Another thread charges what was freed as soon as it may."""

    def __init__(self, account: Account) -> None:
        super().__init__("scope")
        self.account, self.depth = account, 0

    def __enter__(self) -> None:
        super().__enter__()
        self.depth += 1

    def __exit__(self, *raised: object) -> None:
        super().__exit__(*raised)
        self.depth -= 1
        if not self.depth and self.account.fits(NBYTES):
            self.account.charge(NBYTES, "another thread's")


def test_room_that_another_thread_takes_is_made_again() -> None:
    scope = Scope({"host": 2 * NBYTES}, lru=True)
    idle = [np.ones(ELEMENTS, np.float32) for _ in range(2)]
    for i in range(2):
        scope.adopt(idle[i], "idle", lambda: idle.pop() is not None)
    scope._lock = Contended(scope.host)
    scope.reserve(NBYTES, "mine")
    assert (len(idle), scope.host.live) == (1, 2 * NBYTES)
    scope.adopt(mine := np.ones(ELEMENTS, np.float32), "mine")
    assert (len(idle), scope.host.live) == (0, 2 * NBYTES)
    del mine


def test_room_on_a_device_is_taken_by_who_made_it() -> None:
    scope = Scope({"device": NBYTES}, lru=True)
    room, device = Room(Interpreter(), scope), scope.accounts["device"]
    idle = [room.like((ELEMENTS,), np.float32)]
    scope.hold(idle[0].memory, lambda: bool(idle.pop()), "device")
    scope._lock = Contended(device)
    mine = room.like((ELEMENTS,), np.float32)
    assert (len(idle), device.live) == (0, NBYTES)
    del mine
    assert device.live == 0


def test_threads_share_a_scope_and_the_values_in_it(tmp_path: Any) -> None:
    """Each thread's use moves out what others are about to use, and brings back what they do.

    There is room for the shared values and not for one thread's own beside them, so that values
    move even where the threads happen to run one after another.
    """
    budget = {"host": 24 * NBYTES}
    with tg.execution(memory=budget, eviction="lru", spill_dir=tmp_path) as run:
        values = [tg.full(ELEMENTS, float(i)) for i in range(20)]
        contexts = [contextvars.copy_context() for _ in range(4)]
        run_all([lambda c=c, i=i: c.run(use, values, i) for i, c in enumerate(contexts)])  # type: ignore[misc]
        assert run.memory_report()["evictions"] > 0


def test_threads_with_scopes_of_their_own_share_values(tmp_path: Any) -> None:
    with tg.execution(memory={"host": 8 * NBYTES}, eviction="lru", spill_dir=tmp_path):
        values = [tg.full(ELEMENTS, float(i)) for i in range(20)]

    def work(seed: int) -> None:
        budget = {"host": 12 * NBYTES}
        with tg.execution(memory=budget, eviction="lru", spill_dir=tmp_path):
            use(values, seed)

    run_all([lambda i=i: work(i) for i in range(4)])  # type: ignore[misc]


def test_threads_spill_the_same_value_by_name(tmp_path: Any) -> None:
    """One of them moves it; the others find it moved, or bring it back."""
    with tg.execution(spill_dir=tmp_path):
        value = tg.arange(ELEMENTS, dtype=tg.float32)

        def work() -> None:
            for _ in range(30):
                with suppress(InvalidState):  # moved by another thread, or in use there
                    value.spill()
                assert value.sum().item() == ELEMENTS * (ELEMENTS - 1) / 2

        contexts = [contextvars.copy_context() for _ in range(4)]
        run_all([lambda c=c: c.run(work) for c in contexts])  # type: ignore[misc]
