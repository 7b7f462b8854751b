"""What a run over a graph in a file will take on the CPU, told before it is made."""

from collections.abc import Mapping
from typing import Any

from tiga.backends.llvm.executable import Executable
from tiga.backends.llvm.paged.placement import Placement
from tiga.backends.llvm.paged.steps import Forecast, Steps
from tiga.errors import OutOfBudget
from tiga.paging.planned import PlannedRows
from tiga.paging.predicted import Places, Planned
from tiga.paging.results import stored_sizes
from tiga.trace.node import Node
from tiga.types import GLOBAL, Space


def planned_on_cpu(
    executable: Executable, graph: Any, extents: Mapping[Space, int], inputs: Places,
    held: Mapping[str, int], threads: int,
) -> Planned:  # fmt: skip
    """The plan of a run on so many threads, where so many bytes of each tier are held beside.

    Raises:
        OutOfBudget: as the run would.
    """
    try:
        return _planned(executable, graph, extents, inputs, held, threads, spill=False)
    except OutOfBudget:
        return _planned(executable, graph, extents, inputs, held, threads, spill=True)


def _planned(
    executable: Executable, graph: Any, extents: Mapping[Space, int], inputs: Places,
    held: Mapping[str, int], threads: int, spill: bool,
) -> Planned:  # fmt: skip
    sizes = stored_sizes(executable.plan, extents)
    placement = Placement(graph.traffic, sizes, spill, threads, held.get("host", 0))
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
    return Planned(plan, peak, outputs, sum(sizes[n] for n in kept))
