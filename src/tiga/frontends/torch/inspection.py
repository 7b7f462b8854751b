"""What a kernel knows of its calls on torch tensors, and of calls that are not made."""

from collections.abc import Mapping
from typing import Any

import torch

from tiga.errors import Unfusable
from tiga.frontends.inspection import Captured, CompiledPart, Known
from tiga.frontends.message_passing import FieldSets
from tiga.frontends.torch.autograd import require_pages, requires_grad
from tiga.frontends.torch.binding import bind
from tiga.frontends.torch.blocks.forecast import BlockForecast, predictions, wanted_of
from tiga.frontends.torch.blocks.paged import PagedBlockFields
from tiga.frontends.torch.devices import device_of
from tiga.frontends.torch.fields import namespaces
from tiga.frontends.torch.forecast import Prediction, predict
from tiga.frontends.torch.unit import Runnable
from tiga.frontends.torch.variants import Variant, state_of, variant_of

_ADVICE = (
    "runs through torch in destination blocks; rewrite the op, or set strict to make it an error"
)


def known_of(kernel: Any) -> Known:
    """The programs of calls on torch tensors."""
    state = state_of(kernel)
    variants = state.all()
    programs = [_captured(variant) for variant in variants]
    units = [v.unit for v in variants if v.unit is not None]
    batches = list(dict.fromkeys(text for unit in units for text in unit.per_sample()))
    return Known(state.hits, state.misses, programs, _ADVICE, batches)


def _captured(variant: Variant) -> Captured:
    bounded = [b for b in (variant.bounded, variant.fallback) if b is not None]
    refusals = [str(one.reason) for one in bounded]
    notes = [] if variant.captured is None else list(variant.captured.notes)
    notes += [line for one in bounded if one.pages is not None for line in one.pages.told()]
    runnables = [] if variant.unit is None else variant.unit.runnables()
    return Captured(refusals, notes, [_part(what, runnable) for what, runnable in runnables])


def _part(what: str, runnable: Runnable) -> CompiledPart:
    on_gpu = runnable.ran_on_gpu
    pages = runnable.gpu_runs.pages if on_gpu else None
    return CompiledPart(
        what, id(runnable), on_gpu,
        lambda: runnable.executable, lambda: runnable.gpu_runs.executable, pages,
    )  # fmt: skip


def foretold(
    kernel: Any, graph: Any, given: FieldSets, params: Mapping[str, Any]
) -> tuple[list[str], list[Prediction]]:
    """Capture and compile the programs of a call, without running it: why it would not run fused,
    and what it would take where the graph is in a file."""
    fields = namespaces(graph, given)
    variant = variant_of(kernel, graph, fields, params)
    if variant.captured is None or variant.unit is None:
        return ["a call would not be fused"], _in_blocks(variant, kernel, graph, fields, params)
    with torch.no_grad():
        values = bind(variant.captured, graph, fields, params)
    grad = torch.is_grad_enabled()
    wanted = tuple(i for i, v in enumerate(values) if grad and requires_grad(v))
    unit, device = variant.unit, device_of(graph)
    try:
        if graph.paged:
            if wanted:
                require_pages(unit, unit.training(wanted, device), graph, values, wanted)
            return [], list(predict(unit, graph, values, wanted))
        if wanted:
            unit.training(wanted, device)
        else:
            unit.plain().compile(device)
    except Unfusable as reason:
        variant.refuse(reason, kernel, params)
        told = [f"a call would not be fused: {reason}"]
        return told, _in_blocks(variant, kernel, graph, fields, params)
    return [], []


def _in_blocks(
    variant: Variant, kernel: Any, graph: Any, fields: Any, params: Mapping[str, Any]
) -> list[Prediction]:
    """What a call takes that runs through torch, where the graph is in a file."""
    bounded = variant.bounded or variant.fallback
    if not graph.paged or bounded is None:
        return []
    job, values = bounded.job(kernel, graph, fields, params)
    assert bounded.sizes is not None
    found = job.fields(values)
    assert isinstance(found, PagedBlockFields)
    forecast = BlockForecast(found, job.blocks, bounded.sizes)
    return list(predictions(forecast, wanted_of(job.names, values)))


def told(
    kernel: Any, graph: Any, given: FieldSets, params: Mapping[str, Any]
) -> list[str]:  # fmt: skip
    """The lines that `explain` adds for a call that is not made."""
    what, predictions = foretold(kernel, graph, given, params)
    return [*what, *(line for prediction in predictions for line in prediction.told())]
