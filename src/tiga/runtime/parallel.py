"""Which OpenMP runtime runs CPU kernels, and on how many threads.

Two thread pools in one process fight over the cores, so Tiga starts none of its own: kernels run
through `GOMP_parallel` of the runtime that torch uses, whether torch is loaded already or comes
later, else of any other OpenMP runtime there is, else on the calling thread.
"""

import ctypes
import importlib.util
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from tiga import knobs

_LIBRARY_NAMES = ("libgomp", "libiomp5", "libomp")
_ENTRY = "GOMP_parallel"
_omp_num_threads = knobs.Variable("OMP_NUM_THREADS")


@dataclass(frozen=True)
class OpenMP:
    """An OpenMP runtime: its file, the address of its entry (0: none), and why it was chosen."""

    path: str
    address: int
    reason: str


NO_OPENMP = OpenMP("", 0, "no OpenMP runtime was found: kernels run on the calling thread")


def _is_openmp(path: str) -> bool:
    return Path(path).name.startswith(_LIBRARY_NAMES)


def _mapped() -> list[str]:
    """OpenMP libraries that the process has loaded, torch's first (Linux; elsewhere none)."""
    try:
        lines = Path("/proc/self/maps").read_text().splitlines()
    except OSError:
        return []
    paths = dict.fromkeys(line.split(maxsplit=5)[-1] for line in lines if ".so" in line)
    return sorted(filter(_is_openmp, paths), key=lambda path: "torch" not in path)


def _torch_files() -> list[str]:
    """The OpenMP library beside torch's own, found without importing torch."""
    spec = importlib.util.find_spec("torch") if "torch" not in sys.modules else None
    origin = spec.origin if spec else getattr(sys.modules.get("torch"), "__file__", None)
    if not origin:
        return []
    package = Path(origin).parent
    folders = (package / "lib", package.parent / "torch.libs")
    files = (file for folder in folders if folder.is_dir() for file in sorted(folder.iterdir()))
    return [str(file) for file in files if _is_openmp(file.name) and ".so" in file.name]


def _candidates() -> Iterator[tuple[str, str]]:
    yield from ((path, "already loaded in this process") for path in _mapped())
    yield from ((path, "the one that torch will load") for path in _torch_files())
    yield "libgomp.so.1", "the system's libgomp"
    prefix = Path(sys.prefix) / "lib"
    for name in ("libiomp5.so", "libomp.so", "libiomp5.dylib", "libomp.dylib"):
        yield str(prefix / name), "from the intel-openmp package"
    for name in ("libiomp5.so", "libomp.so.5", "libomp.so", "libomp.dylib"):
        yield name, "the system's LLVM OpenMP"


def _entry_of(path: str) -> int:
    """The address of the entry in the library at `path`; 0 if there is no library or no entry."""
    try:
        function = getattr(ctypes.CDLL(path), _ENTRY)
    except (OSError, AttributeError):
        return 0
    return ctypes.cast(function, ctypes.c_void_p).value or 0


@lru_cache(maxsize=2)
def _discover(torch_loaded: bool) -> OpenMP:
    # Keyed on whether torch is loaded: a runtime chosen before may turn out not to be torch's.
    for path, reason in _candidates():
        address = _entry_of(path)
        if address:
            return OpenMP(path, address, reason)
    return NO_OPENMP


def openmp() -> OpenMP:
    """The runtime that kernels use now."""
    return _discover("torch" in sys.modules)


@dataclass
class _Process:
    """Whether this process may use a thread pool: a forked child inherits one without threads."""

    forked: bool


def _is_forked_worker() -> bool:
    # Looked for, not imported: a worker has it, and the first compiled call is sooner without.
    multiprocessing = sys.modules.get("multiprocessing")
    if multiprocessing is None or multiprocessing.parent_process() is None:
        return False
    return multiprocessing.get_start_method(allow_none=True) in (None, "fork")


_process = _Process(forked=_is_forked_worker())


def _after_fork_in_child() -> None:
    _process.forked = True
    available_cores.cache_clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


def allow_threads_after_fork() -> None:
    """Let a forked child use threads again.

    Only for a child whose parent never ran anything on an OpenMP pool before the fork (torch on
    several threads included): a child that waits for threads it did not inherit waits for ever.
    """
    _process.forked = False


def fork_address() -> int:
    """The address of the runtime's `GOMP_parallel`; 0 where work must stay on this thread."""
    return 0 if _process.forked else _discover("torch" in sys.modules).address


def thread_count(threads: int | None = None) -> int:
    """How many threads a kernel gets.

    1 where there is no usable pool, else what is `wanted_threads`.
    """
    return wanted_threads(threads) if fork_address() else 1


def wanted_threads(threads: int | None = None) -> int:
    """How many threads a kernel is to have.

    In order: `TIGA_NUM_THREADS`; `threads` (a frontend passes what torch uses); `OMP_NUM_THREADS`;
    the cores that this process could run on when it first asked.
    """
    chosen = knobs.read("num_threads") or threads or _environment_threads()
    return chosen or available_cores()


def _environment_threads() -> int | None:
    """The first level of OMP_NUM_THREADS, which may be a list such as `4,2`."""
    found = _omp_num_threads.raw()
    if not found:
        return None
    first = _omp_num_threads.decode(found).split(",")[0].strip()
    return int(first) if first.isdecimal() and int(first) > 0 else None


@lru_cache(maxsize=1)
def available_cores() -> int:
    """The cores that this process could run on when it first asked."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def describe() -> str:
    """One line for the doctor: how CPU kernels run in this process.

    Example:
        >>> print(describe())  # doctest: +SKIP
        2 threads through /usr/lib/libgomp.so.1 (the system's libgomp)
    """
    runtime = openmp()
    if _process.forked:
        return "1 thread: a forked process cannot use the thread pool of its parent"
    if not runtime.address:
        return f"1 thread: {runtime.reason}; install libgomp or intel-openmp for more"
    return f"{thread_count()} threads through {runtime.path} ({runtime.reason})"
