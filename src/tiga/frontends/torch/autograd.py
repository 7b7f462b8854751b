"""Programs under torch's autograd: one Function for programs and their derivatives."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from tiga.frontends.torch.unit import Trained, Unit
from tiga.relations import Graph


@dataclass(frozen=True)
class Job:
    """One run: the program in training form, the graph and the version of its index arrays."""

    trained: Trained
    graph: Graph
    token: tuple[int, ...]


class Differentiated(torch.autograd.Function):
    """Runs a training program; its backward runs the gradient program in the same way.

    Values that the program saves for its gradient are outputs too, so a second derivative flows
    through them. Numbers pass as they are.
    """

    @staticmethod
    def forward(ctx: Any, job: Job, *values: Any) -> Any:
        trained = job.trained
        outputs = trained.runnable.run(job.graph, values)
        inputs, saved = trained.saved
        tensors = [i for i in inputs if isinstance(values[i], torch.Tensor)]
        ctx.save_for_backward(*(values[i] for i in tensors), *(outputs[i] for i in saved))
        ctx.job, ctx.count = job, len(values)
        ctx.tensors = tensors
        ctx.numbers = {i: values[i] for i in inputs if i not in tensors}
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(*(outputs[i] for i in trained.whole))
        return tuple(outputs)

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> Any:
        job: Job = ctx.job
        result: list[Any] = [None] * (1 + ctx.count)
        floats = job.trained.floats
        present = tuple(i for i in floats if cotangents[i] is not None)
        if not present:
            return tuple(result)
        job.graph.require_unchanged(job.token)
        kept = ctx.saved_tensors
        known = {("input", i): v for i, v in ctx.numbers.items()}
        split = len(ctx.tensors)
        known |= {("input", i): v for i, v in zip(ctx.tensors, kept[:split], strict=True)}
        known |= {("output", i): v for i, v in zip(job.trained.saved[1], kept[split:], strict=True)}
        known |= {("cotangent", i): cotangents[i].contiguous() for i in present}
        derivative = job.trained.derivative(present)
        values = [known[argument] for argument in derivative.arguments]
        gradients = run(derivative.unit, job.graph, job.token, values)
        for position, found in zip(derivative.wanted, gradients, strict=True):
            result[1 + position] = found
        return tuple(result)


def run(
    unit: Unit, graph: Graph, token: tuple[int, ...], values: Sequence[Any]
) -> Sequence[torch.Tensor]:
    """The outputs of a program, with gradients where grad mode is on and inputs require them.

    Values are contiguous tensors, and Python numbers, in the order of the program's inputs.
    """
    wanted: tuple[int, ...] = ()
    if torch.is_grad_enabled():
        wanted = tuple(
            i for i, v in enumerate(values) if isinstance(v, torch.Tensor) and v.requires_grad
        )
    if not wanted:
        return unit.plain().run(graph, values)
    job = Job(unit.training(wanted), graph, token)
    outputs = Differentiated.apply(job, *values)
    return outputs[: len(unit.program.outputs)]


class Permute(torch.autograd.Function):
    """Rows in another order; `inverse` undoes `order`, so the gradient is a gather as well."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, order: torch.Tensor, inverse: torch.Tensor) -> Any:
        ctx.save_for_backward(order, inverse)
        return x.index_select(0, order)

    @staticmethod
    def backward(ctx: Any, cotangent: torch.Tensor) -> Any:
        order, inverse = ctx.saved_tensors
        return Permute.apply(cotangent, inverse, order), None, None
