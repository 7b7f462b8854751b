"""Programs under torch's autograd: a Function whose derivatives are programs run in the same way.

`Differentiated` serves eager calls, `Transformed` calls under `torch.func`, whose transforms want
the context set apart from the forward. Both run a training program, whose saved values are
outputs too, so that derivatives of every order and mode flow through them.
"""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from threading import get_ident
from typing import Any
from weakref import ReferenceType, ref

import torch
from torch.autograd import forward_ad

from tiga.frontends.torch.asked import asked
from tiga.frontends.torch.batching import (
    at_once,
    copies,
    is_batched,
    per_sample,
    reason_against,
    side_by_side,
    taken_apart,
)
from tiga.frontends.torch.devices import device_of
from tiga.frontends.torch.unit import Trained, Unit
from tiga.frontends.torch.untraced import untraced
from tiga.relations import Graph
from tiga.relations.snapshot import Snapshot
from tiga.runtime.scope import Scope, active, within

_transforms_active = torch._C._are_functorch_transforms_active
_is_wrapped = torch._C._functorch.is_functorch_wrapped_tensor
_forward_mode_enabled = torch._C._is_fwd_grad_enabled
_graph_is_kept = torch._C._autograd._get_current_graph_task_keep_graph
_hooks_on_saved = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", None)


@dataclass(slots=True, eq=False)  # not frozen, which would triple the time to make one per call
class Job:
    """One run: the program in training form, the graph and the version of its index arrays."""

    trained: Trained
    graph: Graph
    token: tuple[int, ...]
    version: "ReferenceType[Snapshot] | None" = None
    """The topology at that version, where it was looked up. An unused graph may free it."""
    of: "Job | None" = None
    """The run on the graph of which this graph holds copies."""
    scope: Scope | None = None
    """Over a graph in a file: the budgets in force, which threads of autograd do not see."""
    thread: int = 0
    """The one that made the call."""

    @property
    def topology(self) -> Snapshot | None:
        """The topology at that version, if it is still there."""
        return None if self.version is None else self.version()

    def require_unchanged(self) -> None:
        """Raise StaleTopology if index arrays were written to since."""
        self.graph.require_unchanged(self.token)
        if self.of is not None:
            self.of.require_unchanged()

    def on_copies(self, count: int) -> "Job":
        """The run of so many samples together."""
        graph = copies(self.graph, count)
        return Job(self.trained, graph, graph.token(), of=self)


def _keep(ctx: Any, job: Job, values: Sequence[Any], outputs: Sequence[torch.Tensor]) -> None:
    """Set the context of a run: what its gradient reads is saved, numbers as they are."""
    inputs, saved = job.trained.saved
    tensors = [i for i in inputs if isinstance(values[i], torch.Tensor)]
    ctx.save_for_backward(*[values[i] for i in tensors], *[outputs[i] for i in saved])
    ctx.job, ctx.count = job, len(values)
    ctx.tensors = tensors
    if job.graph.paged:
        ctx.devices = [v.device if isinstance(v, torch.Tensor) else None for v in values]
    all_tensors = len(tensors) == len(inputs)
    ctx.numbers = {} if all_tensors else {i: values[i] for i in inputs if i not in tensors}
    ctx.set_materialize_grads(False)
    if job.trained.whole:
        ctx.mark_non_differentiable(*(outputs[i] for i in job.trained.whole))
    ctx.gives = False


def _keep_forward(ctx: Any, values: Sequence[Any]) -> None:
    """Save all inputs for the tangents, which are computed as soon as the outputs are."""
    ctx.save_for_forward(*(v for v in values if isinstance(v, torch.Tensor)))
    ctx.plain = {i: v for i, v in enumerate(values) if not isinstance(v, torch.Tensor)}


@untraced
def _backward(ctx: Any, *cotangents: Any) -> Any:
    """Gradients of the inputs: None for each that no cotangent reaches."""
    return _gradients_of(ctx, ctx.job.trained.wanted, cotangents)


@untraced
def _backward_of_asked(ctx: Any, *cotangents: Any) -> Any:
    """As `_backward`, of the inputs whose gradients this pass of autograd goes on with."""
    return _gradients_of(ctx, asked(ctx, ctx.job.trained), cotangents)


def _gradients_of(ctx: Any, wanted: tuple[int, ...], cotangents: Sequence[Any]) -> Any:
    if any(is_batched(c) for c in cotangents if c is not None):
        ctx.gives = False  # the next sample reads what is saved again
        return per_sample(lambda *samples: _gradients_of(ctx, wanted, samples), cotangents)
    job: Job = ctx.job
    trained = job.trained
    result: list[Any] = [None] * (1 + ctx.count)
    present = tuple([i for i in trained.floats if cotangents[i] is not None])
    if not present:
        return tuple(result)
    job.require_unchanged()
    kept = ctx.saved_tensors
    known: dict[str, dict[int, Any]] = {
        "input": dict(zip(ctx.tensors, kept, strict=False)),
        "output": dict(zip(trained.saved[1], kept[len(ctx.tensors) :], strict=True)),
        "cotangent": {i: _laid_out(cotangents[i], job.graph) for i in present},
    }
    known["input"].update(ctx.numbers)
    derivative = trained.derivative(present, wanted)
    values = [known[kind][n] for kind, n in derivative.arguments]
    unneeded = _unneeded(ctx, derivative.arguments)
    with within(job.scope) if get_ident() != job.thread and job.scope else nullcontext():
        gradients = run(derivative.unit, job.graph, job.token, values, job.topology, unneeded)
        for position, found in zip(derivative.wanted, gradients, strict=True):
            # Over a graph in a file, what fits the device lies there, and the rest in files.
            found = _fetched(found, ctx.devices[position], job.graph) if job.graph.paged else found
            result[1 + position] = found
    return tuple(result)


def _fetched(found: torch.Tensor, device: torch.device, graph: Any) -> torch.Tensor:
    if found.device == device:
        return found
    from tiga.frontends.torch.fetched import fetched

    return fetched(found, device, graph)


def _unneeded(ctx: Any, arguments: Sequence[tuple[str, int]]) -> tuple[int, ...]:
    """Which arguments nobody reads after this gradient, so that it may write over them.

    Row values that a run saved for its gradient are known to autograd alone, and freed after it
    unless the graph is kept, or is itself differentiated.
    """
    if not ctx.gives or torch.is_grad_enabled() or _graph_is_kept():
        return ()
    own = ctx.job.trained.num_results
    return tuple([i for i, (kind, n) in enumerate(arguments) if kind == "output" and n >= own])


def _laid_out(cotangent: Any, graph: Graph) -> Any:
    """A cotangent as kernels read it; pages are copied one by one, whatever the strides."""
    return cotangent if graph.paged else cotangent.contiguous()


@untraced
def _jvp(ctx: Any, _: None, *tangents: Any) -> Any:
    """Tangents of the outputs, zero for each that none of the inputs' tangents reaches."""
    job: Job = ctx.job
    moving = tuple(i for i, tangent in enumerate(tangents) if tangent is not None)
    unit, live = job.trained.tangent(moving)
    saved = iter(ctx.saved_tensors)
    values = [ctx.plain[i] if i in ctx.plain else next(saved) for i in range(ctx.count)]
    values += [tangents[i].contiguous() for i in moving]
    tangents_of = run(unit, job.graph, job.token, values, job.topology)
    found = dict(zip(live, tangents_of, strict=True))
    zeros = job.trained.runnable.allocate(job.graph)
    return tuple(
        (found[i] if i in found else zeros[i].zero_()) if i in job.trained.floats else None
        for i in range(len(zeros))
    )


class Differentiated(torch.autograd.Function):
    """Runs a training program; numbers among the values pass as they are."""

    @staticmethod
    def forward(ctx: Any, job: Job, *values: Any) -> Any:
        outputs = job.trained.runnable.run(job.graph, values, job.topology)
        _keep(ctx, job, values, outputs)
        ctx.gives = _saves_as_is()
        if forward_ad._current_level >= 0:
            _keep_forward(ctx, values)
        return tuple(outputs)

    backward = staticmethod(_backward_of_asked)
    jvp = staticmethod(_jvp)


class Transformed(torch.autograd.Function):
    """As `Differentiated`, under `torch.func`."""

    @staticmethod
    def forward(job: Job, *values: Any) -> Any:
        return tuple(job.trained.runnable.run(job.graph, values, job.topology))

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        job, *values = inputs
        _keep(ctx, job, values, output)
        _keep_forward(ctx, values)

    backward = staticmethod(_backward)
    jvp = staticmethod(_jvp)

    @staticmethod
    def vmap(info: Any, in_dims: Any, job: Job, *values: Any) -> Any:
        """Samples run together, as far as the program and the graph allow."""
        moved = [
            value if dim is None else value.movedim(dim, 0)
            for value, dim in zip(values, in_dims[1:], strict=True)
        ]
        if info.batch_size == 0:
            empty = job.trained.runnable.allocate(job.graph)
            return tuple(o.new_empty((0, *o.shape)) for o in empty), (0,) * len(empty)
        if _run_together(job, in_dims[1:]):
            outputs = _together(job, moved, in_dims[1:], info.batch_size)
        else:
            runs = [_sample(job, moved, in_dims[1:], b) for b in range(info.batch_size)]
            outputs = tuple(map(torch.stack, zip(*runs, strict=True)))
        return outputs, (0,) * len(outputs)


def _run_together(job: Job, dims: Sequence[int | None]) -> bool:
    """Whether samples run together; if not, the program notes why."""
    if job.graph.paged or device_of(job.graph).type != "cpu" or at_once(job.graph) == 1:
        return False
    why = reason_against(job.trained.runnable.program, [dim is not None for dim in dims])
    if why is not None:
        job.trained.per_sample = why
    return why is None


def _together(
    job: Job, values: Sequence[Any], dims: Sequence[int | None], size: int
) -> tuple[torch.Tensor, ...]:
    types = [node.type for node in job.trained.runnable.program.inputs]
    parts = []
    for first in range(0, size, at_once(job.graph)):
        last = min(first + at_once(job.graph), size)
        given = [
            side_by_side(v if d is None else v[first:last], of, last - first, d is not None)
            for v, d, of in zip(values, dims, types, strict=True)
        ]
        outputs = _apply(job.on_copies(last - first), given)
        parts.append([taken_apart(o, last - first) for o in outputs])
    return tuple(map(torch.cat, zip(*parts, strict=True)))


def _sample(job: Job, values: Sequence[Any], dims: Sequence[int | None], index: int) -> Any:
    sample = [
        value if dim is None else value[index].contiguous()
        for value, dim in zip(values, dims, strict=True)
    ]
    return _apply(job, sample)


def _apply(job: Job, values: Sequence[Any]) -> Any:
    function = Transformed if _transforms_active() else Differentiated
    return function.apply(job, *values)


def transforming() -> bool:
    """Whether a transform of `torch.func`, or forward mode, watches what is computed."""
    return _transforms_active() or (forward_ad._current_level >= 0 and _forward_mode_enabled())


def _may_need(value: Any) -> bool:
    """Whether a value is differentiated, as far as can be told under transforms."""
    if not isinstance(value, torch.Tensor) or not value.is_floating_point():
        return False
    return value.requires_grad or _is_wrapped(value)


def run(
    unit: Unit,
    graph: Graph,
    token: tuple[int, ...] | None,
    values: Sequence[Any],
    topology: Snapshot | None = None,
    unneeded: tuple[int, ...] = (),
) -> Sequence[torch.Tensor]:
    """The outputs of a program, with gradients where grad mode is on and inputs require them.

    Values are contiguous tensors, and Python numbers, in the order of the program's inputs. With a
    `token`, gradients are of the graph as it was then. `topology` is the graph's snapshot, where
    the caller has just taken it. The values at positions `unneeded` may be written over.
    """
    wanted: tuple[int, ...] = ()
    watched = transforming()
    if torch.is_grad_enabled():
        needs = _may_need if watched else requires_grad
        wanted = tuple([i for i, value in enumerate(values) if needs(value)])
    if not wanted and not watched:
        return unit.plain().run(graph, values, topology, unneeded)
    if token is None:
        token = graph.token() if topology is None else topology.token
    device = device_of(graph)
    trained = unit.training(wanted, device)
    scope = None
    if graph.paged:
        require_pages(unit, trained, graph, values, wanted)
        scope = active()
    version = None if topology is None else ref(topology)
    outputs = _apply(Job(trained, graph, token, version, scope=scope, thread=get_ident()), values)
    return outputs[: len(unit.program.outputs)]


def require_pages(
    unit: Unit, trained: Trained, graph: Any, values: Sequence[Any], wanted: tuple[int, ...]
) -> None:
    """Raise Unfusable if no pages hold the gradient."""
    from tiga.frontends.torch.forecast import require_room_for_sums

    device = device_of(graph)
    trained.require_pages(device, len(unit.program.outputs))
    if device.type == "cpu":
        require_room_for_sums(unit, trained, graph, values, wanted)


def _saves_as_is() -> bool:
    """Whether what is saved is kept as it is: a hook may keep it for longer. torch before 2.7
    does not tell."""
    return _hooks_on_saved is not None and _hooks_on_saved(True) is None


def requires_grad(value: Any) -> bool:
    """Whether a value is a tensor that a derivative may be asked for."""
    return isinstance(value, torch.Tensor) and value.requires_grad
