"""Programs as one op of torch's library, which `torch.compile` and `torch.export` can hold.

`tiga::run(str program, Tensor[] tensors, float[] numbers, SymInt[] sizes) -> Tensor[]`

- `program`: a header and the program's own MLIR text, so that a compiled or exported graph means
  the same in any process.
- `tensors`: two index tensors, then the program's tensors; edge values in the order of the user.
- `numbers` and `sizes`: its float operands; sources and destinations, then its integer operands.

The op's derivative is the op again, on the text of the gradient program; see `transformed`.
`tiga::compute` is the same without derivatives: what graphs hold once their gradients are traced,
as it is reached with one dispatch less.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import torch

from tiga.errors import InvalidValue
from tiga.frontends.torch.batching import stacked
from tiga.frontends.torch.dtypes import torch_dtype
from tiga.frontends.torch.gpu import device_of, on_gpu
from tiga.frontends.torch.topologies import Topologies, Topology
from tiga.frontends.torch.unit import RULES, Unit, unit_of
from tiga.ir.context import parse
from tiga.passes.levels import new_context
from tiga.passes.text import form_text, forms_of
from tiga.trace.derivatives import gradient, tangent, training
from tiga.trace.program import Program

INDICES = 2
COUNTS = 2
TENSOR, FLOAT, INTEGER = "tensor", "float", "integer"
EDGE_ORDER, NODE_ORDER = "edge_order", "node_order"
EDGES = "edges"
_MARK = "// tiga.run"

Arguments = tuple[str, list[torch.Tensor], list[float], list[int]]
Run = Callable[..., list[torch.Tensor]]


def encode(program: Program, graph_kind: str, arguments: Sequence[str]) -> str:
    """The `program` argument of the op; `arguments` says what each input of the program is."""
    return f"{_MARK} {graph_kind} {','.join(arguments)}\n{form_text(program)}"


@dataclass(frozen=True)
class Layout:
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
            return value.index_select(0, self.order)
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
        return tuple(i for i, n in enumerate(self.program.outputs) if n.type.space.kind == "edge")

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

    @cached_property
    def layouts(self) -> tuple[Layout, ...]:
        """What the arguments must be, in the order of the program's inputs."""
        return tuple(
            Layout(kind, node.op.label, torch_dtype(node.type.dtype), node.type.space.name,
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

    def run(self, tensors: Any, numbers: Any, sizes: Any) -> list[torch.Tensor]:
        """The outputs, edge values in the order of the user."""
        values = self._values(tensors, numbers, sizes)
        if on_gpu(self.device):
            outputs = self.runnable.run(self.at.graph, values, self.topology)
        else:
            outputs = self.runnable.run_on_cpu(self.topology, values)
        for i in self.on_edges:
            outputs[i] = outputs[i].index_select(0, self.at.inverse)
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
    head, _, body = text.partition("\n")
    kind, _, arguments = head.removeprefix(_MARK).strip().partition(" ")
    program = forms_of(parse(body, new_context(), "tiga::run"))["program"]
    assert isinstance(program, Program)
    return Callee(text, program, kind, tuple(arguments.split(",")) if arguments else ())


@lru_cache(maxsize=1024)
def training_text(text: str, wanted: tuple[int, ...]) -> str:
    """The call that also returns what the gradients of some of its tensors read."""
    call = callee(text)
    program = call.unit.program
    targets = tuple(call.tensors[i] for i in wanted)
    full = training(program, targets, RULES)
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


_TOPOLOGIES = Topologies()
_LIBRARY = torch.library.Library("tiga", "DEF")
_ARGUMENTS = "(str program, Tensor[] tensors, float[] numbers, SymInt[] sizes) -> Tensor[]"
for _name in ("run", "compute"):
    _LIBRARY.define(_name + _ARGUMENTS, tags=(torch.Tag.pt2_compliant_tag,))


def _compute(program: str, tensors: Any, numbers: Any, sizes: Any) -> list[torch.Tensor]:
    call = callee(program)
    num_src, num_dst, *integers = sizes
    at = _TOPOLOGIES.get(call.graph_kind, tensors[0], tensors[1], (num_src, num_dst))
    ready = at.ready.get(program)
    if ready is None:
        ready = at.ready[program] = Ready(call, at)
    return ready.run(tensors[INDICES:], numbers, integers)


def _fake(program: str, tensors: Any, numbers: Any, sizes: Any) -> list[torch.Tensor]:
    return empty_outputs(program, tensors, sizes)


def empty_outputs(program: str, tensors: Any, sizes: Any) -> list[torch.Tensor]:
    """Arrays for the outputs of a call, allocated beside its index tensors."""
    call = callee(program)
    edges = tensors[0 if call.graph_kind == "coo" else 1].shape[0]
    leads = {"edges": edges, "src": sizes[0], "dst": sizes[1], "node": sizes[1]}
    made = []
    for node in call.program.outputs:
        of = node.type
        lead = (leads[of.space.name],) if of.space.name in leads else ()
        made.append(tensors[0].new_empty((*lead, *of.shape), dtype=torch_dtype(of.dtype)))
    return made


@dataclass(frozen=True)
class Kept:
    """What a run leaves for its gradient: its arguments but tensors, which tensors have gradients,
    and which of them and of the outputs are saved, after the index tensors."""

    program: str
    numbers: Sequence[float]
    sizes: Sequence[int]
    count: int
    wanted: tuple[int, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


def keep(ctx: Any, call: Arguments, output: Sequence[torch.Tensor], needs: Sequence[bool]) -> None:
    """Set the context of a run; `needs` says which tensors need a gradient."""
    program, tensors, numbers, sizes = call
    told = callee(program)
    wanted = tuple(i - INDICES for i, need in enumerate(needs) if need and i >= INDICES)
    # What a gradient for every cotangent reads; one for fewer reads nothing else.
    read = backward_of(program, wanted, told.floats).arguments
    position = {i: INDICES + at for at, i in enumerate(told.tensors)}
    inputs = tuple(position[i] for kind, i in read if kind == "input" and i in position)
    outputs = tuple(i for kind, i in read if kind == "output")
    saved = (*tensors[:INDICES], *(tensors[i] for i in inputs), *(output[i] for i in outputs))
    ctx.save_for_backward(*saved)
    ctx.kept = Kept(program, numbers, sizes, len(tensors), wanted, inputs, outputs)
    ctx.set_materialize_grads(False)
    ctx.mark_non_differentiable(*(o for o in output if not o.is_floating_point()))


def pull(ctx: Any, cotangents: Sequence[Any], run: Run) -> list[torch.Tensor | None]:
    """The gradient of each tensor of a run, None where none flows; `run` computes programs."""
    kept: Kept = ctx.kept
    call = callee(kept.program)
    gradients: list[Any] = [None] * kept.count
    present = tuple(i for i in call.floats if cotangents[i] is not None)
    if not present:
        return gradients
    backward = backward_of(kept.program, kept.wanted, present)
    first, second, *saved = ctx.saved_tensors
    known: dict[tuple[str, int], Any] = {("cotangent", i): cotangents[i] for i in present}
    for at, value in zip(kept.inputs, saved, strict=False):
        known["input", call.tensors[at - INDICES]] = value
    for i, value in zip(kept.outputs, saved[len(kept.inputs) :], strict=True):
        known["output", i] = value
    known |= call.operands(kept.numbers, kept.sizes)
    values = [known.get(argument) for argument in backward.arguments]
    found = run(*callee(backward.text).arrange(values, (first, second), kept.sizes[:COUNTS]))
    for position, value in zip(backward.wanted, found, strict=True):
        gradients[INDICES + call.tensors.index(position)] = value
    return gradients


def samples(run: Run, size: int, dims: Sequence[Any], call: Arguments) -> Any:
    """A run per sample of a batch; `dims` are the batch axes of the tensors, None without one."""
    program, tensors, numbers, sizes = call
    moved = [t if d is None else t.movedim(d, 0) for t, d in zip(tensors, dims, strict=True)]
    if size == 0:
        empty = empty_outputs(program, tensors, sizes)
        return [o.new_empty((0, *o.shape)) for o in empty], [0] * len(empty)
    runs = []
    for b in range(size):
        sample = [t if d is None else t[b] for t, d in zip(moved, dims, strict=True)]
        runs.append(run(program, sample, numbers, sizes))
    return stacked(runs), [0] * len(runs[0])


def vmap(info: Any, in_dims: Any, program: str, tensors: Any, numbers: Any, sizes: Any) -> Any:
    """The op on a batch: one run per sample."""
    call = program, tensors, numbers, sizes
    return samples(torch.ops.tiga.run, info.batch_size, in_dims[1], call)


for _name in ("run", "compute"):
    for _kind in ("CPU", "CUDA"):
        _LIBRARY.impl(_name, _compute, _kind)
    torch.library.register_fake(f"tiga::{_name}", _fake, lib=_LIBRARY)
    torch.library.register_vmap(f"tiga::{_name}", vmap, lib=_LIBRARY)


def define_derivative(differentiated: Run) -> None:
    """Say how the op is computed where gradients may follow."""
    _LIBRARY.impl("run", differentiated, "Autograd")
