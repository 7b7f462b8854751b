"""What cannot be fused runs through torch, destination block by destination block.

A block is a run of destinations whose edges fit the memory bound. `edge` and `node` run as the
user wrote them on the block's edges; the reducer is a compiled program over the block's rows. The
backward pass runs each block again. A destination with more edges than fit is a block of its own,
whose edges `edge` sees in parts: only their messages are kept whole. Over a graph in a file, blocks
read what they need of it, and fit the budgets.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from tiga.errors import NeedsAutograd, Unfusable, UnsupportedByBackend
from tiga.frontends.message_passing import MessagePassing
from tiga.frontends.torch.autograd import transforming
from tiga.frontends.torch.blocks.autograd import InBlocks
from tiga.frontends.torch.blocks.job import Job
from tiga.frontends.torch.blocks.parts import Programs
from tiga.frontends.torch.blocks.plan import Sizes, measured, planned
from tiga.frontends.torch.capture.discover import Discovery
from tiga.frontends.torch.capture.parameters import leaves
from tiga.frontends.trees import mapped
from tiga.paging.span import PagePlan
from tiga.relations import Graph
from tiga.runtime.scope import active


@dataclass
class Bounded:
    """A kernel with an op that no trace holds: which one, and the tensors that it may read.
    `pages` are those of the last call over a graph in a file."""

    reason: Unfusable
    discovery: Discovery
    sizes: Sizes | None = None
    result: Any = field(default=None)
    pages: PagePlan | None = None
    programs: Programs = field(default_factory=dict)

    def run(
        self, kernel: MessagePassing, graph: Graph, fields: Mapping[str, Any],
        params: Mapping[str, Any],
    ) -> Any:  # fmt: skip
        """The result of a call, with gradients by running blocks again.

        Raises:
            UnsupportedByBackend: a transform of `torch.func`, or forward mode, watches the call.
            OutOfBudget: a row's messages exceed a budget.
        """
        if transforming():
            raise UnsupportedByBackend(
                "a call that runs through torch in destination blocks takes part in no transform "
                f"of torch.func and has no forward mode: {self.reason}"
            )
        job, values = self.job(kernel, graph, fields, params)
        outputs = InBlocks.apply(job, *values, *job.others)
        return mapped(lambda i: outputs[i], self.result)

    def grad_mode(self) -> AbstractContextManager[Any]:
        """How `edge` runs: with gradients, if they are among what it computes."""
        return torch.enable_grad() if isinstance(self.reason, NeedsAutograd) else torch.no_grad()

    def job(
        self, kernel: MessagePassing, graph: Graph, fields: Mapping[str, Any],
        params: Mapping[str, Any],
    ) -> "tuple[Job, list[torch.Tensor]]":  # fmt: skip
        """One call, and the fields in the order of its names."""
        names = [(namespace, name) for namespace in fields for name in fields[namespace]]
        values = [fields[namespace][name] for namespace, name in names]
        others, scope = self._others(params), active() if graph.paged else None
        job = Job(self, kernel, graph, graph.token(), names, dict(params), others, scope)
        found = job.fields(values)
        with found.reading():
            if self.sizes is None:
                self.sizes = measured(job, found)
            blocks = planned(found, self.sizes, self.reason)
            self.pages = found.plan(blocks, self.sizes)
        return replace(job, blocks=blocks), values

    def _others(self, params: Mapping[str, Any]) -> list[torch.Tensor]:
        """Tensors with gradients that are no fields."""
        places = [place.get() for _, place in self.discovery.tensors.values()]
        given = (value for _, value in leaves(params))
        found = [v for v in (*places, *given) if isinstance(v, torch.Tensor)]
        return list({id(t): t for t in found if t.requires_grad}.values())
