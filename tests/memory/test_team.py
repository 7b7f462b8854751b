"""Threads that compute pages: every task is done once, kernels follow one another, and nobody waits
for a thread that has nothing left to do."""

import ctypes
import itertools
import threading

import numpy as np
import pytest

from tiga.backends.llvm.launcher import Launch
from tiga.backends.llvm.paged.team import Team

PATIENCE = 300.0
KERNEL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)


class Recorder:
    """A kernel that notes its calls, and in which thread they were made."""

    def __init__(self, also=lambda low: None):
        def kernel(args, low, high):
            self.calls.append((threading.current_thread().name, low, high))
            also(low)

        self.calls, self._kept = [], KERNEL(kernel)
        self.address = ctypes.cast(self._kept, ctypes.c_void_p).value

    @property
    def tasks(self):
        return sorted(task for _, low, high in self.calls for task in range(low, high))


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_every_task_is_done_once(threads):
    with Team(threads) as team:
        for tasks, grain in itertools.product((0, 1, 7, 64), (1, 3, 100)):
            recorder = Recorder()
            team.run([Launch(recorder.address, 0, tasks, grain)])
            assert recorder.tasks == list(range(tasks))
    assert not any(t.name.startswith("tiga-compute") for t in threading.enumerate())


def test_several_threads_take_tasks_of_one_kernel():
    meeting = threading.Barrier(3)
    recorder = Recorder(lambda low: meeting.wait(PATIENCE))
    with Team(3) as team:
        team.run([Launch(recorder.address, 0, 3)])
    assert len({name for name, _, _ in recorder.calls}) == 3


def test_a_kernel_begins_when_the_one_before_has_ended():
    order = []
    kernels = [Recorder(lambda low, n=n: order.append(n)) for n in range(4)]
    with Team(3) as team:
        team.run([Launch(kernel.address, 0, 20) for kernel in kernels])
    assert order == sorted(order)
    assert len(order) == 80


def test_nobody_waits_for_a_thread_that_comes_too_late():
    """The only other thread is busy with something else for as long as the kernel runs."""
    busy, free = threading.Event(), threading.Event()

    def occupy():
        busy.set()
        free.wait(PATIENCE)

    recorder = Recorder()
    with Team(2) as team:
        other = team._others.submit(occupy)
        assert busy.wait(PATIENCE)
        team.run([Launch(recorder.address, 0, 10)])
        free.set()
        other.result(PATIENCE)
    assert {name for name, _, _ in recorder.calls} == {threading.current_thread().name}
    assert np.array_equal(recorder.tasks, np.arange(10))


def test_without_threads_the_caller_does_it_all(monkeypatch):
    def starts(thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", starts)
    recorder = Recorder()
    with Team(4) as team:
        team.run([Launch(recorder.address, 0, 10)])
    assert recorder.tasks == list(range(10))
