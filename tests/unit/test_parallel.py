"""The parallel loop and the choice of its thread pool."""

import ctypes
import itertools
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from torch_mlir import ir

from tiga import knobs
from tiga.backends.llvm import launcher
from tiga.backends.llvm.engine import compile_module
from tiga.backends.llvm.launcher import Launch, launch, launch_sequence, sequence_records
from tiga.runtime import parallel

# args[0]: counts of visits per task. args[1]: what this kernel adds to each.
VISIT = """
llvm.func @visit(%args: !llvm.ptr, %lo: i64, %hi: i64) {
  %counts = llvm.load %args : !llvm.ptr -> !llvm.ptr
  %slot = llvm.getelementptr %args[1] : (!llvm.ptr) -> !llvm.ptr, i64
  %factor = llvm.load %slot : !llvm.ptr -> i64
  %one = arith.constant 1 : i64
  scf.for %i = %lo to %hi step %one : i64 {
    %at = llvm.getelementptr %counts[%i] : (!llvm.ptr, i64) -> !llvm.ptr, i64
    %old = llvm.load %at : !llvm.ptr -> i64
    %scaled = arith.muli %old, %factor : i64
    %new = arith.addi %scaled, %one : i64
    llvm.store %new, %at : i64, !llvm.ptr
  }
  llvm.return
}
"""


class Visits:
    """An array of counters, and arguments for the kernel above."""

    def __init__(self, size, factor=1):
        self.counts = np.zeros(max(1, size), np.int64)
        self.slots = (ctypes.c_int64 * 2)(self.counts.ctypes.data, factor)
        self.args = ctypes.addressof(self.slots)


@pytest.fixture(scope="module")
def library():
    with ir.Context():
        return compile_module(ir.Module.parse(VISIT))


@pytest.fixture
def visit(library):
    return library.address("visit")


@pytest.mark.parametrize("threads", [1, 2, 3, 7])
def test_every_task_runs_once(visit, threads):
    for tasks, grain in itertools.product((0, 1, 2, 5, 64, 1001), (1, 3, 64, 5000)):
        state = Visits(tasks)
        launch(visit, state.args, tasks, threads, grain)
        assert state.counts[:tasks].tolist() == [1] * tasks
        assert state.counts[tasks:].sum() == 0


def test_work_is_shared_between_threads(visit):
    """With two threads, an interval of tasks is not one call: the kernel sees several."""
    calls = []
    prototype = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
    record = prototype(lambda args, low, high: calls.append((low, high)))
    launch(ctypes.cast(record, ctypes.c_void_p).value, 0, 10, 2, 3)
    assert sorted(calls) == [(0, 3), (3, 6), (6, 9), (9, 10)]


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_a_sequence_runs_in_order(visit, threads):
    state = Visits(500, factor=1)
    doubled = (ctypes.c_int64 * 2)(state.counts.ctypes.data, 10)
    kernels = [
        Launch(visit, state.args, 500, 7),  # 1
        Launch(visit, ctypes.addressof(doubled), 500),  # 11
        Launch(visit, state.args, 0),
        Launch(visit, ctypes.addressof(doubled), 500, 1000),  # 111
    ]
    records = sequence_records(kernels)
    for expected in (111, 11211):
        launch_sequence(records, len(kernels), threads)
        assert state.counts.tolist() == [expected] * 500
    launch_sequence(sequence_records([]), 0, threads)


def test_the_thread_count_has_one_order_of_precedence(monkeypatch):
    monkeypatch.delenv("TIGA_NUM_THREADS", raising=False)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert parallel.thread_count() >= 1
    monkeypatch.setenv("OMP_NUM_THREADS", "3,2")
    assert parallel.thread_count() == 3
    assert parallel.thread_count(threads=5) == 5
    with knobs.scope(num_threads=7):
        assert parallel.thread_count(threads=5) == 7
    monkeypatch.setenv("OMP_NUM_THREADS", "rubbish")
    assert parallel.thread_count() >= 1


@pytest.fixture
def no_runtime(monkeypatch):
    monkeypatch.setattr(parallel, "_candidates", lambda: iter([("/nowhere/libgomp.so", "")]))
    parallel._discover.cache_clear()
    yield
    parallel._discover.cache_clear()


def test_without_openmp_work_is_serial_and_says_so(no_runtime, visit):
    assert parallel.thread_count(threads=8) == 1
    assert "no OpenMP runtime was found" in parallel.describe()
    state = Visits(100)
    launch(visit, state.args, 100, 8)
    launch_sequence(sequence_records([Launch(visit, state.args, 100)]), 1, 8)
    assert state.counts[:100].tolist() == [2] * 100


def test_a_library_without_the_entry_is_passed_over(monkeypatch):
    assert parallel._entry_of("libm.so.6") == 0
    assert parallel._entry_of("/nowhere/libgomp.so.1") == 0


SCRIPT_HEAD = f"""
import os, sys
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
import numpy as np
from tests.unit.test_parallel import *
with ir.Context():
    library = compile_module(ir.Module.parse(VISIT))
kernel = library.address("visit")

def work(threads):
    state = Visits(1000)
    launch(kernel, state.args, 1000, threads)
    assert state.counts.tolist() == [1] * 1000

def mapped():
    return set(parallel._mapped())

def live_threads():
    return len(os.listdir("/proc/self/task"))
"""

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def run_script(body, **environment):
    """Run `body` in a process of its own, which may use threads and forks as it likes."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SCRIPT_HEAD + body],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@linux_only
def test_torch_that_comes_later_shares_the_pool():
    pytest.importorskip("torch")
    run_script("""
assert "torch" not in sys.modules
work(2)
before = parallel.openmp().address
threads = live_threads()
import torch
torch.set_num_threads(2)
x = torch.ones(1 << 22)
(x + x).sum()
assert len(mapped()) == 1, mapped()
assert parallel.openmp().address == before
work(2)
assert live_threads() <= threads + 1, "a second pool was started"
""")


@linux_only
def test_torch_that_came_first_shares_the_pool():
    pytest.importorskip("torch")
    run_script("""
import torch
torch.set_num_threads(2)
x = torch.ones(1 << 22)
(x + x).sum()
threads = live_threads()
for _ in range(20):
    work(2)
assert len(mapped()) == 1, mapped()
assert live_threads() == threads, "a second pool was started"
""")


@linux_only
def test_the_systems_libgomp_serves_torch_as_well():
    pytest.importorskip("torch")
    if not parallel._entry_of("libgomp.so.1"):
        pytest.skip("no libgomp on this system")
    run_script("""
parallel._torch_files = lambda: []
work(2)
threads = live_threads()
assert "system" in parallel.openmp().reason
import torch
torch.set_num_threads(2)
x = torch.ones(1 << 22)
(x + x).sum()
work(2)
assert "already loaded" in parallel.openmp().reason
assert live_threads() <= threads + 1, "a second pool was started"
""")


FORK = """
work(2)
child = os.fork()
if child == 0:
    assert parallel.thread_count(threads=2) == 1
    assert "forked" in parallel.describe()
    work(2)
    state = Visits(10)
    launch_sequence(sequence_records([Launch(kernel, state.args, 10)] * 2), 2, 2)
    assert state.counts.tolist() == [2] * 10
    os._exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
work(2)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_does_not_wait_for_a_dead_pool():
    run_script(FORK)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_child_of_a_parent_without_a_pool_may_start_its_own():
    run_script("""
child = os.fork()
if child == 0:
    assert parallel.thread_count(threads=2) == 1
    parallel.allow_threads_after_fork()
    assert parallel.thread_count(threads=2) == 2
    work(2)
    os._exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
""")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_worker_process_that_imports_after_the_fork_is_serial():
    run_script("""
import multiprocessing
def probe(queue):
    import importlib
    queue.put(importlib.reload(parallel).thread_count(threads=4))
context = multiprocessing.get_context("fork")
queue = context.Queue()
worker = context.Process(target=probe, args=(queue,))
worker.start()
assert queue.get(timeout=600) == 1
worker.join()
""")


def test_a_call_into_a_kernel_frees_the_interpreter(visit):
    """Another Python thread runs while a kernel does: it is what ends the kernel."""
    import threading

    flag = np.zeros(1, np.int64)
    slots = (ctypes.c_int64 * 1)(flag.ctypes.data)
    with ir.Context():
        library = compile_module(
            ir.Module.parse("""
          llvm.func @wait(%args: !llvm.ptr, %lo: i64, %hi: i64) {
            %flag = llvm.load %args : !llvm.ptr -> !llvm.ptr
            %zero = llvm.mlir.constant(0 : i64) : i64
            llvm.br ^again
          ^again:
            %now = llvm.load volatile %flag : !llvm.ptr -> i64
            %waiting = llvm.icmp "eq" %now, %zero : i64
            llvm.cond_br %waiting, ^again, ^done
          ^done:
            llvm.return
          }""")
        )
    timer = threading.Timer(0.05, lambda: flag.__setitem__(0, 1))
    timer.start()
    launch(library.address("wait"), ctypes.addressof(slots), 1, 1)
    timer.join()
    assert flag[0] == 1


def test_the_first_kernels_bring_the_loop_along_and_later_ones_do_not(monkeypatch):
    monkeypatch.setattr(launcher, "_LOOPS", launcher._Loops())
    with ir.Context():
        first = launcher.compile_kernels(ir.Module.parse(VISIT))
    with ir.Context():
        second = launcher.compile_kernels(ir.Module.parse(VISIT))
    assert set(first.names) == {"visit", "parallel_for", "worker"}
    assert second.names == ("visit",)
    for library, threads in ((first, 2), (second, 2), (second, 1)):
        state = Visits(100)
        launch(library.address("visit"), state.args, 100, threads, 7)
        assert state.counts.tolist() == [1] * 100
    before = launcher._LOOPS.entries()
    after = launcher._LOOPS.entries(sequence=True)
    assert before.sequence is None
    assert after.sequence is not None
    assert after.worker is before.worker
