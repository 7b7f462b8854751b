"""Whole-tensor programs on GPUs: planned once, compiled for a machine at their first run there."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from time import perf_counter
from typing import Any

import numpy as np

from tiga.backends.triton.compiled import compile_kernel
from tiga.backends.triton.dense.library import VIEWS, call_library
from tiga.backends.triton.dense.moves import contiguous, copy_into
from tiga.backends.triton.dense.ordered import in_order
from tiga.backends.triton.dense.rewrite import for_kernels
from tiga.backends.triton.dense.run import BoundKernel, KernelCache, Room, sources_of
from tiga.backends.triton.dense.values import GPU
from tiga.backends.triton.machine import Gpu, Interpreter
from tiga.errors import InvalidValue
from tiga.ops.dense import Deferred
from tiga.passes.rows import LibraryCall
from tiga.passes.tensor_identity import semantic_hash
from tiga.passes.tensor_plan import plan
from tiga.passes.tensor_spec import KernelStep, TensorStep, last_reads
from tiga.runtime.device_array import DeviceArray, DeviceMemory, upload
from tiga.trace.node import Node
from tiga.trace.origin import Origin
from tiga.trace.program import Program

Body = Callable[[Sequence[DeviceArray], Room], DeviceArray]
"""What a deferred call computes of its contiguous operands."""

STAGES = ("triton", "ttir", "ptx")
CAPABILITY = 90
"""What texts are shown for."""


@dataclass(frozen=True)
class DenseExecutable:
    """A whole-tensor program as steps. `outputs` are those of the rewritten program, in order."""

    program: Program
    outputs: tuple[Node, ...]
    steps: tuple[TensorStep, ...]
    cache: KernelCache = field(default_factory=KernelCache)

    backend = "cuda-triton"

    @cached_property
    def kernels(self) -> tuple[KernelStep, ...]:
        return tuple(step for step in self.steps if isinstance(step, KernelStep))

    @cached_property
    def calls(self) -> tuple[str, ...]:
        """Ops that stand by themselves; views cost nothing and are left out."""
        nodes = [step.node for step in self.steps if isinstance(step, LibraryCall)]
        return tuple(n.op.name for n in nodes if not isinstance(n.op, VIEWS))

    @cached_property
    def semantic_hash(self) -> str:
        """What tells the program from others."""
        return semantic_hash(self.program)

    @cached_property
    def constants(self) -> tuple[Node, ...]:
        """Constants that are read as arrays."""
        reads = {n for step in self.steps for n in step.reads} | set(self.outputs)
        return tuple(n for n in reads if n.op.origin is Origin.NUMBER)

    @cached_property
    def released(self) -> list[list[Node]]:
        """After each step, the values that are read no more."""
        kept = {*self.outputs, *self.program.inputs, *self.constants}
        return last_reads(self.steps, kept)

    def bound(self, number: int, machine: Gpu | Interpreter) -> BoundKernel:
        """The kernel of a step on a machine."""
        step = self.steps[number]
        assert isinstance(step, KernelStep)
        return self.cache.get(number, step, machine)

    @cached_property
    def _is_fresh(self) -> bool:
        """Whether every output is an array that a kernel made, for this output alone."""
        made = {node for step in self.kernels for node in step.outputs}
        return len(set(self.outputs)) == len(self.outputs) and made >= set(self.outputs)

    def is_compiled(self, machine: Gpu | Interpreter) -> bool:
        """Whether all kernels are compiled for a machine."""
        return machine.index in self.cache.complete

    @property
    def kernels_from_disk(self) -> None:
        """Not known: Triton keeps them, and does not tell."""

    def compile(self, machine: Gpu | Interpreter) -> float:
        """Compile what is not compiled yet; milliseconds spent."""
        start = perf_counter()
        for number, step in enumerate(self.steps):
            if isinstance(step, KernelStep):
                self.bound(number, machine)
        self.cache.complete.add(machine.index)
        return (perf_counter() - start) * 1e3

    def run(
        self, arrays: Sequence[DeviceArray], room: Room, calls: Sequence[Body] = ()
    ) -> list[DeviceArray]:
        """The outputs for given inputs, each in memory of its own. `calls` are the bodies of calls
        that the program defers, by their numbers."""
        known = dict(zip(self.program.inputs, arrays, strict=True))
        known.update({node: filled(node, room) for node in self.constants})
        for number, step in enumerate(self.steps):
            if isinstance(step, KernelStep):
                found = self.bound(number, room.machine).run(known, room)
                known.update(zip(step.outputs, found, strict=True))
            else:
                node = step.node
                given = [known[child] for child in node.inputs]
                known[node] = _called(node, given, room, calls)
            for node in self.released[number]:
                del known[node]
        found = [known[node] for node in self.outputs]
        return found if self._is_fresh else _own(found, arrays, room)


def _called(node: Node, given: list[DeviceArray], room: Room, calls: Sequence[Body]) -> DeviceArray:
    if isinstance(node.op, Deferred):
        return calls[node.op.number]([contiguous(array) for array in given], room)
    return call_library(node, given, room)


def filled(node: Node, room: Room) -> DeviceArray:
    """A constant: one element, seen at every place."""
    one = np.asarray(node.op.value, node.type.dtype.numpy)
    made = upload(one, room.machine, DeviceMemory(room.machine, one.nbytes))
    view: Any = np.broadcast_to(made, node.type.shape)
    return view


def _own(
    arrays: Sequence[DeviceArray], given: Sequence[DeviceArray], room: Room
) -> list[DeviceArray]:
    """Outputs in row-major memory that neither an input nor another output shares."""
    taken = [array.memory for array in given]
    owned: list[DeviceArray] = []
    for array in arrays:
        shared = any(array.memory is memory for memory in taken)
        whole = array.is_launchable and array.nbytes == array.memory.nbytes
        if shared or not whole:
            array = copied(array, room)
        taken.append(array.memory)
        owned.append(array)
    return owned


def copied(array: DeviceArray, room: Room) -> DeviceArray:
    """A row-major copy with memory of its own."""
    made = room.like(array.shape, array.dtype)
    copy_into(made, array)
    return made


@lru_cache(maxsize=256)
def compile_dense(program: Program, relaxed: bool = True) -> DenseExecutable:
    """The executable of a whole-tensor program on GPUs, planned once; without `relaxed` sums add
    element after element. Needs no MLIR bindings."""
    rewritten = for_kernels(program if relaxed else in_order(program))
    return DenseExecutable(program, rewritten.outputs, plan(rewritten, True, True, GPU))


def dense_code(program: Program, stage: str) -> str:
    """The text of one stage of a program's kernels, those of calls on graphs included: "triton",
    "ttir" or "ptx" (for sm_90).

    Raises:
        InvalidValue: there is no such stage.
    """
    if stage not in STAGES:
        expected = ", ".join(("gf_tensor", *STAGES))
        raise InvalidValue(f"generated_code expected one of {expected} on a GPU, got {stage!r}.")
    # Uncached: a call holds its graph.
    texts = [text for step in compile_dense.__wrapped__(program).steps
             for text in _texts(step, stage)]  # fmt: skip
    return "\n".join(dict.fromkeys(texts))


def _texts(step: TensorStep, stage: str) -> list[str]:
    if isinstance(step, LibraryCall):
        known = hasattr(step.node.op, "gpu_code")
        return [step.node.op.gpu_code(stage)] if known else []
    sources = sources_of(step)
    if stage == "triton":
        return [source.text for source in sources]
    aligned = [[p.type.startswith("*") for p in source.parameters] for source in sources]
    return [str(compile_kernel(source, CAPABILITY, pointers).asm[stage])
            for source, pointers in zip(sources, aligned, strict=True)]  # fmt: skip
