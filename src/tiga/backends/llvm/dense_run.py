"""Compile kernels of whole-tensor programs, once per code, and run them on arrays."""

import ctypes
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from time import perf_counter

import numpy as np

from tiga.backends.llvm.dense import build, slot_names
from tiga.backends.llvm.engine import Library, compile_module
from tiga.backends.llvm.launcher import call_of, launch
from tiga.backends.llvm.memory import CACHE_LINE
from tiga.passes.tensor_spec import COLUMN, FULL, ROW, TOTAL, KernelStep, Spec
from tiga.runtime import parallel
from tiga.runtime.pool import POOL, staggered
from tiga.trace.node import Node

TASK_ELEMENTS = 16384
"""Elements per task: enough to hide a launch, few enough to balance threads."""

MAX_PARTS = 64
"""Parts of a reduction over rows, which are added afterwards."""

SERIAL_BELOW = 32768
"""Elements of a domain below which one thread is faster."""

_COMBINE = {"add": np.add, "maximum": np.maximum, "minimum": np.minimum}


@dataclass(frozen=True)
class Code:
    """A compiled kernel."""

    library: Library
    address: int
    names: tuple[tuple, ...]
    compile_ms: float


@lru_cache(maxsize=1024)
def compile_spec(spec: Spec) -> Code:
    """The machine code of a kernel, compiled once."""
    start = perf_counter()
    library = compile_module(build(spec))
    spent = (perf_counter() - start) * 1e3
    return Code(library, library.address("kernel"), tuple(slot_names(spec)), spent)


@dataclass(frozen=True)
class Decomposition:
    """How a domain falls into tasks: fixed by its extents."""

    batch: int
    tile: int
    batches: int
    tiles: int

    @property
    def tasks(self) -> int:
        return self.batches * self.tiles


def decompose(spec: Spec, rows: int, columns: int) -> Decomposition:
    """The tasks of a kernel on a domain of these extents."""
    kinds = {one.kind for one in spec.instructions if one.opcode == "reduce"}
    if spec.ordered and kinds & {COLUMN, TOTAL}:
        return Decomposition(rows, columns, 1, 1)
    tile = columns
    if ROW not in kinds and columns > 2 * TASK_ELEMENTS:
        tile = TASK_ELEMENTS
    batch = max(1, TASK_ELEMENTS // max(tile, 1))
    if COLUMN in kinds:
        batch = max(batch, -(-rows // MAX_PARTS))
    return Decomposition(batch, tile, -(-rows // batch), -(-columns // tile))


@dataclass(frozen=True)
class Template:
    """A kernel with everything but the addresses of its arrays: `loads` and `stores` say which
    slots of the table take which."""

    step: KernelStep
    code: Code
    parts: Decomposition
    words: tuple[int, ...]
    loads: tuple[tuple[int, int], ...]
    stores: tuple[tuple[int, int], ...]


def template(step: KernelStep) -> Template:
    """The template of a step; compiles its code if need be."""
    code = compile_spec(step.spec)
    parts = decompose(step.spec, step.rows, step.columns)
    places = {
        kind: tuple((slot, name[1]) for slot, name in enumerate(code.names) if name[0] == kind)
        for kind in ("load", "store")
    }
    words = tuple(_words(code.names, step, parts))
    return Template(step, code, parts, words, places["load"], places["store"])


def run_kernel(kernel: Template, arrays: Mapping[Node, np.ndarray]) -> list[np.ndarray]:
    """The arrays of the kernel's outputs."""
    return bind(kernel, arrays).run()


@dataclass
class Bound:
    """A kernel on given arrays: it may run again on what they hold then."""

    step: KernelStep
    code: Code
    parts: Decomposition
    stored: list[np.ndarray]
    table: ctypes.Array
    kept: Sequence[np.ndarray]

    @property
    def is_plain(self) -> bool:
        """Whether the kernel writes its outputs themselves, with nothing left to combine."""
        spec = self.step.spec
        return all(spec.instructions[i].kind in (FULL, ROW) for i in spec.stores)

    @property
    def serial(self) -> Callable[[], None] | None:
        """The kernel as a call without arguments, if one thread runs it all."""
        if self.step.rows * self.step.columns >= SERIAL_BELOW:
            return None
        return call_of(self.code.address, ctypes.addressof(self.table), self.parts.tasks)

    def run(self) -> list[np.ndarray]:
        """Compute the outputs."""
        size = self.step.rows * self.step.columns
        threads = 1 if size < SERIAL_BELOW else parallel.thread_count()
        launch(self.code.address, ctypes.addressof(self.table), self.parts.tasks, threads)
        return [self._finished(place) for place in range(len(self.stored))]

    def _finished(self, place: int) -> np.ndarray:
        """An output, its parts combined in their order."""
        spec, array = self.step.spec, self.stored[place]
        one = spec.instructions[spec.stores[place]]
        node = self.step.outputs[place]
        if one.kind not in (COLUMN, TOTAL):
            return array
        if one.text != "add":
            combined = _COMBINE[one.text].reduce(array, axis=0)
        elif one.kind == TOTAL:
            combined = array.sum(axis=0, dtype=np.promote_types(array.dtype, np.float64)
                                 if array.dtype.kind in "fc" else array.dtype)  # fmt: skip
        else:
            combined = _added(array)
        return np.asarray(combined).astype(node.type.dtype.numpy).reshape(node.type.shape)


def _added(parts: np.ndarray) -> np.ndarray:
    """Rows added by pairs."""
    while len(parts) > 1:
        half = len(parts) // 2
        pairs = parts[:half] + parts[half : 2 * half]
        parts = np.concatenate([pairs, parts[2 * half :]]) if len(parts) % 2 else pairs
    return parts[0]


def bind(
    kernel: Template,
    arrays: Mapping[Node, np.ndarray],
    given: Mapping[Node, np.ndarray] | None = None,
) -> Bound:
    """A kernel on arrays; full and row values go to `given` arrays, or to new ones."""
    step, parts = kernel.step, kernel.parts
    kept = [np.ascontiguousarray(arrays[load.node]) for load in step.loads]
    stored = [_output(step, place, parts, given or {}) for place in range(len(step.outputs))]
    if step.spec.streaming and not _on_lines(step, stored):
        plain = replace(step, spec=replace(step.spec, streaming=False))
        return bind(template(plain), arrays, dict(zip(step.outputs, stored, strict=True)))
    words = list(kernel.words)
    for slot, which in kernel.loads:
        words[slot] = kept[which].__array_interface__["data"][0]
    for slot, which in kernel.stores:
        words[slot] = stored[which].__array_interface__["data"][0]
    table = (ctypes.c_int64 * len(words))(*words)
    return Bound(step, kernel.code, parts, stored, table, kept)


def _on_lines(step: KernelStep, stored: Sequence[np.ndarray]) -> bool:
    """Whether full values start on cache lines."""
    kinds = [step.spec.instructions[i].kind for i in step.spec.stores]
    return all(
        array.__array_interface__["data"][0] % CACHE_LINE == 0
        for array, kind in zip(stored, kinds, strict=True) if kind == FULL
    )  # fmt: skip


def _output(
    step: KernelStep, place: int, parts: Decomposition, given: Mapping[Node, np.ndarray]
) -> np.ndarray:
    one = step.spec.instructions[step.spec.stores[place]]
    node = step.outputs[place]
    dtype = node.type.dtype
    if one.kind == COLUMN:
        return staggered((parts.batches, step.columns), dtype.compute.numpy, place)
    if one.kind == TOTAL:
        return np.empty((parts.tasks,), dtype.compute.numpy)
    assert one.kind in (FULL, ROW)
    return given[node] if node in given else POOL.array(node.type.shape, dtype.numpy)


def _words(names: Sequence[tuple], step: KernelStep, parts: Decomposition) -> list[int]:
    """The kernel's table; addresses of arrays are still 0."""
    sizes = {"rows": step.rows, "columns": step.columns, "batch": parts.batch,
             "tile": parts.tile, "tiles": parts.tiles}  # fmt: skip
    words = []
    for kind, which, *rest in names:
        if kind == "size":
            words.append(sizes[which])
        elif kind in ("load", "store"):
            words.append(0)
        elif kind == "argument":
            words.append(_bits(step.arguments[which]))
        else:
            words.append(step.loads[which].strides[rest[0]][kind == "step"])
    return words


def _bits(number: float | int) -> int:
    if isinstance(number, float):
        return struct.unpack("<q", struct.pack("<d", number))[0]
    return int(number)
