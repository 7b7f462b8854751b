"""What cannot be fused runs through torch, destination block by destination block.

A block is a run of destinations whose edges fit the memory bound. `edge` and `node` run as the
user wrote them on the block's edges; the reducer is a compiled program over the block's rows. The
backward pass runs each block again. A destination with more edges than fit is a block of its own,
whose edges `edge` sees in parts: only their messages are kept whole.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from tiga.errors import Unfusable, UnsupportedByBackend
from tiga.frontends.message_passing import MessagePassing, PerEdge
from tiga.frontends.signature import taken
from tiga.frontends.torch.autograd import transforming
from tiga.frontends.torch.blocks import (
    BlockFields,
    EdgeRange,
    Reduction,
    RowBlock,
    finish,
    measure,
    send,
    tensors_of,
)
from tiga.frontends.torch.discover import Discovery
from tiga.frontends.trees import leaves_of, mapped, numbered
from tiga.knobs import current
from tiga.relations import Graph

PILOT_EDGES = 64


@dataclass
class Bounded:
    """A kernel with an op that no trace holds: which one, and the tensors that it may read."""

    reason: Unfusable
    discovery: Discovery
    edge_bytes: int | None = None
    result: Any = field(default=None)

    def run(
        self, kernel: MessagePassing, graph: Graph, fields: Mapping[str, Any],
        params: Mapping[str, Any],
    ) -> Any:  # fmt: skip
        """The result of a call, with gradients by running blocks again.

        Raises:
            UnsupportedByBackend: a transform of `torch.func`, or forward mode, watches the call.
        """
        if transforming():
            raise UnsupportedByBackend(
                "a call that runs through torch in destination blocks takes part in no transform "
                f"of torch.func and has no forward mode: {self.reason}"
            )
        names = [(namespace, name) for namespace in fields for name in fields[namespace]]
        values = [fields[namespace][name] for namespace, name in names]
        others = self._others(params)
        blocks = self._plan(kernel, graph, BlockFields(graph, fields), params)
        job = Job(self, kernel, graph, graph.token(), names, dict(params), blocks, others)
        outputs = InBlocks.apply(job, *values, *others)
        return mapped(lambda i: outputs[i], self.result)

    def _others(self, params: Mapping[str, Any]) -> list[torch.Tensor]:
        """Tensors with gradients that are no fields."""
        places = [place.get() for _, place in self.discovery.tensors.values()]
        found = [v for v in (*places, *params.values()) if isinstance(v, torch.Tensor)]
        return list({id(t): t for t in found if t.requires_grad}.values())

    def _plan(
        self, kernel: MessagePassing, graph: Graph, fields: BlockFields, params: Any
    ) -> list[RowBlock]:
        count = min(PILOT_EDGES, graph.num_edges)
        if self.edge_bytes is None and count:
            self.edge_bytes = measure(kernel, fields, count, taken(kernel, "edge", params))
        most = max(1, current().memory_bound // max(self.edge_bytes or 1, 1))
        pointers = graph.snapshot().topology.row_ptr
        # Not those of `fields`: torch.func wraps tensors that are made while it transforms.
        host = pointers if isinstance(pointers, np.ndarray) else pointers.cpu().numpy()
        return list(cut(host, most))


def cut(row_ptr: np.ndarray, most: int) -> Iterator[RowBlock]:
    """Blocks of rows with at most `most` edges, or of one row that has more."""
    rows, low = len(row_ptr) - 1, 0
    while True:
        high = int(np.searchsorted(row_ptr, row_ptr[low] + most, side="right")) - 1
        high = min(max(high, low + 1), rows)
        yield RowBlock(low, high, int(row_ptr[low]), int(row_ptr[high]), most)
        if high == rows:
            return
        low = high


@dataclass(frozen=True)
class Job:
    """One call in blocks. `names` are the fields among the tensors, `others` the rest."""

    bounded: Bounded
    kernel: MessagePassing
    graph: Graph
    token: tuple[int, ...]
    names: list[tuple[str, str]]
    params: dict[str, Any]
    blocks: list[RowBlock]
    others: list[torch.Tensor]

    def fields(self, values: Sequence[torch.Tensor]) -> BlockFields:
        """The fields of the call."""
        fields: dict[str, dict[str, Any]] = {"edge": {}}
        for (namespace, name), value in zip(self.names, values, strict=True):
            fields.setdefault(namespace, {})[name] = value
        return BlockFields(self.graph, fields)

    def send(self, fields: BlockFields, part: EdgeRange) -> tuple[Any, list[torch.Tensor]]:
        """What `edge` sends, and the tensors in it."""
        sent = send(self.kernel, fields, part, taken(self.kernel, "edge", self.params))
        return sent, tensors_of(sent, part.last - part.first)

    def rows(self, fields: BlockFields, block: RowBlock, sent: Any, messages: Any) -> Any:
        """What the destinations of a block get."""
        tensors = self.bounded.discovery.tensors
        reduction = Reduction(self.kernel.reducer, tensors, self.graph, fields, block)
        rows = reduction.run(sent, messages)
        params = taken(self.kernel, "node", self.params)
        return finish(self.kernel, fields, block, rows, params)


class InBlocks(torch.autograd.Function):
    """Forward and backward in blocks; the backward pass refuses to be differentiated."""

    @staticmethod
    def forward(ctx: Any, job: Job, *values: Any) -> Any:
        ctx.job = job
        ctx.random = torch.get_rng_state()
        ctx.save_for_backward(*values)
        ctx.set_materialize_grads(False)
        fields = job.fields(values[: len(job.names)])
        outputs: list[torch.Tensor] = []
        for block in job.blocks:
            sent, messages, _ = _messages(job, fields, block)
            _store(job, outputs, fields, block, job.rows(fields, block, sent, messages))
        ctx.mark_non_differentiable(*(o for o in outputs if not o.is_floating_point()))
        return tuple(outputs)

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> Any:
        with torch.no_grad():
            _, *found = InBlocks._gradients(ctx, cotangents)
        if not torch.is_grad_enabled():
            return None, *found
        given = [t for t in (*cotangents, *ctx.saved_tensors) if t is not None]
        return None, *_refuse_derivatives(found, given)

    @staticmethod
    def _gradients(ctx: Any, cotangents: Any) -> Any:
        job: Job = ctx.job
        job.graph.require_unchanged(job.token)
        gradients = Gradients(job, ctx.saved_tensors, ctx.needs_input_grad[1:])
        with torch.random.fork_rng(devices=[]), torch.enable_grad():
            torch.set_rng_state(ctx.random)
            for block in job.blocks:
                gradients.add(block, cotangents)
        return None, *gradients.found()


class _Refused(torch.autograd.Function):
    """Hands gradients on; they depend on the values after them, but how is not known."""

    @staticmethod
    def forward(ctx: Any, count: int, *values: torch.Tensor) -> Any:
        return tuple(v.clone() for v in values[:count])

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> Any:
        raise UnsupportedByBackend(
            "a call that runs through torch in destination blocks has no second derivative; "
            "`explain()` names the op that keeps it from being fused."
        )


def _refuse_derivatives(found: Sequence[Any], given: Sequence[torch.Tensor]) -> list[Any]:
    """The gradients, whose own derivative raises instead of missing what they depend on."""
    known = [g for g in found if g is not None]
    handed = iter(_Refused.apply(len(known), *known, *given))
    return [None if g is None else next(handed) for g in found]


def _messages(
    job: Job, fields: BlockFields, block: RowBlock
) -> tuple[Any, list[torch.Tensor], list[torch.Tensor]]:
    """What a block's edges send, part by part, and the random state before each part."""
    pieces, states = [], []
    sent: Any = None
    for part in block.parts():
        states.append(torch.get_rng_state())
        sent, tensors = job.send(fields, part)
        pieces.append(tensors)
    joined = pieces[0] if len(pieces) == 1 else [torch.cat(p) for p in zip(*pieces, strict=True)]
    return sent, joined, states


def _plain(leaf: Any) -> torch.Tensor:
    """The values of one result of a block, whether of its rows or of its edges."""
    return leaf.value if isinstance(leaf, PerEdge) else leaf


def _store(
    job: Job, outputs: list[torch.Tensor], fields: BlockFields, block: RowBlock, made: Any
) -> None:
    """Copy a block's results to their rows; the first block says how many results there are."""
    if not outputs:
        job.bounded.result = numbered(made)
        outputs += [_whole(job.graph, leaf) for leaf in leaves_of(made)]
    for output, leaf in zip(outputs, leaves_of(made), strict=True):
        output[fields.place(block, isinstance(leaf, PerEdge))] = _plain(leaf)


def _whole(graph: Graph, leaf: Any) -> torch.Tensor:
    """Memory for the results of all blocks like this one."""
    part = _plain(leaf)
    extent = graph.num_edges if isinstance(leaf, PerEdge) else graph.num_dst
    return torch.empty((extent, *part.shape[1:]), dtype=part.dtype, device=part.device)


class Gradients:
    """Sums of gradients over blocks, 16-bit ones in float32."""

    def __init__(self, job: Job, values: Sequence[torch.Tensor], needed: Sequence[bool]) -> None:
        self.job, self.values = job, values
        self.needed = [i for i, need in enumerate(needed) if need]
        self.sums = {i: torch.zeros_like(values[i], dtype=_wide(values[i])) for i in self.needed}
        self.fields = job.fields(values[: len(job.names)])
        self.position = {name: i for i, name in enumerate(job.names)}
        self.direct = [i for i in self.needed if i >= len(job.names)]

    def found(self) -> list[torch.Tensor | None]:
        """The gradient of each value, None where none is needed."""
        return [
            self.sums[i].to(v.dtype) if i in self.sums else None for i, v in enumerate(self.values)
        ]

    def add(self, block: RowBlock, cotangents: Sequence[Any]) -> None:
        """Run a block again, first the messages, then its rows, then each part of its edges."""
        job, parts = self.job, block.parts()
        self.fields.reads = []
        with torch.set_grad_enabled(len(parts) == 1):
            sent, messages, states = _messages(job, self.fields, block)
        edge_reads, self.fields.reads = self.fields.reads, []
        inner = [m.detach().requires_grad_(m.is_floating_point()) for m in messages]
        results = leaves_of(job.rows(self.fields, block, sent, inner))
        pairs = [
            (_plain(r), c[self.fields.place(block, isinstance(r, PerEdge))])
            for r, c in zip(results, cotangents, strict=True)
            if c is not None and _plain(r).requires_grad
        ]
        if not pairs:
            return
        wanted = [m for m in inner if m.requires_grad]
        found = self._pull(pairs, self.fields.reads, wanted)
        upstream = iter(found)
        cts = [next(upstream) if m.requires_grad else None for m in inner]
        if len(parts) == 1:
            self._pull(_with_gradient(messages, cts), edge_reads)
            return
        for part, state in zip(parts, states, strict=True):
            self._add_part(block, part, state, cts)

    def _add_part(
        self, block: RowBlock, part: EdgeRange, state: torch.Tensor, cts: list[Any]
    ) -> None:
        self.fields.reads = []
        torch.set_rng_state(state)
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
        for ((namespace, name, rows), _), part in zip(reads, found, strict=False):
            total = self.sums.get(self.position[namespace, name])
            if part is not None and total is not None:
                _add_rows(total, rows, part.to(total.dtype))
        for i, part in zip(self.direct, found[len(reads) :], strict=False):
            if part is not None:
                self.sums[i] += part
        return found[len(targets) :]


def _with_gradient(values: Sequence[torch.Tensor], cts: Sequence[Any]) -> list[Any]:
    pairs = zip(values, cts, strict=True)
    return [(v, c) for v, c in pairs if c is not None and v.requires_grad]


def _wide(tensor: torch.Tensor) -> torch.dtype:
    return torch.float32 if tensor.element_size() == 2 else tensor.dtype


def _add_rows(total: torch.Tensor, rows: torch.Tensor, part: torch.Tensor) -> None:
    """Add rows to a total, in a fixed order on every device."""
    if total.is_cuda:
        # Sorts the rows, where `index_add_` adds them as threads get there.
        total.index_put_((rows,), part, accumulate=True)
    else:
        total.index_add_(0, rows, part)
