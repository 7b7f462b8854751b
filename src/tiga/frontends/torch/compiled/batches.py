"""Batches of the library op: samples together on copies of the graph, or one by one."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from tiga.frontends.torch.batching import (
    MOST_ENTITIES,
    copied_indices,
    reason_against,
    side_by_side,
    stacked,
    taken_apart,
)
from tiga.frontends.torch.compiled.callee import COUNTS, INDICES, TENSOR, Arguments, Callee

Run = Callable[..., list[torch.Tensor]]


def run_batch(run: Run, size: int, dims: Sequence[Any], call: Arguments, told: Callee) -> Any:
    """The outputs for at least one sample, batch axes first; `dims` are the batch axes of the
    tensors, None without one."""
    program, tensors, numbers, sizes = call
    moved = [t if d is None else t.movedim(d, 0) for t, d in zip(tensors, dims, strict=True)]
    if _fit_together(size, dims, call, told):
        return _together(run, size, dims, (program, moved, numbers, sizes), told)
    runs = []
    for b in range(size):
        sample = [t if d is None else t[b] for t, d in zip(moved, dims, strict=True)]
        runs.append(run(program, sample, numbers, sizes))
    return stacked(runs)


def _fit_together(size: int, dims: Sequence[Any], call: Arguments, told: Callee) -> bool:
    _, tensors, _, sizes = call
    if any(d is not None for d in dims[:INDICES]) or tensors[0].device.type != "cpu":
        return False
    sampled = {at for at, d in zip(told.tensors, dims[INDICES:], strict=True) if d is not None}
    # The order of edges and nodes is that of one graph.
    if any(kind != TENSOR and kind.endswith("order") for kind in told.arguments):
        return False
    count = len(told.arguments)
    if reason_against(told.program, [i in sampled for i in range(count)]) is not None:
        return False
    entities = told.per_edge(tensors).shape[0] + sizes[0] + sizes[1]
    return bool(size * entities <= MOST_ENTITIES)


def _together(run: Run, size: int, dims: Sequence[Any], call: Arguments, told: Callee) -> Any:
    program, (first, second, *tensors), numbers, sizes = call
    indices = copied_indices(told.graph_kind, first, second, sizes[:COUNTS], size)
    types = [told.program.inputs[i].type for i in told.tensors]
    given = [
        side_by_side(t, of, size, d is not None)
        for t, of, d in zip(tensors, types, dims[INDICES:], strict=True)
    ]
    counts = [size * sizes[0], size * sizes[1], *sizes[COUNTS:]]
    found = run(program, [*indices, *given], numbers, counts)
    return [taken_apart(output, size) for output in found]
