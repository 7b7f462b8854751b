"""What a run over a graph in a file will take on a GPU, told before it is made."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tiga.backends.triton.executable import Executable
from tiga.backends.triton.paged.budgets import Arrays, loading_bytes
from tiga.backends.triton.paged.needs import Needs
from tiga.backends.triton.paged.placement import LESS_AND_LESS, Keeps, Placement
from tiga.backends.triton.paged.steps import forecast
from tiga.errors import OutOfBudget
from tiga.paging.planned import PlannedRows
from tiga.paging.predicted import Places, Planned
from tiga.paging.results import stored_sizes
from tiga.paging.span import PagePlan
from tiga.trace.node import Node
from tiga.types import GLOBAL, Space


def planned_on_gpu(
    executable: Executable, graph: Any, extents: Mapping[Space, int], inputs: Places,
    held: Mapping[str, int], arrays: Arrays,
) -> Planned:  # fmt: skip
    """The plan of a run, where so many bytes of each tier are held beside; `arrays` are those of
    who would run it.

    Raises:
        OutOfBudget, UnsupportedByBackend: as the run would.
    """
    for keeps in LESS_AND_LESS[:-1]:
        try:
            return _planned(executable, graph, extents, inputs, held, arrays, keeps)
        except OutOfBudget:
            continue
    return _planned(executable, graph, extents, inputs, held, arrays, LESS_AND_LESS[-1])


def _planned(
    executable: Executable, graph: Any, extents: Mapping[Space, int], inputs: Places,
    held: Mapping[str, int], arrays: Arrays, keeps: Keeps,
) -> Planned:  # fmt: skip
    sizes, before = stored_sizes(executable.plan, extents), held.get("device", 0)
    placement = Placement(
        graph,
        arrays,
        Needs(executable),
        sizes,
        keeps,
        held=before,
        held_on_host=held.get("host", 0),
    )
    own = set(executable.plan.outputs)
    on_host = {n: sizes[n] for n in placement.on_host}
    spilled = {n: sizes[n] for n in sizes if n not in placement.resident | placement.on_host}
    homes: dict[Node, Any] = {
        n: PlannedRows.of(extents[n.type.space], n.type.row_bytes, spilled.get(n, 0) > 0)
        for n in sizes
    }
    homes |= {n: replace(homes[n], address=0) for n in on_host}
    results = {n: sizes[n] for n in sizes if n in placement.resident}
    kept = sum(nbytes for node, nbytes in results.items() if node in own)
    placement.held += kept
    given = {n: p for n, p in zip(executable.plan.inputs, inputs, strict=True) if p is not None}
    whole = placement.to_load(given)
    read = sum(nbytes for node, nbytes in whole.items() if given[node].in_file)
    homes |= given | {n: PlannedRows.of(given[n].count, given[n].row_bytes, False) for n in whole}
    placement.held = before + sum(results.values()) + sum(whole.values())
    near = placement.to_pin({n: homes[n] for n in given})
    homes |= {n: PlannedRows.of(homes[n].count, homes[n].row_bytes, False) for n in near}
    placement.pinned_held += sum(near.values())
    paging = placement.paging(executable, extents)
    plan = PagePlan(paging.device)
    plan.whole(sum(whole.values()), read)
    pinned = sum(nbytes for node, nbytes in near.items() if given[node].in_file)
    plan.whole(sum(near.values()), pinned, "pinned memory")
    forecast(executable, paging.steps(homes, {}), plan)
    taken = {"host": sum(on_host.values()), "nvme": sum(spilled.values())}
    beside = {tier: held.get(tier, 0) + nbytes for tier, nbytes in taken.items()}
    peak = _peak(
        placement, plan, loading_bytes(placement.pinned, max(whole.values(), default=0)), beside
    )
    outputs = [None if n.type.space == GLOBAL else homes[n] for n in executable.plan.outputs]
    return Planned(plan, peak, outputs, kept)


def _peak(
    placement: Placement, plan: PagePlan, loading: int, beside: Mapping[str, int]
) -> dict[str, int]:  # fmt: skip
    """The most bytes in use, by tier; `loading` bytes are pinned to copy inputs whole, `beside`
    are those of results."""
    live = {tier: account.live for tier, account in placement.scope.accounts.items()}
    return {
        "device": live["device"] + placement.held + plan.peak,
        "host-pinned": live["host-pinned"] + max(placement.pinned_held + plan.staged, loading),
        **{tier: live[tier] + nbytes for tier, nbytes in beside.items()},
    }
