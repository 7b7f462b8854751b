"""Whole-tensor programs bound to memory: what lies between their kernels has fixed places, which
serve one value after another."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from tiga.backends.triton.dense.executable import DenseExecutable, filled
from tiga.backends.triton.dense.library import call_library
from tiga.backends.triton.dense.moves import copy_into
from tiga.backends.triton.dense.run import Room
from tiga.passes.tensor_spec import KernelStep
from tiga.runtime.device_array import DeviceArray, DeviceMemory
from tiga.trace.node import Node
from tiga.types import Type

Action = Callable[[], Any]


@dataclass(frozen=True)
class PreparedDense:
    """A program bound to memory: running it computes its one output again, in place."""

    calls: tuple[Action, ...]

    def run(self) -> None:
        for call in self.calls:
            call()


ALIGNMENT = 256
"""Bytes of which places are multiples."""


@dataclass(frozen=True)
class Places(Room):
    """Memory of a prepared call. A value is put where others were that are read no more, in the
    shortest stretch that holds it; else the call takes more memory."""

    free: dict[int, tuple[int, DeviceMemory]] = field(default_factory=dict)
    """The length of each free stretch, and the memory that it is of, by its address."""
    held: list[DeviceMemory] = field(default_factory=list)

    def like(self, shape: tuple[int, ...], dtype: Any) -> DeviceArray:
        nbytes = math.prod(shape) * np.dtype(dtype).itemsize
        nbytes = max(-(-nbytes // ALIGNMENT), 1) * ALIGNMENT
        address, whole = self._taken(nbytes)
        memory = DeviceMemory(self.machine, nbytes, address=address, owner=whole)
        self.held.append(memory)
        return DeviceArray(memory, shape, dtype)

    def _taken(self, nbytes: int) -> tuple[int, DeviceMemory]:
        fitting = [(size, address) for address, (size, _) in self.free.items() if size >= nbytes]
        if not fitting:
            whole = super().like((nbytes,), np.uint8).memory
            return whole.address, whole
        size, address = min(fitting)
        _, whole = self.free.pop(address)
        if size > nbytes:
            self.free[address + nbytes] = size - nbytes, whole
        return address, whole

    def settle(self, live: Iterable[DeviceArray]) -> None:
        """Take back the places of all values but these."""
        kept = {array.memory for array in live}
        for memory in [memory for memory in self.held if memory not in kept]:
            self.held.remove(memory)
            self.free[memory.address] = memory.nbytes, memory.owner
        for address in sorted(self.free):
            self._joined(address)

    def _joined(self, address: int) -> None:
        """Make one stretch of this and those that follow it at once."""
        while address in self.free:
            size, whole = self.free[address]
            following = self.free.get(address + size)
            if following is None or following[1] is not whole:
                return
            del self.free[address + size]
            self.free[address] = size + following[0], whole


@dataclass(frozen=True)
class Beside(Room):
    """Room for an op whose result has its memory: the first value of the result's type gets it."""

    type: Type | None = None
    result: list[DeviceArray] = field(default_factory=list)

    def array(self, type_: Type) -> DeviceArray:
        return self.result.pop() if self.result and type_ == self.type else super().array(type_)


@dataclass
class Preparation:
    """Binds the steps of a program, one after another, to memory that stays. `places` has values
    between steps; in every run, ops that stand by themselves work in `room`."""

    executable: DenseExecutable
    room: Room
    places: Places
    known: dict[Node, DeviceArray]
    given: dict[Node, DeviceArray]
    actions: list[Action] = field(default_factory=list)

    def kernel(self, number: int, step: KernelStep) -> None:
        """A kernel with its operands where they will be in every run."""
        made = {n: self.given[n] if n in self.given else self.places.array(n.type)
                for n in step.outputs}  # fmt: skip
        operands = {**self.known, **self._copies(step)}
        bound = self.executable.bound(number, self.room.machine)
        self.actions.append(bound.prepared(operands, self.places, made))
        self.known.update(made)

    def _copies(self, step: KernelStep) -> dict[Node, DeviceArray]:
        """Operands that kernels do not take as they are, copied in every run."""
        found: dict[Node, DeviceArray] = {}
        for node in {load.node for load in step.loads}:
            array = self.known[node]
            if not array.is_launchable:
                found[node] = self.places.like(array.shape, array.dtype)
                self.actions.append(partial(copy_into, found[node], array))
        return found

    def library(self, node: Node) -> None:
        """An op that stands by itself: a view is made once, anything else in every run."""
        inputs = [self.known[child] for child in node.inputs]
        made = self.known[node] = call_library(node, inputs, self.places)
        if any(made.memory is array.memory for array in inputs):
            return
        room = self.room
        # A call on a graph keeps what nobody asked for yet of its outputs.
        lends = made.is_launchable and not hasattr(node.op, "compute_on_gpu")
        given = [made] if lends else []

        def again() -> None:
            beside = Beside(room.machine, room.scope, node.type, list(given))
            found = call_library(node, inputs, beside)
            if found.memory is not made.memory:
                copy_into(made, found)

        self.actions.append(again)

    def release(self, nodes: Iterable[Node]) -> None:
        """Values that no later step reads."""
        for node in nodes:
            del self.known[node]
        self.places.settle(self.known.values())


def prepare_dense(
    executable: DenseExecutable, arrays: Sequence[DeviceArray], output: DeviceArray, room: Room
) -> PreparedDense:
    """Bind an executable with one output to the memory of its inputs and its output."""
    known = dict(zip(executable.program.inputs, arrays, strict=True))
    known.update({node: filled(node, room) for node in executable.constants})
    (result,) = executable.outputs
    given = {result: output} if output.is_launchable else {}
    places = Places(room.machine, room.scope)
    bound = Preparation(executable, room, places, known, given)
    for number, step in enumerate(executable.steps):
        if isinstance(step, KernelStep):
            bound.kernel(number, step)
        else:
            bound.library(step.node)
        bound.release(executable.released[number])
    if bound.known[result] is not output:
        bound.actions.append(partial(copy_into, output, bound.known[result]))
    return PreparedDense(tuple(bound.actions))
