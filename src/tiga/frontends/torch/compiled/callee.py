"""The text of a call: a program and what its arguments are, with the same meaning anywhere."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from typing import Any

import torch

from tiga.errors import InvalidValue
from tiga.frontends.torch.compiled.topologies import Topology
from tiga.frontends.torch.devices import device_of, on_gpu
from tiga.frontends.torch.dtypes import torch_dtype
from tiga.frontends.torch.rows import rows_at
from tiga.frontends.torch.unit import RULES, Unit, unit_of
from tiga.ir.context import parse
from tiga.passes.differentiate import trainable
from tiga.passes.levels import new_context
from tiga.passes.text import form_text, forms_of
from tiga.trace.derivatives import gradient, tangent
from tiga.trace.program import Program

INDICES = 2
COUNTS = 2
TENSOR, FLOAT, INTEGER = "tensor", "float", "integer"
EDGE_ORDER, NODE_ORDER = "edge_order", "node_order"
EDGES = "edges"
_MARK = "tiga.run"

Arguments = tuple[str, list[torch.Tensor], list[float], list[int]]


def encode(program: Program, graph_kind: str, arguments: Sequence[str]) -> str:
    """The `program` argument of the op, in one line: torch's compilers before 2.13 write it into a
    comment of their code as it is. `arguments` says what each input of the program is."""
    body = " ".join(form_text(program).splitlines())
    return f"{_MARK} {graph_kind} {','.join(arguments)}: {body}"


@dataclass(frozen=True)
class ArgumentLayout:
    """What an argument must be; `space` names its leading extent, if it has one."""

    kind: str
    label: str
    dtype: torch.dtype
    space: str
    shape: tuple[int, ...]

    def on(self, at: Topology) -> "Expected":
        """What it must be on a topology."""
        extent = at.extents.get(self.space)
        shape = self.shape if extent is None else (extent, *self.shape)
        order = at.order if self.space == EDGES else None
        return Expected(self.label, self.dtype, torch.Size(shape), order, at.extents)


@dataclass(frozen=True)
class Expected:
    """A tensor of a call on one topology; `order` leads from the user's edges to CSR."""

    label: str
    dtype: torch.dtype
    shape: torch.Size
    order: torch.Tensor | None
    extents: Mapping[str, int]

    def checked(self, value: torch.Tensor) -> torch.Tensor:
        """The tensor, contiguous, edge values in CSR order.

        Raises:
            InvalidValue: its dtype or shape is another.
        """
        if value.shape != self.shape or value.dtype is not self.dtype:
            counts = self.extents
            raise InvalidValue(
                f"`{self.label}` must be {self.dtype} of shape {list(self.shape)}, as the graph "
                f"has {counts['src']} sources, {counts['dst']} destinations and {counts['edges']} "
                f"edges; got {value.dtype} of shape {list(value.shape)}."
            )
        if self.order is not None:
            return rows_at(value, self.order)
        return value if value.is_contiguous() else value.contiguous()


@dataclass(frozen=True)
class Callee:
    """What the text of a call says."""

    text: str
    program: Program
    graph_kind: str
    arguments: tuple[str, ...]

    @cached_property
    def unit(self) -> Unit:
        """The program, ready to run."""
        return unit_of(self.program)

    @cached_property
    def tensors(self) -> tuple[int, ...]:
        """Inputs of the program that are tensors of the call, in order."""
        return tuple(i for i, kind in enumerate(self.arguments) if kind == TENSOR)

    @cached_property
    def floats(self) -> tuple[int, ...]:
        """Outputs that have cotangents."""
        return tuple(i for i, n in enumerate(self.program.outputs) if n.type.dtype.is_float)

    @cached_property
    def on_edges(self) -> tuple[int, ...]:
        """Outputs with a value per edge."""
        return tuple(i for i, n in enumerate(self.program.outputs) if n.type.on_edges)

    def operands(self, numbers: Sequence[float], sizes: Sequence[int]) -> dict[Any, Any]:
        """The Python numbers of a call, by input."""
        given = {FLOAT: iter(numbers), INTEGER: iter(sizes[COUNTS:])}
        kinds = enumerate(self.arguments)
        return {("input", i): next(given[kind]) for i, kind in kinds if kind in given}

    def arrange(self, values: Sequence[Any], indices: Any, counts: Any) -> Arguments:
        """The arguments of the op for values in the order of the program's inputs."""
        kinds = (TENSOR, FLOAT, INTEGER, EDGE_ORDER, NODE_ORDER)
        of_kind: dict[str, list[Any]] = {kind: [] for kind in kinds}
        for kind, value in zip(self.arguments, values, strict=True):
            of_kind[kind].append(value)
        tensors = [*indices, *of_kind[TENSOR]]
        return self.text, tensors, of_kind[FLOAT], [*counts, *of_kind[INTEGER]]

    def per_edge(self, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
        """Of the tensors of the op an index tensor with a value per edge."""
        return tensors[0 if self.graph_kind == "coo" else 1]

    @cached_property
    def layouts(self) -> tuple[ArgumentLayout, ...]:
        """What the arguments must be, in the order of the program's inputs."""
        return tuple(
            ArgumentLayout(kind, node.op.label, torch_dtype(node.type.dtype), node.type.space.name,
                   node.type.shape)
            for kind, node in zip(self.arguments, self.program.inputs, strict=True)
        )  # fmt: skip


class Ready:
    """A call on one topology: all is looked up but its arguments."""

    def __init__(self, call: Callee, at: Topology) -> None:
        self.at = at
        self.topology = at.graph.snapshot()
        self.device = device_of(at.graph)
        self.runnable = call.unit.plain()
        self.inputs = [
            (layout.kind, layout.on(at) if layout.kind == TENSOR else None)
            for layout in call.layouts
        ]
        self.on_edges = call.on_edges if at.order is not None else ()
        self.compute = self._computed(call)

    def _computed(self, call: Callee) -> Callable[[list[Any]], list[torch.Tensor]]:
        """What computes the outputs from the program's arguments."""
        if on_gpu(self.device):
            return partial(self.runnable.run, self.at.graph, topology=self.topology)
        takes_numbers = {FLOAT, INTEGER}.intersection(call.arguments)
        bound = None if takes_numbers else self.runnable.bound_to(self.topology)
        return bound or partial(self.runnable.run_on_cpu, self.topology)

    def run(self, tensors: Any, numbers: Any, sizes: Any) -> list[torch.Tensor]:
        """The outputs, edge values in the order of the user."""
        outputs = self.compute(self._values(tensors, numbers, sizes))
        for i in self.on_edges:
            outputs[i] = rows_at(outputs[i], self.at.inverse)
        return outputs

    def _values(self, tensors: Any, numbers: Any, sizes: Any) -> list[Any]:
        """The arguments of the program, checked, contiguous, edge values in CSR order."""
        left = iter(tensors)
        others = {FLOAT: iter(numbers), INTEGER: iter(sizes)}
        values = []
        for kind, expected in self.inputs:
            if expected is not None:
                values.append(expected.checked(next(left)))
            elif kind in others:
                values.append(next(others[kind]))
            elif kind == EDGE_ORDER and self.at.order is not None:
                values.append(self.at.order)
            else:
                extent = "node" if kind == NODE_ORDER else "edges"
                values.append(torch.arange(self.at.extents[extent], device=self.device))
        return values


@lru_cache(maxsize=1024)
def callee(text: str) -> Callee:
    """The program in the text of a call."""
    head, _, body = text.partition(": ")
    kind, _, arguments = head.removeprefix(_MARK).strip().partition(" ")
    program = forms_of(parse(body, new_context(), "tiga::run"))["program"]
    assert isinstance(program, Program)
    return Callee(text, program, kind, tuple(arguments.split(",")) if arguments else ())


@lru_cache(maxsize=1024)
def training_text(text: str, wanted: tuple[int, ...], bits: bool) -> str:
    """The call that also returns what the gradients of some of its tensors read; with `bits`,
    conditions of edges too."""
    call = callee(text)
    program = call.unit.program
    targets = tuple(call.tensors[i] for i in wanted)
    full = trainable(program, targets, bits=bits)
    return encode(full, call.graph_kind, call.arguments)


@dataclass(frozen=True)
class Backward:
    """The call that computes gradients: its text, where its arguments come from, and the inputs of
    the program whose gradients it returns; see `trace.derivatives.Gradient`."""

    text: str
    arguments: tuple[tuple[str, int], ...]
    wanted: tuple[int, ...]


@lru_cache(maxsize=1024)
def backward_of(text: str, wanted: tuple[int, ...], present: tuple[int, ...]) -> Backward:
    """The gradients of some tensors of a call for the outputs that have a cotangent."""
    call = callee(text)
    targets = tuple(call.tensors[i] for i in wanted)
    found = gradient(call.program, targets, present, RULES)
    kinds = [call.arguments[i] if kind == "input" else TENSOR for kind, i in found.arguments]
    text = encode(found.program, call.graph_kind, kinds)
    return Backward(text, found.arguments, found.wanted)


@lru_cache(maxsize=1024)
def tangent_text(text: str, moving: tuple[int, ...]) -> tuple[str, tuple[int, ...]]:
    """The call for the outputs' tangents when some tensors have one: after the arguments of the
    call come their tangents. Also says which outputs have a tangent at all."""
    call = callee(text)
    targets = tuple(call.tensors[i] for i in moving)
    made, live = tangent(call.program, targets, RULES)
    return encode(made, call.graph_kind, (*call.arguments, *(TENSOR for _ in moving))), tuple(live)
