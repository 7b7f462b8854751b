"""Machine code of MLIR's execution engines, written while Python's lock is free.

The bindings keep the lock during a look-up, which writes all code of an engine. So this asks
MLIR's C interface, in the library that the bindings have loaded: threads then compile side by side.
"""

import ctypes
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

from torch_mlir import _mlir_libs
from torch_mlir.execution_engine import ExecutionEngine

from tiga.runtime.parallel import available_cores

MOST_THREADS = 8
"""More wait for Python's lock, under which modules are made and optimised."""


class _Text(ctypes.Structure):
    _fields_ = (("data", ctypes.c_char_p), ("length", ctypes.c_size_t))


@lru_cache(maxsize=1)
def compiler_library() -> Path:
    """The file that MLIR and LLVM are in."""
    (library,) = Path(_mlir_libs.__file__).parent.glob("*AggregateCAPI.*")
    return library


@lru_cache(maxsize=1)
def _look_up() -> Any:
    function = ctypes.CDLL(str(compiler_library())).mlirExecutionEngineLookup
    function.argtypes, function.restype = (ctypes.c_void_p, _Text), ctypes.c_void_p
    return function


def _handle(engine: ExecutionEngine) -> int:
    """The address of the engine itself."""
    capsule = ctypes.py_object(engine._CAPIPtr)
    name_of, pointer_of = ctypes.pythonapi.PyCapsule_GetName, ctypes.pythonapi.PyCapsule_GetPointer
    name_of.restype, pointer_of.restype = ctypes.c_char_p, ctypes.c_void_p
    pointer: int = pointer_of(capsule, ctypes.c_char_p(name_of(capsule)))
    return pointer


def address_in(engine: ExecutionEngine, name: str) -> int:
    """The raw address of a function. The first look-up writes the code of all of them; threads
    that ask for one engine at once wait for the same."""
    text = name.encode()
    address: int | None = _look_up()(_handle(engine), _Text(text, len(text)))
    assert address, f"no machine code for {name}"
    return address


class Generated(Protocol):
    """Something whose machine code is yet to be written."""

    def generate(self) -> None: ...


def generate_side_by_side(made: Iterable[Generated]) -> None:
    """Write the code of each, while the caller makes those that follow."""
    threads = min(available_cores(), MOST_THREADS)
    if threads < 2:
        for library in made:
            library.generate()
        return
    with ThreadPoolExecutor(threads, thread_name_prefix="tiga-compile") as pool:
        for running in [_started(pool, library) for library in made]:
            running.result()


def _started(pool: ThreadPoolExecutor, library: Generated) -> "Future[None]":
    """The generation of a library, begun; by the caller where there may be no more threads, as at
    the end of a process."""
    try:
        return pool.submit(library.generate)
    except RuntimeError:
        library.generate()
    done: Future[None] = Future()
    done.set_result(None)
    return done
