"""What a call over a graph in a file will take, told before it runs and without its features."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from tiga.backends.llvm.paged.steps import Forecast, Steps
from tiga.errors import OutOfBudget
from tiga.frontends.torch.forecast_gpu import planned_on_gpu
from tiga.frontends.torch.gpu import device_of, on_gpu
from tiga.frontends.torch.paged import placement_of, rows_of, stored_sizes
from tiga.frontends.torch.unit import Runnable, Trained, Unit
from tiga.paging.planned import PlannedRows
from tiga.paging.span import PagePlan
from tiga.relations.paged import PagedGraph
from tiga.runtime.tiers import size_text
from tiga.trace.node import Node
from tiga.types import GLOBAL

Places = Sequence[PlannedRows | None]
"""Where the inputs of a program lie; None for numbers and global values."""


@dataclass(frozen=True)
class Prediction:
    """One run: its pages, and the most bytes that are charged by then, by tier."""

    what: str
    plan: PagePlan
    peak: Mapping[str, int]
    outputs: Places
    kept: int

    def told(self) -> list[str]:
        """In words."""
        tiers = ", ".join(f"{size_text(n)} of {tier!r}" for tier, n in self.peak.items())
        return [f"{self.what}: at most {tiers} in use", *self.plan.told("  it would take")]


def predict(
    unit: Unit, graph: PagedGraph, values: Sequence[Any], wanted: tuple[int, ...]
) -> Iterator[Prediction]:
    """The forward run, and the gradients of the inputs `wanted` when all outputs have one.

    Raises:
        OutOfBudget: as the run would.
    """
    inputs = [_place(v, n, graph) for v, n in zip(values, unit.program.inputs, strict=True)]
    device = device_of(graph)
    if not wanted:
        yield _predicted("forward", unit.plain(), graph, inputs, {})
        return
    trained = unit.training(wanted, device)
    forward = _predicted("forward, saving for gradients", trained.runnable, graph, inputs, {})
    yield forward
    yield _backward(trained, len(unit.program.outputs), graph, inputs, forward)


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
    trained: Trained, results: int, graph: PagedGraph, inputs: Places, forward: Prediction
) -> Prediction:
    """The dearer of two: cotangents that kernels address where they are, and others."""
    derivative = trained.derivative(tuple(i for i in trained.floats if i < results))
    known, tier = {"input": inputs, "output": forward.outputs}, next(iter(forward.peak))
    runnable, found = derivative.unit.plain(), []
    for address in (0, 1):
        places = []
        nodes = runnable.program.inputs
        for (kind, i), node in zip(derivative.arguments, nodes, strict=True):
            place = known[kind][i] if kind in known else _cotangent(node, runnable, graph, address)
            places.append(place)
        held = {"host": _on_host(forward.outputs), tier: forward.kept,
                "nvme": _in_files(forward.outputs)}  # fmt: skip
        found.append(_predicted("gradients", runnable, graph, places, held))
    return max(found, key=lambda p: p.peak[tier])


def _cotangent(
    node: Node, runnable: Runnable, graph: PagedGraph, address: int
) -> PlannedRows | None:
    if node.type.space == GLOBAL:
        return None
    extents = {s: getattr(graph, e) for s, e in runnable.extents.items() if e is not None}
    return PlannedRows(extents[node.type.space], node.type.row_bytes, False, address)


def _predicted(
    what: str, runnable: Runnable, graph: PagedGraph, inputs: Places, held: Mapping[str, int]
) -> Prediction:
    device = device_of(graph)
    with graph.reading():
        if on_gpu(device):
            return Prediction(what, *planned_on_gpu(runnable, graph, device, inputs, held))
        try:
            return _placed(what, runnable, graph, inputs, held, spill=False)
        except OutOfBudget:
            return _placed(what, runnable, graph, inputs, held, spill=True)


def _placed(
    what: str, runnable: Runnable, graph: PagedGraph, inputs: Places, held: Mapping[str, int],
    spill: bool,
) -> Prediction:  # fmt: skip
    extents, sizes = stored_sizes(runnable, graph)
    placement = placement_of(graph, sizes, spill, held.get("host", 0))
    executable = runnable.executable.executable
    homes: dict[Node, Any] = {}
    for node, place in zip(executable.plan.inputs, inputs, strict=True):
        if place is not None:
            homes.setdefault(node, place)
    for node, nbytes in sizes.items():
        filed = node not in placement.resident and nbytes > 0
        count = extents[node.type.space]
        homes.setdefault(node, PlannedRows.of(count, node.type.row_bytes, filed))
    graphs: dict[Any, Any] = dict.fromkeys(executable.relations, graph)
    steps = Steps(graphs, {GLOBAL: 1, **extents}, homes, placement.limits)
    plan = Forecast(executable, steps).plan
    outputs = [homes.get(node) for node in executable.plan.outputs]
    kept = [n for n in dict.fromkeys(executable.plan.outputs) if n in placement.resident]
    stored = sum(sizes[node] for node in placement.resident)
    live, spilled = placement.scope.host.live, [n for n in sizes if n not in placement.resident]
    peak = {
        "host": live + held.get("host", 0) + stored + plan.peak,
        "nvme": held.get("nvme", 0) + sum(sizes[n] for n in spilled) + plan.kept,
    }
    return Prediction(what, plan, peak, outputs, sum(sizes[n] for n in kept))


def _on_host(places: Places) -> int:
    """Bytes of what a GPU left in ordinary memory."""
    found = (p for p in places if p is not None and not p.in_file and not p.address)
    return sum(p.count * p.row_bytes for p in found)


def _in_files(places: Places) -> int:
    return sum(p.count * p.row_bytes for p in places if p is not None and p.in_file)
