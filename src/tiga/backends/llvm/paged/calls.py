"""Calls over a graph in a file on the CPU: rows in, arrays out, whatever library they are of."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from tiga.backends.llvm.executable import Executable
from tiga.backends.llvm.paged.placement import Placement
from tiga.backends.llvm.paged.run import Paging, run_paged
from tiga.errors import OutOfBudget
from tiga.paging.results import spilled, stored_sizes
from tiga.runtime.pages import Rows
from tiga.types import GLOBAL, Space


@dataclass(frozen=True)
class Call:
    """A program on a graph in a file; `extents` are those of its spaces."""

    executable: Executable
    graph: Any
    extents: Mapping[Space, int]
    threads: int

    def run(self, inputs: Sequence[Rows | int]) -> list[np.ndarray]:
        """The outputs, in memory or mapped from files. `inputs` are rows for values over entities,
        addresses for global ones.

        Raises:
            OutOfBudget: a page of one task does not fit the budget.
            InvalidFile: the file names an edge that cannot be.
            UnsupportedByBackend: the program needs all of a set in memory.
        """
        try:
            return self._run(inputs, spill=False)
        except OutOfBudget:
            pass  # what it held is free again only after this
        return self._run(inputs, spill=True)

    def _run(self, inputs: Sequence[Rows | int], spill: bool) -> list[np.ndarray]:
        """The outputs; `spill` keeps none in memory."""
        plan, graph = self.executable.plan, self.graph
        placement = Placement(graph.traffic, stored_sizes(plan, self.extents), spill, self.threads)
        outputs: list[np.ndarray] = []
        homes: list[Rows | int] = []
        for node in plan.outputs:
            if node.type.space == GLOBAL:
                outputs.append(np.empty(node.type.shape, node.type.dtype.numpy))
                homes.append(outputs[-1].ctypes.data)
                continue
            array, rows = placement.output(node, self.extents[node.type.space])
            outputs.append(array)
            homes.append(rows)
        keep = partial(spilled, placement.scope, placement.traffic)
        paging = Paging(placement.limits, placement.between, placement.charge, keep)
        graphs = [graph] * len(self.executable.relations)
        with graph.reading():
            run_paged(self.executable, graphs, inputs, homes, self.threads, self.extents, paging)
        return outputs
