"""Compile kernels of whole-tensor programs, once per code, and run them on arrays."""

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from time import perf_counter

import numpy as np

from tiga.backends.llvm.dense.kernel import build
from tiga.backends.llvm.dense.slots import slot_names
from tiga.backends.llvm.engine import Library
from tiga.backends.llvm.host import last_cache_bytes
from tiga.backends.llvm.launcher import call_of, compile_kernels, launch
from tiga.backends.llvm.memory import CACHE_LINE
from tiga.errors import InvalidIndex
from tiga.passes.tensor_spec import COLUMN, FULL, ROW, TOTAL, KernelStep, Spec
from tiga.runtime import parallel
from tiga.runtime.addresses import address
from tiga.runtime.pool import PARTIAL_FROM, POOL, POOLED_FROM
from tiga.types import Shape, Type

TASK_ELEMENTS = 16384
"""Elements per task: enough to hide a launch, few enough to balance threads."""

MAX_PARTS = 64
"""Parts of a reduction over rows, which are added afterwards."""

PIECES = 8
"""Pieces of neighbouring tasks that each thread takes, at most: long runs of memory for the
prefetcher, short enough to balance threads."""

SERIAL_BELOW = 32768
"""Elements of a domain below which one thread is faster."""

_COMBINE = {"add": np.add, "maximum": np.maximum, "minimum": np.minimum, "mul": np.multiply}


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
    library = compile_kernels(build(spec))
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


def decompose(spec: Spec, rows: int, columns: int, group: int) -> Decomposition:
    """The tasks of a kernel on a domain of these extents; reductions add `group` rows."""
    kinds = {one.kind for one in spec.instructions if one.opcode == "reduce"}
    if spec.ordered and kinds & {COLUMN, TOTAL}:
        return Decomposition(group, columns, -(-rows // group), 1)
    tile = columns
    if ROW not in kinds and not spec.of("scan") and columns > 2 * TASK_ELEMENTS:
        tile = TASK_ELEMENTS
    batch = max(1, TASK_ELEMENTS // max(tile, 1))
    if COLUMN in kinds:
        batch = _batch(rows, group, batch)
    return Decomposition(batch, tile, -(-rows // batch), -(-columns // tile))


def _batch(rows: int, group: int, batch: int) -> int:
    """Rows per task, none of which belong to two groups."""
    if group == rows:
        return max(batch, -(-rows // MAX_PARTS))
    parts = min(max(1, MAX_PARTS * group // rows), -(-group // batch))
    while group % parts:
        parts -= 1
    return group // parts


@dataclass(frozen=True)
class Store:
    """An output of a kernel: the array that the kernel writes, and how it becomes the value."""

    kind: str
    combine: str
    memory: Shape
    dtype: np.dtype
    value: Type
    groups: int = 1

    def array(self) -> np.ndarray:
        """Memory for the kernel to write."""
        if self.kind in (FULL, ROW):
            return POOL.array(self.memory, self.dtype)
        if self.kind == COLUMN:
            return POOL.array(self.memory, self.dtype, PARTIAL_FROM)
        return np.empty(self.memory, self.dtype)

    def finished(self, array: np.ndarray) -> np.ndarray:
        """The value, its parts combined in their order."""
        if self.kind in (FULL, ROW):
            return array
        if self.groups > 1:
            array = np.moveaxis(array.reshape(self.groups, -1, array.shape[1]), 1, 0)
        if self.combine != "add":
            combined = _COMBINE[self.combine].reduce(array, axis=0)
        elif self.kind == TOTAL:
            combined = array.sum(axis=0, dtype=np.promote_types(array.dtype, np.float64)
                                 if array.dtype.kind in "fc" else array.dtype)  # fmt: skip
        else:
            combined = _added(array)
        return np.asarray(combined).astype(self.value.dtype.numpy).reshape(self.value.shape)


@dataclass(frozen=True)
class Template:
    """A kernel with everything but the addresses of its arrays: `loads` and `stores` say which
    slots of the table take which. `serial`: one thread is faster. `plain`: the arrays that it
    writes are the values."""

    step: KernelStep
    code: Code
    tasks: int
    words: tuple[int, ...]
    loads: tuple[tuple[int, int], ...]
    stores: tuple[tuple[int, int], ...]
    outputs: tuple[Store, ...]
    serial: bool
    plain: bool
    grain: int
    pack: Callable[..., bytes]

    def table(
        self, loaded: Sequence[np.ndarray], stored: Sequence[np.ndarray],
        faults: np.ndarray | None = None,
    ) -> bytes:  # fmt: skip
        """What the kernel reads its extents, numbers and addresses from."""
        words = list(self.words)
        for slot, which in self.loads:
            words[slot] = address(loaded[which])
        for slot, which in self.stores:
            words[slot] = address(stored[which])
        if faults is not None:
            words[self.code.names.index(("fault",))] = address(faults)
        return self.pack(*words)

    def launch(self, table: bytes) -> None:
        """Run all tasks."""
        threads = 1 if self.serial else parallel.thread_count()
        grain = max(self.grain, self.tasks // (PIECES * threads))
        launch(self.code.address, table, self.tasks, threads, grain)

    def finished(self, stored: list[np.ndarray]) -> list[np.ndarray]:
        """The values, from the arrays that the kernel wrote."""
        if self.plain:
            return stored
        with np.errstate(all="ignore"):
            return [one.finished(array) for one, array in zip(self.outputs, stored, strict=True)]


def template(step: KernelStep) -> Template:
    """The template of a step; compiles its code if need be."""
    if step.spec.streaming and (not _pooled(step) or _traffic(step) <= last_cache_bytes()):
        step = _cached(step)
    code = compile_spec(step.spec)
    parts = decompose(step.spec, step.rows, step.columns, step.group)
    places = {
        kind: tuple((slot, name[1]) for slot, name in enumerate(code.names) if name[0] == kind)
        for kind in ("load", "store")
    }
    words = tuple(_words(code.names, step, parts))
    outputs = tuple(_store(step, place, parts) for place in range(len(step.outputs)))
    serial = step.rows * step.columns < SERIAL_BELOW
    plain = all(one.kind in (FULL, ROW) for one in outputs)
    grain = max(1, TASK_ELEMENTS // max(1, parts.batch * parts.tile))
    return Template(step, code, parts.tasks, words, places["load"], places["store"], outputs,
                    serial, plain, grain, struct.Struct(f"={len(words)}q").pack)  # fmt: skip


def _pooled(step: KernelStep) -> bool:
    """Whether the memory of all full values is the pool's, which starts on cache lines."""
    kinds = [step.spec.instructions[i].kind for i in step.spec.stores]
    full = [n.type for n, kind in zip(step.outputs, kinds, strict=True) if kind == FULL]
    return all(value.row_bytes >= POOLED_FROM for value in full)


def _traffic(step: KernelStep) -> int:
    """Bytes that the kernel reads and writes, each once."""
    read = {load.node: load.node.type.row_bytes for load in step.loads}
    return sum(read.values()) + sum(node.type.row_bytes for node in step.outputs)


def _cached(step: KernelStep) -> KernelStep:
    """The step with stores that go through the caches."""
    return replace(step, spec=replace(step.spec, streaming=False))


def _store(step: KernelStep, place: int, parts: Decomposition) -> Store:
    one = step.spec.instructions[step.spec.stores[place]]
    value = step.outputs[place].type
    if one.kind in (FULL, ROW):
        return Store(one.kind, one.text, value.shape, value.dtype.numpy, value)
    memory = (parts.batches, step.columns) if one.kind == COLUMN else (parts.tasks,)
    groups = step.rows // step.group if one.kind == COLUMN else 1
    return Store(one.kind, one.text, memory, value.dtype.compute.numpy, value, groups)


def run_kernel(kernel: Template, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The arrays of the kernel's outputs, for those of its loads."""
    if kernel.step.gathers:
        return bind(kernel, arrays).run()
    loaded = [a if a.flags.c_contiguous else np.ascontiguousarray(a) for a in arrays]
    stored = [one.array() for one in kernel.outputs]
    kernel.launch(kernel.table(loaded, stored))
    return kernel.finished(stored)


@dataclass
class Bound:
    """A kernel on given arrays: it may run again on what they hold then."""

    kernel: Template
    stored: list[np.ndarray]
    table: bytes
    kept: Sequence[np.ndarray]
    faults: np.ndarray | None = None

    @property
    def serial(self) -> Callable[[], None] | None:
        """The kernel as a call without arguments, if one thread runs it all."""
        if not self.kernel.serial or self.faults is not None:
            return None
        return call_of(self.kernel.code.address, self.table, self.kernel.tasks)

    def run(self) -> list[np.ndarray]:
        """Compute the outputs."""
        self.kernel.launch(self.table)
        if self.faults is not None:
            self._check()
        return self.kernel.finished(self.stored)

    def _check(self) -> None:
        """Refuse results for which a position did not exist; the kernel read none."""
        assert self.faults is not None
        found = self.faults.reshape(-1, 2).copy()
        self.faults[:] = 0
        for (wrong, position), node in zip(found, self.kernel.step.gathers, strict=True):
            if wrong:
                axis = node.op.axis
                raise InvalidIndex(
                    f"{node.op.name}: position {position} is out of range for axis {axis} of "
                    f"extent {node.inputs[0].type.shape[axis]} (built at {node.where})."
                )


def _added(parts: np.ndarray) -> np.ndarray:
    """Rows added by pairs."""
    while len(parts) > 1:
        half = len(parts) // 2
        pairs = parts[:half] + parts[half : 2 * half]
        parts = np.concatenate([pairs, parts[2 * half :]]) if len(parts) % 2 else pairs
    return parts[0]


def bind(
    kernel: Template,
    arrays: Sequence[np.ndarray],
    given: Sequence[np.ndarray | None] = (),
) -> Bound:
    """A kernel on the arrays of its loads; full and row values go to `given` arrays, where there
    are some, else to new ones."""
    kept = [a if a.flags.c_contiguous else np.ascontiguousarray(a) for a in arrays]
    stored = [one.array() for one in kernel.outputs] if not given else [
        one.array() if array is None or one.kind not in (FULL, ROW) else array
        for one, array in zip(kernel.outputs, given, strict=True)
    ]  # fmt: skip
    if kernel.step.spec.streaming and not _on_lines(kernel, stored):
        return bind(template(_cached(kernel.step)), arrays, stored)
    gathers = kernel.step.gathers
    faults = np.zeros(2 * len(gathers), np.int64) if gathers else None
    return Bound(kernel, stored, kernel.table(kept, stored, faults), kept, faults)


def _on_lines(kernel: Template, stored: Sequence[np.ndarray]) -> bool:
    """Whether full values start on cache lines."""
    return all(
        address(array) % CACHE_LINE == 0
        for array, one in zip(stored, kernel.outputs, strict=True) if one.kind == FULL
    )  # fmt: skip


def _words(names: Sequence[tuple], step: KernelStep, parts: Decomposition) -> list[int]:
    """The kernel's table; addresses of arrays are still 0."""
    sizes = {"rows": step.rows, "columns": step.columns, "batch": parts.batch,
             "tile": parts.tile, "tiles": parts.tiles}  # fmt: skip
    words = []
    for kind, *places in names:
        which, *rest = places or [0]
        if kind == "size":
            words.append(sizes[which])
        elif kind in ("load", "store", "fault"):
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
