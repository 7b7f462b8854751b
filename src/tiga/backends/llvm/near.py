"""Near points found with compiled kernels."""

import struct
from array import array
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from tiga.backends.llvm.engine import Library, compile_module
from tiga.backends.llvm.launcher import launch
from tiga.backends.llvm.near_kernels import AXES, POINTS_PER_TASK, SLOTS, add_kernels
from tiga.ir.kernel_context import kernel_context
from tiga.ir.module import new_module
from tiga.runtime.addresses import address
from tiga.runtime.parallel import thread_count


@dataclass(frozen=True)
class Binned:
    """Points in bins: `position` float64 `[N, 3]`, moved into the cell by `wraps`; `order` the
    points bin after bin, `starts` where each bin begins there; `system` and `bin` `[N]` and
    `[N, 3]`, the place of each point; `cells` float64 `[systems, 3, 3]`, `periodic` `[systems,
    3]`, `bins` `[3]`, `offsets` `[K, 3]` of the bins to look at. Integers are int64."""

    position: np.ndarray
    order: np.ndarray
    system: np.ndarray
    bin: np.ndarray
    starts: np.ndarray
    cells: np.ndarray
    bins: np.ndarray
    periodic: np.ndarray
    offsets: np.ndarray
    wraps: np.ndarray


@lru_cache(maxsize=1)
def _library() -> Library:
    with new_module(kernel_context()) as module:
        add_kernels()
    return compile_module(module)


def near_pairs(points: Binned, cutoff: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Row pointers `[N + 1]`, and of every edge the point at the other end and its image
    `[E, 3]`; all are int64."""
    given = Binned(*map(np.ascontiguousarray, vars(points).values()))
    count = len(given.position)
    row_ptr = np.zeros(count + 1, np.int64)
    if not count:
        return row_ptr, np.empty(0, np.int64), np.empty((0, AXES), np.int64)
    ordered = given.position[given.order]
    tasks, threads = -(-count // POINTS_PER_TASK), thread_count()

    def run(kernel: str, src: np.ndarray, shift: np.ndarray) -> None:
        (most,) = struct.unpack("q", struct.pack("d", cutoff * cutoff))
        arrays = {**vars(given), "ordered": ordered, "row_ptr": row_ptr, "src": src, "shift": shift}
        numbers = {"num_offsets": len(given.offsets), "num_points": count, "most": most}
        words = {**{name: address(found) for name, found in arrays.items()}, **numbers}
        table = array("q", [words[name] for name in SLOTS])
        pointer, _ = table.buffer_info()
        launch(_library().address(kernel), pointer, tasks, threads)

    run("count", row_ptr, row_ptr)
    np.cumsum(row_ptr, out=row_ptr)
    src = np.empty(row_ptr[-1], np.int64)
    shift = np.empty((row_ptr[-1], AXES), np.int64)
    run("store", src, shift)
    return row_ptr, src, shift
