"""Calls over a graph in a file on a GPU: arrays in, arrays out, whatever library they are of."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tiga.backends.triton.executable import Executable
from tiga.backends.triton.paged.budgets import Arrays
from tiga.backends.triton.paged.needs import Needs
from tiga.backends.triton.paged.placement import LESS_AND_LESS, Keeps, Placement
from tiga.backends.triton.paged.run import run_paged
from tiga.errors import OutOfBudget
from tiga.paging.results import stored_sizes
from tiga.paging.span import PagePlan
from tiga.trace.node import Node
from tiga.types import GLOBAL, Space


@dataclass(frozen=True)
class Call:
    """A program on a graph in a file: `executable` takes pages, `extents` are those of its spaces.

    `place` says where an input lies: rows for one over entities, an array of the platform for a
    global one.
    """

    executable: Executable
    graph: Any
    extents: Mapping[Space, int]
    library: Arrays
    place: Callable[[Any, Node, Placement], Any]

    def run(self, values: Sequence[Any]) -> tuple[list[Any], PagePlan]:
        """The outputs, arrays on the device or of numpy, mapped from files; and what was done.

        Raises:
            OutOfBudget: a page of one row does not fit the budgets, or what has to be on the
                device.
            InvalidFile: the file names an edge that cannot be.
        """
        with self.library.platform.on():
            for keeps in LESS_AND_LESS[:-1]:
                try:
                    return self._run(values, keeps)
                except OutOfBudget:
                    pass  # what it held is free again only after this
            return self._run(values, LESS_AND_LESS[-1])

    def _run(self, values: Sequence[Any], keeps: Keeps) -> tuple[list[Any], PagePlan]:
        executable, extents, plan = self.executable, self.extents, self.executable.plan
        sizes = stored_sizes(plan, extents)
        placement = Placement(self.graph, self.library, Needs(executable), sizes, keeps)
        outputs, targets = self._outputs(placement)
        pairs = zip(plan.inputs, values, strict=True)
        inputs = {node: self.place(value, node, placement) for node, value in pairs}
        entities = {n for n in inputs if n.type.space != GLOBAL}
        whole = placement.to_load({n: inputs[n] for n in entities})
        read = sum(placement.to_read("device", inputs, whole))
        charged: list[Callable[[], None]] = []
        try:
            with self.graph.reading():
                placement.load(inputs, whole, charged)
                near = placement.to_pin({n: r for n, r in inputs.items() if n in entities})
                pinned = sum(placement.to_read("host-pinned", inputs, near))
                placement.pin(inputs, near, charged)
                between = {n: placement.between(n, extents.get(n.type.space, 1))
                           for n in plan.intermediates}  # fmt: skip
                paging = placement.paging(executable, extents)
                pages = PagePlan(paging.device)
                pages.whole(sum(whole.values()), read)
                pages.whole(sum(near.values()), pinned, "pinned memory")
                given = [inputs[node] for node in plan.inputs]
                run_paged(executable, given, targets, between, paging, pages)
        finally:
            if placement.pinned_inputs:
                placement.link.mark().wait()  # kernels may read that memory yet
            for back in charged:
                back()
        placement.leave()
        return outputs, pages

    def _outputs(self, placement: Placement) -> tuple[list[Any], list[Any]]:
        """Arrays for the outputs, and where their rows are stored (global ones: the arrays)."""
        outputs, targets = [], []
        for node in self.executable.plan.outputs:
            made: Any
            if node.type.space == GLOBAL:
                made = rows = self.library.new(node.type.shape, node.type.dtype, "an output")
            else:
                made, rows = placement.output(node, self.extents[node.type.space])
            outputs.append(made)
            targets.append(rows)
        return outputs, targets
