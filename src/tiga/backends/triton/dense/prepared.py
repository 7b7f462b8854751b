"""Whole-tensor programs bound to memory: what lies between their kernels has fixed places."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tiga.backends.triton.dense.executable import DenseExecutable, filled
from tiga.backends.triton.dense.library import call_library
from tiga.backends.triton.dense.moves import copy_into
from tiga.backends.triton.dense.run import Room
from tiga.passes.tensor_spec import KernelStep
from tiga.runtime.device_array import DeviceArray
from tiga.trace.node import Node

Action = Callable[[], Any]


@dataclass(frozen=True)
class PreparedDense:
    """A program bound to memory: running it computes its one output again, in place."""

    calls: tuple[Action, ...]

    def run(self) -> None:
        for call in self.calls:
            call()


@dataclass
class Preparation:
    """Binds the steps of a program, one after another, to memory that stays."""

    executable: DenseExecutable
    room: Room
    known: dict[Node, DeviceArray]
    given: dict[Node, DeviceArray]
    actions: list[Action] = field(default_factory=list)

    def kernel(self, number: int, step: KernelStep) -> None:
        """A kernel with its operands where they will be in every run."""
        made = {n: self.given[n] if n in self.given else self.room.array(n.type)
                for n in step.outputs}  # fmt: skip
        operands = {**self.known, **self._copies(step)}
        bound = self.executable.bound(number, self.room.machine)
        self.actions.append(bound.prepared(operands, self.room, made))
        self.known.update(made)

    def _copies(self, step: KernelStep) -> dict[Node, DeviceArray]:
        """Operands that kernels do not take as they are, copied in every run."""
        found: dict[Node, DeviceArray] = {}
        for node in {load.node for load in step.loads}:
            array = self.known[node]
            if not array.is_launchable:
                found[node] = self.room.like(array.shape, array.dtype)
                self.actions.append(partial(copy_into, found[node], array))
        return found

    def library(self, node: Node) -> None:
        """An op that stands by itself: a view is made once, anything else in every run."""
        inputs = [self.known[child] for child in node.inputs]
        made = self.known[node] = call_library(node, inputs, self.room)
        if any(made.memory is array.memory for array in inputs):
            return
        room = self.room

        def again() -> None:
            copy_into(made, call_library(node, inputs, room))

        self.actions.append(again)


def prepare_dense(
    executable: DenseExecutable, arrays: Sequence[DeviceArray], output: DeviceArray, room: Room
) -> PreparedDense:
    """Bind an executable with one output to the memory of its inputs and its output."""
    known = dict(zip(executable.program.inputs, arrays, strict=True))
    known.update({node: filled(node, room) for node in executable.constants})
    (result,) = executable.outputs
    given = {result: output} if output.is_launchable else {}
    bound = Preparation(executable, room, known, given)
    for number, step in enumerate(executable.steps):
        if isinstance(step, KernelStep):
            bound.kernel(number, step)
        else:
            bound.library(step.node)
    if bound.known[result] is not output:
        bound.actions.append(partial(copy_into, output, bound.known[result]))
    return PreparedDense(tuple(bound.actions))
