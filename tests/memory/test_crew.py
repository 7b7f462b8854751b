"""Threads that share work: all of it is done, or says why not, whatever ends meanwhile."""

import subprocess
import sys
import threading
from concurrent.futures import wait

import numpy as np
import pytest

from tiga.paging import numbers
from tiga.paging.numbers import Distinct, Picks
from tiga.runtime.arena import Arena
from tiga.runtime.crew import Crew
from tiga.runtime.pages import MemoryRows

PATIENCE = 300.0


def test_results_and_errors_reach_who_asked() -> None:
    with Crew(3, "some") as crew:
        futures = [crew.submit(divmod, 10, i % 4) for i in range(100)]
        for i, future in enumerate(futures):
            if i % 4:
                assert future.result(PATIENCE) == divmod(10, i % 4)
            else:
                with pytest.raises(ZeroDivisionError):
                    future.result(PATIENCE)
        assert sum(t.name.startswith("some-") for t in threading.enumerate()) == 3
    assert not any(t.name.startswith("some-") for t in threading.enumerate())


def test_what_is_cancelled_is_not_done_and_waited_for_in_vain() -> None:
    free, done = threading.Event(), list[int]()
    with Crew(1, "some") as crew:
        first = crew.submit(free.wait, PATIENCE)
        others = [crew.submit(done.append, i) for i in range(5)]
        for future in others[1:]:
            assert future.cancel()
        free.set()
        assert not wait([first, *others], PATIENCE).not_done
    assert done == [0]


def test_threads_that_the_system_does_not_give(monkeypatch: pytest.MonkeyPatch) -> None:
    start, left = threading.Thread.start, [1]

    def starts(thread: threading.Thread) -> None:
        if not left[0]:
            raise RuntimeError("can't start new thread")
        left[0] -= 1
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", starts)
    with Crew(3, "some") as crew:
        assert [crew.submit(abs, -i).result(PATIENCE) for i in range(5)] == [0, 1, 2, 3, 4]
    with Crew(3, "some") as crew, pytest.raises(RuntimeError, match="new thread"):
        crew.submit(abs, -1)


def test_rows_are_picked_by_as_many_threads_as_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    def starts(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", starts)
    monkeypatch.setattr(numbers, "TILE_ROWS", 8)
    values = np.arange(1000, dtype=np.int64)
    home = MemoryRows(values)
    home.in_file = True
    ids = np.arange(0, 1000, 7)
    out = np.empty((len(ids), 8), np.uint8)
    Picks(0, len(ids), Distinct(ids)).fill(home, out, Arena(2**20))
    assert np.array_equal(out.view(np.int64).reshape(-1), values[ids])


AFTER_THE_MAIN_THREAD = """
import threading
from tiga.runtime.crew import Crew

def work():
    threading.main_thread().join()
    with Crew(2, "some") as crew:
        print(crew.submit(sum, [1, 2]).result(300))

threading.Thread(target=work).start()
"""

WHILE_A_DAEMON_WORKS = """
import threading
from tiga.runtime.crew import Crew

started = threading.Event()

def work():
    while True:
        with Crew(2, "some") as crew:
            crew.submit(sum, [1, 2]).result()
            started.set()

threading.Thread(target=work, daemon=True).start()
assert started.wait(300)
print("ends")
"""


NEVER_CLOSED = """
from tiga.runtime.crew import Crew

crew = Crew(2, "some")
print(crew.submit(sum, [1, 2]).result(300))
"""


@pytest.mark.parametrize(
    ("script", "printed"),
    [(AFTER_THE_MAIN_THREAD, "3"), (WHILE_A_DAEMON_WORKS, "ends"), (NEVER_CLOSED, "3")],
)
def test_a_program_that_ends(script: str, printed: str) -> None:
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, printed, "")


def test_threads_end_with_a_crew_that_was_not_closed() -> None:
    crew = Crew(2, "some")
    crew.submit(abs, -1).result(PATIENCE)
    mine = [t for t in threading.enumerate() if t.name.startswith("some-")]
    assert mine
    del crew
    for thread in mine:
        thread.join(PATIENCE)
        assert not thread.is_alive()


def test_many_submit_at_once_and_no_more_threads_start() -> None:
    meeting = threading.Barrier(8)
    with Crew(1, "some") as crew:

        def submit() -> None:
            meeting.wait(PATIENCE)
            crew.submit(abs, -1).result(PATIENCE)

        others = [threading.Thread(target=submit) for _ in range(8)]
        for thread in others:
            thread.start()
        for thread in others:
            thread.join(PATIENCE)
        assert sum(t.name.startswith("some-") for t in threading.enumerate()) == 1
