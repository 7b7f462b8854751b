"""What cannot be fused runs through torch, destination block by destination block.

A block is a run of destinations whose edges fit the memory bound. `edge` and `node` run as the
user wrote them on the block's edges; the reducer is a compiled program over the block's rows. The
backward pass runs each block again. A destination with more edges than fit is a block of its own,
whose edges `edge` sees in parts: only their messages are kept whole. Over a graph in a file, blocks
read what they need of it, and fit the budget.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from threading import get_ident
from typing import Any

import torch

from tiga.errors import Unfusable, UnsupportedByBackend
from tiga.frontends.message_passing import MessagePassing, PerEdge
from tiga.frontends.signature import taken
from tiga.frontends.torch.autograd import transforming
from tiga.frontends.torch.block_fields import BlockFields, EdgeRange, RowBlock, wide
from tiga.frontends.torch.block_plan import Blocks, Sizes, measured, planned
from tiga.frontends.torch.blocks import Programs, Reduction, finish, send, tensors_of
from tiga.frontends.torch.devices import device_of, on_gpu
from tiga.frontends.torch.discover import Discovery
from tiga.frontends.torch.untraced import untraced
from tiga.frontends.trees import leaves_of, mapped, numbered
from tiga.paging.span import PagePlan
from tiga.relations import Graph
from tiga.relations.paged import not_fused
from tiga.runtime.scope import Scope, active, within

NO_BLOCKS = Blocks((), 0)


@dataclass
class Bounded:
    """A kernel with an op that no trace holds: which one, and the tensors that it may read.
    `pages` are those of the last call over a graph in a file."""

    reason: Unfusable
    discovery: Discovery
    sizes: Sizes | None = None
    result: Any = field(default=None)
    pages: PagePlan | None = None

    def run(
        self, kernel: MessagePassing, graph: Graph, fields: Mapping[str, Any],
        params: Mapping[str, Any],
    ) -> Any:  # fmt: skip
        """The result of a call, with gradients by running blocks again.

        Raises:
            UnsupportedByBackend: a transform of `torch.func`, or forward mode, watches the call; or
                the graph is in a file and runs on a GPU.
            OutOfBudget: a row's messages exceed the budget.
        """
        if transforming():
            raise UnsupportedByBackend(
                "a call that runs through torch in destination blocks takes part in no transform "
                f"of torch.func and has no forward mode: {self.reason}"
            )
        job, values = self.job(kernel, graph, fields, params)
        outputs = InBlocks.apply(job, *values, *job.others)
        return mapped(lambda i: outputs[i], self.result)

    def job(
        self, kernel: MessagePassing, graph: Graph, fields: Mapping[str, Any],
        params: Mapping[str, Any],
    ) -> "tuple[Job, list[torch.Tensor]]":  # fmt: skip
        """One call, and the fields in the order of its names."""
        if graph.paged and on_gpu(device_of(graph)):
            raise not_fused(self.reason)
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
        found = [v for v in (*places, *params.values()) if isinstance(v, torch.Tensor)]
        return list({id(t): t for t in found if t.requires_grad}.values())


@dataclass(frozen=True)
class Job:
    """One call in blocks. `names` are the fields among the tensors, `others` the rest; `scope` are
    the budgets in force over a graph in a file, which threads of autograd do not see."""

    bounded: Bounded
    kernel: MessagePassing
    graph: Graph
    token: tuple[int, ...]
    names: list[tuple[str, str]]
    params: dict[str, Any]
    others: list[torch.Tensor]
    scope: Scope | None
    blocks: Blocks = NO_BLOCKS
    programs: Programs = field(default_factory=dict)
    thread: int = field(default_factory=get_ident)

    @property
    def edge_params(self) -> Mapping[str, Any]:
        """The parameters that `edge` takes."""
        return taken(self.kernel, "edge", self.params)

    def fields(self, values: Sequence[torch.Tensor]) -> BlockFields:
        """The fields of the call."""
        fields: dict[str, dict[str, Any]] = {"edge": {}}
        for (namespace, name), value in zip(self.names, values, strict=True):
            fields.setdefault(namespace, {})[name] = value
        if not self.graph.paged:
            return BlockFields(self.graph, fields)
        from tiga.frontends.torch.paged_blocks import PagedBlockFields

        return PagedBlockFields(self.graph, fields)

    @contextmanager
    def running(self, fields: BlockFields) -> Iterator[None]:
        """The body of a `with` goes through the blocks: their memory is charged."""
        elsewhere = self.scope is not None and get_ident() != self.thread
        with (
            within(self.scope) if elsewhere else nullcontext(),
            fields.holding(self.blocks.nbytes, "destination blocks through torch"),
            fields.reading(),
        ):
            yield

    def send(self, fields: BlockFields, part: EdgeRange) -> tuple[Any, list[torch.Tensor]]:
        """What `edge` sends, and the tensors in it."""
        sent = send(self.kernel, fields, part, self.edge_params)
        return sent, tensors_of(sent, part.last - part.first)

    def messages(
        self, fields: BlockFields, block: RowBlock
    ) -> tuple[Any, list[torch.Tensor], list[torch.Tensor]]:
        """What a block's edges send, part by part, and the random state before each part."""
        pieces, states = [], []
        sent: Any = None
        for part in block.parts():
            states.append(torch.get_rng_state())
            sent, tensors = self.send(fields, part)
            pieces.append(tensors)
        if len(pieces) == 1:
            return sent, pieces[0], states
        return sent, [torch.cat(p) for p in zip(*pieces, strict=True)], states

    def rows(self, fields: BlockFields, block: RowBlock, sent: Any, messages: Any) -> Any:
        """What the destinations of a block get."""
        tensors = self.bounded.discovery.tensors
        reduction = Reduction(self.kernel.reducer, tensors, fields, block, self.programs)
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
        outputs: list[Any] = []
        with job.running(fields):
            for block in job.blocks.each:
                sent, messages, _ = job.messages(fields, block)
                _store(job, outputs, fields, block, job.rows(fields, block, sent, messages))
        tensors = tuple(output.tensor for output in outputs)
        ctx.mark_non_differentiable(*(t for t in tensors if not t.is_floating_point()))
        return tensors

    @staticmethod
    @untraced
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
        fields = job.fields(ctx.saved_tensors[: len(job.names)])
        with job.running(fields):
            gradients = Gradients(job, fields, ctx.saved_tensors, ctx.needs_input_grad[1:])
            with torch.random.fork_rng(devices=[]), torch.enable_grad():
                torch.set_rng_state(ctx.random)
                for block in job.blocks.each:
                    gradients.add(block, cotangents)
            return None, *gradients.found()


class _Refused(torch.autograd.Function):
    """Hands gradients on; they depend on the values after them, but how is not known."""

    @staticmethod
    def forward(ctx: Any, count: int, *values: torch.Tensor) -> Any:
        return tuple(v.clone() for v in values[:count])

    @staticmethod
    @untraced
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


def _plain(leaf: Any) -> torch.Tensor:
    """The values of one result of a block, whether of its rows or of its edges."""
    return leaf.value if isinstance(leaf, PerEdge) else leaf


def _store(job: Job, outputs: list[Any], fields: BlockFields, block: RowBlock, made: Any) -> None:
    """Copy a block's results to their rows; the first block says how many results there are."""
    graph = job.graph
    if not outputs:
        job.bounded.result = numbered(made)
        for leaf in leaves_of(made):
            extent = graph.num_edges if isinstance(leaf, PerEdge) else graph.num_dst
            outputs.append(fields.whole(extent, _plain(leaf)))
    for output, leaf in zip(outputs, leaves_of(made), strict=True):
        output.put(fields.place(block, isinstance(leaf, PerEdge)), _plain(leaf))


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
            (_plain(r), fields.part_of(c, fields.place(block, isinstance(r, PerEdge))))
            for r, c in zip(results, cotangents, strict=True)
            if c is not None and _plain(r).requires_grad
        ]
        if not pairs:
            return
        wanted = [m for m in inner if m.requires_grad]
        found = self._pull(pairs, fields.reads, wanted)
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
