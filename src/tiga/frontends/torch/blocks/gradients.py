"""Gradients of calls in blocks, each block's added to those of the blocks before."""

from collections.abc import Sequence
from typing import Any

import torch

from tiga.frontends.message_passing import PerEdge
from tiga.frontends.torch.blocks.fields import BlockFields, RowBlock, wide
from tiga.frontends.torch.blocks.job import Job, plain
from tiga.frontends.torch.blocks.random_state import RandomState
from tiga.frontends.trees import leaves_of


class Gradients:
    """Sums of gradients over blocks, 16-bit ones of fields in float32."""

    def __init__(
        self, job: Job, fields: BlockFields, values: Sequence[torch.Tensor],
        needed: Sequence[bool],
    ) -> None:  # fmt: skip
        self.job, self.values, self.fields = job, values, fields
        wanted = [i for i, need in enumerate(needed) if need]
        self.direct = [i for i in wanted if i >= len(job.names)]
        self.totals = {job.names[i]: fields.total(values[i]) for i in wanted if i < len(job.names)}
        self.sums = {
            i: torch.zeros_like(values[i], dtype=wide(values[i].dtype)) for i in self.direct
        }

    def found(self) -> list[torch.Tensor | None]:
        """The gradient of each value, None where none is needed."""
        named = dict(enumerate(self.job.names))
        found: list[torch.Tensor | None] = []
        for i, value in enumerate(self.values):
            total = self.totals.get(named[i]) if i in named else None
            if total is not None:
                found.append(total.result(value.dtype))
            else:
                found.append(self.sums[i].to(value.dtype) if i in self.sums else None)
        return found

    def add(self, block: RowBlock, cotangents: Sequence[Any]) -> None:
        """Run a block again, first the messages, then its rows, then each part of its edges."""
        job, fields, parts = self.job, self.fields, block.parts()
        fields.reads = []
        with torch.set_grad_enabled(len(parts) == 1):
            sent, messages, states = job.messages(fields, block)
        edge_reads, fields.reads = fields.reads, []
        inner = [m.detach().requires_grad_(m.is_floating_point()) for m in messages]
        results = leaves_of(job.rows(fields, block, sent, inner))
        pairs = [
            (plain(r), fields.part_of(c, fields.place(block, isinstance(r, PerEdge))))
            for r, c in zip(results, cotangents, strict=True)
            if c is not None and plain(r).requires_grad
        ]
        if not pairs:
            return
        wanted = [m for m in inner if m.requires_grad]
        upstream = iter(self._pull(pairs, fields.reads, wanted))
        cts = [next(upstream) if m.requires_grad else None for m in inner]
        if len(parts) == 1:
            self._pull(_with_gradient(messages, cts), edge_reads)
            return
        with RandomState.now(fields.device).replayed():
            for part, state in zip(parts, states, strict=True):
                self._add_part(block, part, state, cts)

    def _add_part(self, block: RowBlock, part: Any, state: RandomState, cts: list[Any]) -> None:
        self.fields.reads = []
        state.restore()
        _, messages = self.job.send(self.fields, part)
        lo, hi = part.first - block.first, part.last - block.first
        pieces = [None if c is None else c[lo:hi] for c in cts]
        self._pull(_with_gradient(messages, pieces), self.fields.reads)

    def _pull(self, pairs: list[Any], reads: list[Any], extra: Sequence[Any] = ()) -> Any:
        """Add the gradients of what was read and of other tensors; return those of `extra`."""
        if not pairs:
            return [None] * len(extra)
        targets = [value for _, value in reads] + [self.values[i] for i in self.direct]
        found = torch.autograd.grad(
            [r for r, _ in pairs], [*targets, *extra], [c for _, c in pairs], allow_unused=True
        )
        for ((namespace, name, numbers), _), part in zip(reads, found, strict=False):
            total = self.totals.get((namespace, name))
            if part is not None and total is not None:
                total.add(numbers, part)
        for i, part in zip(self.direct, found[len(reads) :], strict=False):
            if part is not None:
                self.sums[i] += part
        return found[len(targets) :]


def _with_gradient(values: Sequence[torch.Tensor], cts: Sequence[Any]) -> list[Any]:
    pairs = zip(values, cts, strict=True)
    return [(v, c) for v, c in pairs if c is not None and v.requires_grad]
