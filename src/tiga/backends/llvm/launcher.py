"""Run kernels `void kernel(ptr args, i64 lo, i64 hi)` over tasks [0, n), on one thread or many.

The parallel loop is compiled here once per process: a worker takes `grain` tasks at a time off an
atomic counter, and the process's OpenMP runtime (`tiga.runtime.parallel`) starts it on each
thread. What a task computes may not depend on the thread that takes it, so results do not either.
"""

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

from torch_mlir import ir

from tiga.backends.llvm.engine import Library, compile_module
from tiga.ir.kernel_context import kernel_context
from tiga.runtime import parallel

_KERNEL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
_PARALLEL_FOR = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, *[ctypes.c_int64] * 3
)
_SEQUENCE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, *[ctypes.c_int64] * 2)
_WORKER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)

_LOOP_SLOTS = 17
# Slots of 8 bytes: kernel, args, tasks, grain; the counter has a cache line of its own.
_PARALLEL_FOR_TEXT = """
llvm.func @worker(%loop: !llvm.ptr) {
  %args_at = llvm.getelementptr %loop[1] : (!llvm.ptr) -> !llvm.ptr, i64
  %tasks_at = llvm.getelementptr %loop[2] : (!llvm.ptr) -> !llvm.ptr, i64
  %grain_at = llvm.getelementptr %loop[3] : (!llvm.ptr) -> !llvm.ptr, i64
  %counter = llvm.getelementptr %loop[16] : (!llvm.ptr) -> !llvm.ptr, i64
  %kernel = llvm.load %loop : !llvm.ptr -> !llvm.ptr
  %args = llvm.load %args_at : !llvm.ptr -> !llvm.ptr
  %tasks = llvm.load %tasks_at : !llvm.ptr -> i64
  %grain = llvm.load %grain_at : !llvm.ptr -> i64
  llvm.br ^take
^take:
  %lo = llvm.atomicrmw add %counter, %grain monotonic {alignment = 8 : i64} : !llvm.ptr, i64
  %left = llvm.icmp "slt" %lo, %tasks : i64
  llvm.cond_br %left, ^run, ^done
^run:
  %end = llvm.add %lo, %grain : i64
  %hi = llvm.intr.smin(%end, %tasks) : (i64, i64) -> i64
  llvm.call %kernel(%args, %lo, %hi) : !llvm.ptr, (!llvm.ptr, i64, i64) -> ()
  llvm.br ^take
^done:
  llvm.return
}

llvm.func @parallel_for(%fork: !llvm.ptr, %kernel: !llvm.ptr, %args: !llvm.ptr,
                        %tasks: i64, %grain: i64, %threads: i64) {
  %none = llvm.mlir.constant(0 : i64) : i64
  %flags = llvm.mlir.constant(0 : i32) : i32
  %one = llvm.mlir.constant(1 : i64) : i64
  %slots = llvm.mlir.constant(32 : i64) : i64
  %beyond = llvm.add %tasks, %grain : i64
  %rounded = llvm.sub %beyond, %one : i64
  %chunks = llvm.sdiv %rounded, %grain : i64
  %useful = llvm.intr.smin(%chunks, %threads) : (i64, i64) -> i64
  %alone = llvm.icmp "sle" %useful, %one : i64
  llvm.cond_br %alone, ^serial, ^parallel
^serial:
  llvm.call %kernel(%args, %none, %tasks) : !llvm.ptr, (!llvm.ptr, i64, i64) -> ()
  llvm.return
^parallel:
  %stack = llvm.intr.stacksave : !llvm.ptr
  %loop = llvm.alloca %slots x i64 {alignment = 128 : i64} : (i64) -> !llvm.ptr
  %args_at = llvm.getelementptr %loop[1] : (!llvm.ptr) -> !llvm.ptr, i64
  %tasks_at = llvm.getelementptr %loop[2] : (!llvm.ptr) -> !llvm.ptr, i64
  %grain_at = llvm.getelementptr %loop[3] : (!llvm.ptr) -> !llvm.ptr, i64
  %counter = llvm.getelementptr %loop[16] : (!llvm.ptr) -> !llvm.ptr, i64
  llvm.store %kernel, %loop : !llvm.ptr, !llvm.ptr
  llvm.store %args, %args_at : !llvm.ptr, !llvm.ptr
  llvm.store %tasks, %tasks_at : i64, !llvm.ptr
  llvm.store %grain, %grain_at : i64, !llvm.ptr
  llvm.store %none, %counter : i64, !llvm.ptr
  %worker = llvm.mlir.addressof @worker : !llvm.ptr
  %count = llvm.trunc %useful : i64 to i32
  llvm.call %fork(%worker, %loop, %count, %flags)
    : !llvm.ptr, (!llvm.ptr, !llvm.ptr, i32, i32) -> ()
  llvm.intr.stackrestore %stack : !llvm.ptr
  llvm.return
}
"""

_SEQUENCE_TEXT = """
llvm.func @sequence(%fork: !llvm.ptr, %records: !llvm.ptr, %count: i64, %threads: i64) {
  %none = llvm.mlir.constant(0 : i64) : i64
  %one = llvm.mlir.constant(1 : i64) : i64
  %size = llvm.mlir.constant(4 : i64) : i64
  llvm.br ^test(%none : i64)
^test(%i: i64):
  %left = llvm.icmp "slt" %i, %count : i64
  llvm.cond_br %left, ^run, ^done
^run:
  %first = llvm.mul %i, %size : i64
  %record = llvm.getelementptr %records[%first] : (!llvm.ptr, i64) -> !llvm.ptr, i64
  %args_at = llvm.getelementptr %record[1] : (!llvm.ptr) -> !llvm.ptr, i64
  %tasks_at = llvm.getelementptr %record[2] : (!llvm.ptr) -> !llvm.ptr, i64
  %grain_at = llvm.getelementptr %record[3] : (!llvm.ptr) -> !llvm.ptr, i64
  %kernel = llvm.load %record : !llvm.ptr -> !llvm.ptr
  %args = llvm.load %args_at : !llvm.ptr -> !llvm.ptr
  %tasks = llvm.load %tasks_at : !llvm.ptr -> i64
  %grain = llvm.load %grain_at : !llvm.ptr -> i64
  llvm.call @parallel_for(%fork, %kernel, %args, %tasks, %grain, %threads)
    : (!llvm.ptr, !llvm.ptr, !llvm.ptr, i64, i64, i64) -> ()
  %next = llvm.add %i, %one : i64
  llvm.br ^test(%next : i64)
^done:
  llvm.return
}
"""


@dataclass(frozen=True)
class Launch:
    """One kernel over tasks [0, num_tasks), `grain` of them at a time."""

    kernel: int
    args: int
    num_tasks: int
    grain: int = 1


@dataclass(frozen=True)
class _Entries:
    """The parallel loop as it is called, and the sequence of loops where it was compiled too."""

    libraries: tuple[Library, ...]
    parallel_for: Any
    worker: Any
    sequence: Any

    @staticmethod
    def of(library: Library) -> "_Entries":
        sequence = "sequence" in library.names
        return _Entries(
            (library,),
            _PARALLEL_FOR(library.address("parallel_for")),
            _WORKER(library.address("worker")),
            _SEQUENCE(library.address("sequence")) if sequence else None,
        )

    def joined(self, other: "_Entries") -> "_Entries":
        """These with the sequence of others: who calls these goes on doing so."""
        libraries = (*self.libraries, *other.libraries)
        return replace(self, libraries=libraries, sequence=other.sequence)


@dataclass
class _Loops:
    """The process's loops: compiled when they are first called; the parallel one along with kernels
    before."""

    known: _Entries | None = None

    def entries(self, sequence: bool = False) -> _Entries:
        """The entries; with `sequence`, that one among them."""
        if self.known is None or (sequence and self.known.sequence is None):
            with kernel_context():
                text = ir.Module.parse(_PARALLEL_FOR_TEXT + _SEQUENCE_TEXT)
                made = _Entries.of(compile_module(text, opt_level=0))
            self.known = made if self.known is None else self.known.joined(made)
        return self.known

    def compile_with(self, kernels: ir.Module, opt_level: int) -> Library:
        with kernels.context, ir.InsertionPoint(kernels.body):
            for function in ir.Module.parse(_PARALLEL_FOR_TEXT).body:
                function.operation.clone()
        library = compile_module(kernels, opt_level=opt_level)
        self.known = _Entries.of(library)
        return library


_LOOPS = _Loops()


def compile_kernels(module: ir.Module, opt_level: int = 3) -> Library:
    """A module of kernels compiled, by `compile_module`.

    The first one of a process takes the parallel loop along: setting up MLIR and LLVM for that
    alone takes as long as compiling a small kernel.
    """
    if _LOOPS.known:
        return compile_module(module, opt_level=opt_level)
    return _LOOPS.compile_with(module, opt_level)


# ctypes builds a function object in about a microsecond: the same kernels come again and again.
_kernel_at = lru_cache(maxsize=4096)(_KERNEL)


def launch(
    kernel_address: int, args_pointer: int | bytes, num_tasks: int, threads: int, grain: int = 1
) -> None:
    """Call the kernel until every task in [0, num_tasks) is done; the GIL is free meanwhile.

    Args:
        kernel_address: a raw address, `void kernel(ptr args, i64 lo, i64 hi)`.
        args_pointer: what the kernel takes first, or its bytes; alive until this returns.
        num_tasks: 0 or more; 0 calls nothing.
        threads: at most so many threads, the caller's included; 1 calls the kernel directly.
        grain: tasks that a thread takes at a time.
    """
    if num_tasks <= grain or threads <= 1:
        if num_tasks > 0:
            _kernel_at(kernel_address)(args_pointer, 0, num_tasks)
        return
    fork = parallel.fork_address()
    if not fork:
        _kernel_at(kernel_address)(args_pointer, 0, num_tasks)
        return
    loops = _LOOPS.known or _LOOPS.entries()
    loops.parallel_for(fork, kernel_address, args_pointer, num_tasks, grain, threads)


def call_of(kernel_address: int, args_pointer: int | bytes, num_tasks: int) -> Callable[[], None]:
    """A kernel with its arguments as one call, on this thread.

    Args:
        kernel_address, args_pointer, num_tasks: as for `launch`; alive as long as the call.
    """
    return partial(_kernel_at(kernel_address), args_pointer, 0, num_tasks)


def launch_sequence(records: ctypes.Array, count: int, threads: int) -> None:
    """Launch `count` kernels one after the other, in one call; each ends before the next starts.

    Args:
        records: from `sequence_records`; its slots may be rewritten between calls.
        count: records to run.
        threads: as for `launch`.
    """
    fork = parallel.fork_address() if threads > 1 else 0
    _LOOPS.entries(sequence=True).sequence(fork, records, count, threads if fork else 1)


class SharedLoop:
    """A launch whose tasks several threads take, each by a call of `work`."""

    def __init__(self, launch: Launch) -> None:
        self._slots = (ctypes.c_int64 * _LOOP_SLOTS)(
            launch.kernel, launch.args, launch.num_tasks, launch.grain
        )
        self._worker = _LOOPS.entries().worker

    def work(self) -> None:
        """Do tasks until none is left to take; the GIL is free meanwhile."""
        self._worker(self._slots)


def sequence_records(launches: Sequence[Launch]) -> ctypes.Array:
    """Four 8-byte slots per launch: kernel, args, tasks, grain."""
    slots = [s for one in launches for s in (one.kernel, one.args, one.num_tasks, one.grain)]
    return (ctypes.c_int64 * max(4, len(slots)))(*slots)
