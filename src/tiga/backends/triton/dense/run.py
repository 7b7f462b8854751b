"""Whole-tensor programs on a GPU: kernels bound to a machine, memory for values, moves between."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from tiga.backends.triton.dense import values as dv
from tiga.backends.triton.dense.combine import Combination, combination, combine
from tiga.backends.triton.dense.form import LIMIT, DenseGrid, decompose
from tiga.backends.triton.dense.kernel import build
from tiga.backends.triton.dense.moves import contiguous
from tiga.backends.triton.machine import Gpu, Interpreter, Launch
from tiga.backends.triton.writer import KernelSource
from tiga.passes.tensor_spec import COLUMN, TOTAL, KernelStep, Load
from tiga.runtime.device_array import DeviceArray, DeviceMemory
from tiga.runtime.scope import Scope
from tiga.trace.node import Node
from tiga.types import DType, Type


@dataclass(frozen=True)
class Room:
    """Where values of a run live: a machine, and the scope whose budget they count against."""

    machine: Gpu | Interpreter
    scope: Scope | None = None

    def array(self, type_: Type) -> DeviceArray:
        """Memory for a value, its elements not set."""
        return self.like(type_.shape, type_.dtype.numpy)

    def like(self, shape: tuple[int, ...], dtype: Any) -> DeviceArray:
        """Memory for an array."""
        nbytes = math.prod(shape) * np.dtype(dtype).itemsize
        holder = f"a value of shape {tuple(shape)} on cuda:{self.machine.index}"
        uncharge = None
        if self.scope is not None:
            ticket = self.scope.charge(nbytes, holder, "device")
            uncharge = partial(self.scope.accounts["device"].release, ticket)
        return DeviceArray(DeviceMemory(self.machine, nbytes, uncharge), shape, dtype)


@dataclass(frozen=True)
class Stage:
    """The second stage of one output."""

    launch: Launch
    pieces: tuple[tuple[int, ...], Any]


@dataclass
class BoundKernel:
    """A kernel of a program on one machine. `order` says which array each address of a launch is:
    ("load", number) or ("store", place)."""

    step: KernelStep
    grid: DenseGrid
    source: KernelSource
    launch: Launch
    order: tuple[tuple[str, int], ...]
    stages: Mapping[int, Stage]

    @staticmethod
    def of(step: KernelStep, machine: Gpu | Interpreter) -> "BoundKernel":
        """The kernel, compiled for a machine."""
        grid = decompose(step)
        source = build(step.spec, grid.form)
        keys = [p.key for p in source.parameters]
        order = tuple(k for k in keys if isinstance(k, tuple) and k[0] in ("load", "store"))
        numbers = [_number(step, grid, key) for key in keys]
        launch = machine.bind(source, grid.programs, numbers)
        return BoundKernel(step, grid, source, launch, order, _stages(step, grid, machine))

    def run(self, known: Mapping[Node, DeviceArray], room: Room) -> list[DeviceArray]:
        """The kernel's outputs, in new memory."""
        outputs = [room.array(node.type) for node in self.step.outputs]
        for launch, arrays in self._launches(known, room, outputs):
            launch([array.address for array in arrays])
        return outputs

    def prepared(
        self, known: Mapping[Node, DeviceArray], room: Room, given: Mapping[Node, DeviceArray]
    ) -> Callable[[], None]:
        """The kernel on the memory of its operands and of given outputs, as a call."""
        outputs = [given[node] for node in self.step.outputs]
        launches = self._launches(known, room, outputs)
        bound = [(launch, [a.address for a in arrays]) for launch, arrays in launches]

        def run(kept: object = launches) -> None:
            for launch, addresses in bound:
                launch(addresses)

        return run

    def _launches(
        self, known: Mapping[Node, DeviceArray], room: Room, outputs: Sequence[DeviceArray]
    ) -> list[tuple[Launch, list[DeviceArray]]]:
        """The launches in order, with the arrays that they take."""
        loads = [contiguous(known[load.node]) for load in self.step.loads]
        written = list(outputs)
        for place, stage in self.stages.items():
            written[place] = room.like(*stage.pieces)
        arrays = {"load": loads, "store": written}
        first = [arrays[kind][number] for kind, number in self.order]
        seconds = [(s.launch, [written[p], outputs[p]]) for p, s in self.stages.items()]
        return [(self.launch, first), *seconds]


def _number(step: KernelStep, grid: DenseGrid, key: Any) -> Any:
    """The value of a parameter; None for an address."""
    kind, which, *rest = key
    if kind in ("load", "store"):
        return None
    unit = grid.form.unit
    if kind == "size":
        sizes = {"rows": step.rows, "columns": step.columns // unit, "steps": grid.steps}
        return sizes[which]
    if kind == "argument":
        number = step.arguments[which]
        return number if isinstance(number, float) else int(number)
    extent, stride = step.loads[which].strides[rest[0]]
    if kind == "extent":
        return extent
    moves = any(isinstance(i, Load) and i.array == which and i.moves
                for i in step.spec.instructions)  # fmt: skip
    return stride // unit if moves else stride


@dataclass(frozen=True)
class Pieces:
    """Partial results of one output: how many, of how many numbers each, and what adds them."""

    count: int
    columns: int
    dtype: DType
    form: Combination

    @property
    def numbers(self) -> int:
        """Real numbers in each."""
        return self.columns * dv.parts(self.dtype)

    def source(self) -> KernelSource:
        return combine(self.form, self.count * self.numbers >= LIMIT)


def _pieces(step: KernelStep, grid: DenseGrid) -> dict[int, Pieces]:
    """The partial results by the place of the output that they become."""
    found: dict[int, Pieces] = {}
    for place, stored in enumerate(step.spec.stores):
        one = step.spec.instructions[stored]
        if one.kind not in (COLUMN, TOTAL) or grid.form.single:
            continue
        count = grid.groups if one.kind == COLUMN else grid.groups * grid.windows
        columns = step.columns if one.kind == COLUMN else 1
        combine = step.spec.reduction(stored).combine
        form = combination(combine, one.dtype, count, columns * dv.parts(one.dtype))
        found[place] = Pieces(count, columns, one.dtype, form)
    return found


def _stages(step: KernelStep, grid: DenseGrid, machine: Gpu | Interpreter) -> dict[int, Stage]:
    found: dict[int, Stage] = {}
    for place, pieces in _pieces(step, grid).items():
        programs = (-(-pieces.numbers // pieces.form.window), 1, 1)
        numbers = [None, None, pieces.count, pieces.numbers]
        launch = machine.bind(pieces.source(), programs, numbers)
        shape = (pieces.count, pieces.columns)
        found[place] = Stage(launch, (shape, pieces.dtype.compute.numpy))
    return found


def sources_of(step: KernelStep) -> list[KernelSource]:
    """The kernels of a step, in the order of their launches."""
    grid = decompose(step)
    return [build(step.spec, grid.form), *(p.source() for p in _pieces(step, grid).values())]


@dataclass
class KernelCache:
    """Kernels of one program by the number of their step and their machine; `complete` are the
    machines that have them all."""

    bound: dict[tuple[int, int], BoundKernel] = field(default_factory=dict)
    complete: set[int] = field(default_factory=set)

    def get(self, number: int, step: KernelStep, machine: Gpu | Interpreter) -> BoundKernel:
        key = (number, machine.index)
        if key not in self.bound:
            self.bound[key] = BoundKernel.of(step, machine)
        return self.bound[key]
