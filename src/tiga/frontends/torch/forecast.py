"""What a call over a graph in a file will take, told before it runs and without its features."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from tiga.backends.llvm.paged.forecast import planned_on_cpu
from tiga.errors import OutOfBudget, Unfusable
from tiga.frontends.spaces import extents_of
from tiga.frontends.torch.devices import device_of, on_gpu
from tiga.frontends.torch.paged import rows_of
from tiga.frontends.torch.unit import Runnable, Trained, Unit
from tiga.paging.planned import PlannedRows
from tiga.paging.predicted import Places, Planned, Prediction, plan_gradient
from tiga.passes.rows import PAGED, RowProgram
from tiga.relations.paged import PagedGraph
from tiga.relations.walk import HUB_DEGREE
from tiga.runtime.parallel import thread_count
from tiga.trace.node import Node
from tiga.types import GLOBAL


def predict(
    unit: Unit, graph: PagedGraph, values: Sequence[Any], wanted: tuple[int, ...]
) -> Iterator[Prediction]:
    """The forward run, and the gradients of the inputs `wanted` when all outputs have one.

    Raises:
        OutOfBudget: as the run would.
    """
    inputs = [_place(v, n, graph) for v, n in zip(values, unit.program.inputs, strict=True)]
    if not wanted:
        yield Prediction("forward", _planned(unit.plain(), graph, inputs, {}))
        return
    trained = unit.training(wanted, device_of(graph))
    forward = _planned(trained.runnable, graph, inputs, {})
    yield Prediction("forward, saving for gradients", forward)
    backward = _backward(trained, len(unit.program.outputs), graph, inputs, forward)
    yield Prediction("gradients", backward)


def require_room_for_sums(
    unit: Unit, trained: Trained, graph: PagedGraph, values: Sequence[Any], wanted: tuple[int, ...]
) -> None:
    """Raise Unfusable where pages cannot hold the gradient of a scan, which adds to all sources
    from a walk over destinations, or of a large table: these are in memory, and no long row is
    taken apart for them."""
    walks = trained.gradient_walks(len(unit.program.outputs))
    walks = [step for step in walks if step.scatters or step.fills_tables]
    for step in walks:
        longest = graph.walks[step.side].longest
        if longest > HUB_DEGREE:
            raise Unfusable(f"{_sum_of(step)} over a row of {longest} edges {PAGED}")
    try:
        for _ in predict(unit, graph, values, wanted) if walks else ():
            pass
    except OutOfBudget as reason:
        raise Unfusable(f"{_sum_of(walks[0])} {PAGED}: {reason}") from None


def _sum_of(step: RowProgram) -> str:
    return "the gradient of a scan" if step.scatters else "the gradient of a large table"


def _place(value: Any, node: Node, graph: PagedGraph) -> PlannedRows | None:
    if not isinstance(value, torch.Tensor) or node.type.space == GLOBAL:
        return None
    if value.device.type != "cpu":
        return PlannedRows.of(value.shape[0], node.type.row_bytes, in_file=False)
    rows = PlannedRows.like(rows_of(value.detach(), graph))
    return replace(rows, address=0) if _is_elsewhere(value, graph) else rows


def _is_elsewhere(value: torch.Tensor, graph: PagedGraph) -> bool:
    """Whether kernels that run where the graph does cannot address a tensor."""
    return value.device != device_of(graph)


def _backward(
    trained: Trained, results: int, graph: PagedGraph, inputs: Places, forward: Planned
) -> Planned:
    derivative = trained.derivative(tuple(i for i in trained.floats if i < results))
    runnable = derivative.unit.plain()
    return plan_gradient(
        lambda places, held: _planned(runnable, graph, places, held),
        derivative.arguments, runnable.program.inputs, extents_of(runnable.program, graph), inputs,
        forward,
    )  # fmt: skip


def _planned(
    runnable: Runnable, graph: PagedGraph, inputs: Places, held: Mapping[str, int]
) -> Planned:
    device, extents = device_of(graph), extents_of(runnable.program, graph)
    with graph.reading():
        if not on_gpu(device):
            on_cpu, threads = runnable.executable, thread_count(torch.get_num_threads())
            return planned_on_cpu(on_cpu.executable, graph, extents, inputs, held, threads)
        from tiga.backends.triton.paged.forecast import planned_on_gpu
        from tiga.frontends.torch.paged_gpu import TorchArrays

        by_pages = runnable.gpu_runs.executable.by_pages
        return planned_on_gpu(by_pages, graph, extents, inputs, held, TorchArrays(device))
