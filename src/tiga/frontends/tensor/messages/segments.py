"""Parts of expressions that keep only what they read: values are made again for derivatives."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from tiga import knobs
from tiga.frontends.tensor.build import apply, result
from tiga.frontends.tensor.core import Tensor
from tiga.frontends.tensor.messages.unasked import Unasked
from tiga.frontends.tensor.program import program_of
from tiga.frontends.tensor.running import interpreted
from tiga.ops.dense import OuterCall
from tiga.ops.leaf import Input
from tiga.ops.pointwise import add
from tiga.ops.tensor_complex import conj
from tiga.tensor_compiler import TensorExecutable, plan_tensors
from tiga.trace.autodiff import jvp, vjp
from tiga.trace.node import Node, topological
from tiga.trace.program import Program
from tiga.types import Type


@dataclass(eq=False)
class Segment:
    """A program that runs as one step. One run computes all outputs: those that nobody asked for
    yet are kept until they are. `wanted` are the inputs that derivatives may be asked for."""

    program: Program
    wanted: tuple[int, ...]
    unasked: Unasked = field(default_factory=Unasked)
    backward: dict[int, tuple["Segment", tuple[int, ...]]] = field(default_factory=dict)

    @cached_property
    def _compiled(self) -> TensorExecutable:
        return plan_tensors(self.program, knobs.read("tensor_backend") == "native")

    def output(self, index: int, arrays: Sequence[np.ndarray]) -> np.ndarray:
        """One output."""
        found: np.ndarray | None = self.unasked.take(index, arrays)
        if found is not None:
            return found
        made: np.ndarray = self.unasked.but(index, arrays, self._run(arrays))
        return made

    def _run(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        if knobs.read("tensor_backend") != "python":
            return self._compiled.run(arrays)
        return interpreted(self.program, arrays)

    def gradient(self, index: int) -> tuple["Segment", tuple[int, ...]]:
        """The program of an output's gradient for a cotangent, its last input, and the inputs that
        it is with respect to."""
        if index not in self.backward:
            inputs, output = self.program.inputs, self.program.outputs[index]
            seed = _next(inputs, output.type)
            found = vjp([output], [seed], [inputs[i] for i in self.wanted], add, conj)
            live = [(i, g) for i, g in zip(self.wanted, found, strict=True) if g is not None]
            program = Program((*inputs, seed), tuple(g for _, g in live))
            wanted = (*self.wanted, len(inputs))
            self.backward[index] = Segment(program, wanted), tuple(i for i, _ in live)
        return self.backward[index]


def _next(inputs: Sequence[Node], of: Type) -> Node:
    """One more input: by its place it differs from all others, those of inner derivatives too."""
    return Input(f"more{len(inputs)}", of)()


@dataclass(frozen=True)
class SegmentCall(OuterCall):
    """Output number `index` of a segment, which may itself call on graphs."""

    name: ClassVar[str] = "segment_call"
    segment: Segment
    index: int

    def infer(self, *types: Type) -> Type:
        return self.segment.program.outputs[self.index].type

    @property
    def form(self) -> tuple[Any, ...]:
        """What a plan around it depends on."""
        return "segment", self.infer(), tuple(n.type for n in self.segment.program.inputs)

    def compute(self, *arrays: np.ndarray) -> np.ndarray:
        return self.segment.output(self.index, arrays)

    def vjp(self, ct: Node, out: Node, *inputs: Node) -> Sequence[Node | None]:
        backward, live = self.segment.gradient(self.index)
        parts: list[Node | None] = [None] * len(inputs)
        for place, i in enumerate(live):
            parts[i] = SegmentCall(backward, place)(*inputs, ct)
        return parts

    def jvp(self, tangents: Sequence[Node | None], out: Node, *inputs: Node) -> Sequence[Node]:
        program = self.segment.program
        given, seeds = program.inputs, {}
        for x, tangent in zip(program.inputs, tangents, strict=True):
            if tangent is not None:
                seeds[x] = _next(given, x.type)
                given = (*given, seeds[x])
        (found,) = jvp([program.outputs[self.index]], seeds, add)
        if found is None:
            return []
        wanted = (*self.segment.wanted, *range(len(program.inputs), len(given)))
        moved = Segment(Program(given, (found,)), wanted)
        return [SegmentCall(moved, 0)(*inputs, *(t for t in tangents if t is not None))]


def in_segment(
    tensors: Sequence[Tensor], inner: Sequence[Node], still: Sequence[Tensor]
) -> list[Tensor]:
    """The tensors as results of one segment: what depends on the nodes `inner` is made in it, all
    else is an input. There are no derivatives with respect to those of `still`."""
    _compute_inputs([tensor._node for tensor in tensors], inner)
    bound = program_of([tensor._node for tensor in tensors])
    fixed = {id(tensor._node) for tensor in still}
    wanted = tuple(
        i for i, leaf in enumerate(bound.leaves)
        if leaf.type.dtype.is_differentiable and id(leaf) not in fixed
    )  # fmt: skip
    segment = Segment(bound.program, wanted)
    calls = (SegmentCall(segment, i) for i in range(len(tensors)))
    return [result(apply(call, *bound.leaves), tensor)
            for call, tensor in zip(calls, tensors, strict=True)]  # fmt: skip


def _compute_inputs(roots: Sequence[Node], inner: Sequence[Node]) -> None:
    """Give what a segment reads its value, so that the segment ends there. What is repeated for
    each of the inner positions is not read: it is made inside."""
    count = inner[0].type.shape[:1]
    inside = {id(node) for node in inner}
    for node in topological(roots):
        sizes = [child.type.size for child in node.inputs]
        repeated = node.type.shape[:1] == count and node.type.size > max(sizes, default=0) > 0
        if not repeated and not any(id(child) in inside for child in node.inputs):
            continue
        inside.add(id(node))
        for child in node.inputs:
            if id(child) not in inside and child.inputs and child.cell is None:
                Tensor(child, True).realize()  # type: ignore[arg-type]
