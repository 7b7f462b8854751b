"""Compile kernels of whole-tensor programs, once per code, and run them on arrays."""

import struct
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from operator import is_
from typing import Any, NamedTuple
from weakref import ref

import numpy as np

from tiga.backends.llvm.dense.decomposition import (
    SERIAL_BELOW,
    TASK_ELEMENTS,
    Decomposition,
    Finish,
    decompose,
    in_levels,
    stretch_rows,
)
from tiga.backends.llvm.dense.kernel import build
from tiga.backends.llvm.dense.slots import (
    part_dtype,
    partial_places,
    slot_names,
    work_places,
)
from tiga.backends.llvm.engine import Library
from tiga.backends.llvm.host import last_cache_bytes
from tiga.backends.llvm.launcher import call_of, compile_kernels, launch
from tiga.backends.llvm.memory import CACHE_LINE
from tiga.errors import InvalidIndex
from tiga.passes.tensor_spec import COLUMN, FULL, TOTAL, KernelStep, Operand, Spec
from tiga.runtime import parallel
from tiga.runtime.addresses import address
from tiga.runtime.layout import row_major_array
from tiga.runtime.pool import PARTIAL_FROM, POOL, POOLED_FROM
from tiga.types import DType, Shape

PIECES = 8
"""Pieces of neighbouring tasks that each thread takes, at most: long runs of memory for the
prefetcher, short enough to balance threads."""

OPT_LEVEL = 2
"""LLVM's: loops here are over whole vectors, which a higher level unrolls for no gain in time, but
takes up to a third longer to compile."""


@dataclass(frozen=True)
class Code:
    """A compiled kernel, and what combines the parts that its tasks leave (0: nothing)."""

    library: Library
    address: int
    finish: int
    names: tuple[tuple, ...]


@lru_cache(maxsize=1024)
def compile_spec(spec: Spec) -> Code:
    """The machine code of a kernel, compiled once."""
    library = compile_kernels(build(spec), OPT_LEVEL)
    finish = library.address("finish") if partial_places(spec) else 0
    return Code(library, library.address("kernel"), finish, tuple(slot_names(spec)))


@dataclass(frozen=True)
class Store:
    """An output of a kernel. Tasks leave `parts` of one that they reduce to (0: they write it)."""

    shape: Shape
    dtype: DType
    parts: int
    part: DType

    @property
    def parts_bytes(self) -> int:
        """Memory of its parts, in whole cache lines."""
        return _whole_lines(self.parts * self.part.itemsize)

    @property
    def work_bytes(self) -> int:
        """Memory of stretches beside them."""
        return _whole_lines(self.parts * self.dtype.compute.itemsize)


def _whole_lines(count: int) -> int:
    return -(-count // CACHE_LINE) * CACHE_LINE


class Table(NamedTuple):
    """What a kernel reads, and what its addresses are of: operands, and memory of the pool. Often
    the same come again, and to ask for addresses takes long while caches are filled with others'.
    """

    words: bytes
    places: tuple[ref, ...]

    def has(self, places: Sequence[Any]) -> bool:
        """Whether the addresses are of these."""
        return all(map(is_, [known() for known in self.places], places))


@dataclass(frozen=True)
class Template:
    """A kernel with everything but the addresses of its arrays: `loads` and `stores` say which
    slots of the table take which, and how many bytes further on loads start; `parts` where in
    `scratch` bytes parts of results go. `serial`: one thread is faster."""

    step: KernelStep
    code: Code
    tasks: int
    words: tuple[int, ...]
    loads: tuple[tuple[int, int, int], ...]
    stores: tuple[tuple[int, int], ...]
    parts: tuple[tuple[int, int], ...]
    scratch: int
    shapes: tuple[Shape, ...]
    dtypes: tuple[np.dtype, ...]
    finish: Finish
    serial: bool
    grain: int
    pack: Callable[..., bytes]
    pooled: bool
    last: list["Table"]

    def run(self, arrays: Sequence[np.ndarray], bodies: Sequence[Any] = ()) -> list[np.ndarray]:
        """The arrays of the kernel's outputs, for those of its loads; it has no `bodies` to call.
        Every call of a compiled expression comes by here."""
        if self.step.gathers:
            return bind(self, arrays).run()
        stored = list(map(POOL.array, self.shapes, self.dtypes))
        places = [*arrays, *[one.base for one in stored]]
        for table in self.last:
            if table.has(places):
                self.launch(table.words)
                return stored
        loaded = list(map(row_major_array, arrays))
        scratch = self.room() if self.parts else None
        words = self.table(loaded, stored, scratch)
        self.launch(words)
        if self.pooled and all(a is b for a, b in zip(loaded, arrays, strict=True)):
            self.last[:] = [Table(words, tuple(map(ref, places)))]
        return stored

    def room(self) -> np.ndarray:
        """Memory for parts of results."""
        return POOL.array((self.scratch,), _BYTE, PARTIAL_FROM)

    def table(
        self, loaded: Sequence[np.ndarray], stored: Sequence[np.ndarray],
        scratch: np.ndarray | None, faults: np.ndarray | None = None,
    ) -> bytes:  # fmt: skip
        """What the kernel reads its extents, numbers and addresses from."""
        words = list(self.words)
        for slot, which, start in self.loads:
            words[slot] = address(loaded[which]) + start
        for slot, which in self.stores:
            words[slot] = address(stored[which])
        if scratch is not None:
            start = address(scratch)
            for slot, offset in self.parts:
                words[slot] = start + offset
        if faults is not None:
            words[self.code.names.index(("fault",))] = address(faults)
        return self.pack(*words)

    def launch(self, table: bytes) -> None:
        """Run all tasks."""
        threads = 1 if self.serial else parallel.wanted_threads()
        grain = max(self.grain, self.tasks // (PIECES * threads))
        launch(self.code.address, table, self.tasks, threads, grain)
        if self.parts:
            launch(self.code.finish, table, self.finish.tasks, threads, self.finish.grain)

    def call(self, table: bytes) -> Callable[[], None]:
        """The kernel as a call without arguments, on this thread."""
        first = call_of(self.code.address, table, self.tasks)
        if not self.parts:
            return first
        last = call_of(self.code.finish, table, self.finish.tasks)

        def both() -> None:
            first()
            last()

        return both


_BYTE = np.dtype(np.uint8)


def template(step: KernelStep) -> Template:
    """The template of a step; compiles its code if need be."""
    if step.spec.streaming and (not _pooled(step) or _fits_cache(step)):
        step = _cached(step)
    cut = decompose(step.spec, step.rows, step.columns, step.group)
    step = replace(step, spec=in_levels(step.spec, cut))
    code = compile_spec(step.spec)
    finish = Finish.of(step, cut)
    slots = {name: slot for slot, name in enumerate(code.names)}
    words = tuple(_words(code.names, step, cut, finish))
    outputs = tuple(_store(step, place, cut) for place in range(len(step.outputs)))
    loads = tuple(
        (slot, name[1], _start_bytes(step.loads[name[1]]))
        for name, slot in slots.items() if name[0] == "load"
    )  # fmt: skip
    stores = tuple(
        (slots["result" if one.parts else "store", place], place)
        for place, one in enumerate(outputs)
    )
    parts, scratch = _scratch(outputs, slots, work_places(step.spec))
    serial = step.rows * step.columns < SERIAL_BELOW
    grain = max(1, TASK_ELEMENTS // max(1, cut.batch * cut.tile))
    pack = struct.Struct(f"={len(words)}q").pack
    large = all(node.type.row_bytes >= POOLED_FROM for node in step.outputs)
    return Template(step, code, cut.tasks, words, loads, stores, parts, scratch,
                    tuple(one.shape for one in outputs), tuple(one.dtype.numpy for one in outputs),
                    finish, serial, grain, pack, large and not parts, [])  # fmt: skip


def _scratch(
    outputs: Sequence[Store], slots: Mapping[Any, int], works: Collection[int]
) -> tuple[tuple[tuple[int, int], ...], int]:
    """Slots and offsets of what a run keeps besides its results: parts of them, and what tasks work
    in; and the bytes of it all."""
    parts, size = [], 0
    for place, one in enumerate(outputs):
        if one.parts:
            parts.append((slots["store", place], size))
            size += one.parts_bytes
        if place in works:
            parts.append((slots["work", place], size))
            size += one.work_bytes
    return tuple(parts), size


def _start_bytes(one: Operand) -> int:
    return one.start * one.node.type.dtype.itemsize


def _pooled(step: KernelStep) -> bool:
    """Whether the memory of all full values is the pool's, which starts on cache lines."""
    kinds = [step.spec.instructions[i].kind for i in step.spec.stores]
    full = [n.type for n, kind in zip(step.outputs, kinds, strict=True) if kind == FULL]
    return all(value.row_bytes >= POOLED_FROM for value in full)


def _fits_cache(step: KernelStep) -> bool:
    """Whether what the kernel reads and writes is in the last cache afterwards."""
    read = {load.node: load.node.type.row_bytes for load in step.loads}
    written = sum(node.type.row_bytes for node in step.outputs)
    return sum(read.values()) + written <= last_cache_bytes()


def _cached(step: KernelStep) -> KernelStep:
    """The step with stores that go through the caches."""
    return replace(step, spec=replace(step.spec, streaming=False))


def _store(step: KernelStep, place: int, cut: Decomposition) -> Store:
    kind = step.spec.instructions[step.spec.stores[place]].kind
    value = step.outputs[place].type
    parts = {COLUMN: cut.batches * step.columns, TOTAL: cut.tasks}
    if kind not in parts:
        return Store(value.shape, value.dtype, 0, value.dtype)
    part = part_dtype(step.spec, step.spec.stores[place])
    return Store(value.shape, value.dtype, parts[kind], part)


@dataclass
class BoundKernel:
    """A kernel on given arrays: it may run again on what they hold then."""

    kernel: Template
    stored: list[np.ndarray]
    table: bytes
    kept: Sequence[np.ndarray | None]
    faults: np.ndarray | None = None

    @property
    def serial(self) -> Callable[[], None] | None:
        """The kernel as a call without arguments, if one thread runs it all."""
        if not self.kernel.serial or self.faults is not None:
            return None
        return self.kernel.call(self.table)

    def run(self) -> list[np.ndarray]:
        """Compute the outputs."""
        self.kernel.launch(self.table)
        if self.faults is not None:
            self._check()
        return self.stored

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


def bind(
    kernel: Template, arrays: Sequence[np.ndarray], given: Sequence[np.ndarray | None] = ()
) -> BoundKernel:
    """A kernel on the arrays of its loads; values go to `given` arrays, where there are some, else
    to new ones."""
    kept = [row_major_array(a) for a in arrays]
    places = given or [None] * len(kernel.shapes)
    stored = [
        POOL.array(shape, dtype) if array is None else array
        for shape, dtype, array in zip(kernel.shapes, kernel.dtypes, places, strict=True)
    ]
    if kernel.step.spec.streaming and not _on_lines(kernel, stored):
        return bind(template(_cached(kernel.step)), arrays, stored)
    gathers = kernel.step.gathers
    faults = np.zeros(2 * len(gathers), np.int64) if gathers else None
    scratch = kernel.room() if kernel.parts else None
    table = kernel.table(kept, stored, scratch, faults)
    return BoundKernel(kernel, stored, table, [*kept, scratch], faults)


def _on_lines(kernel: Template, stored: Sequence[np.ndarray]) -> bool:
    """Whether full values start on cache lines."""
    instructions, stores = kernel.step.spec.instructions, kernel.step.spec.stores
    kinds = [instructions[i].kind for i in stores]
    return all(
        address(array) % CACHE_LINE == 0
        for array, kind in zip(stored, kinds, strict=True) if kind == FULL
    )  # fmt: skip


def _words(
    names: Sequence[tuple], step: KernelStep, cut: Decomposition, finish: Finish
) -> list[int]:
    """The kernel's table; addresses of arrays are still 0."""
    sizes = {"rows": step.rows, "columns": step.columns, "batch": cut.batch, "tile": cut.tile,
             "tiles": cut.tiles, "parts": finish.parts, "width": finish.width,
             "blocks": finish.blocks, "tasks": cut.tasks,
             "height": stretch_rows(step.spec, cut)}  # fmt: skip
    words = []
    for kind, *places in names:
        which, *rest = places or [0]
        if kind == "size":
            words.append(sizes[which])
        elif kind in ("load", "store", "work", "result", "fault"):
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
