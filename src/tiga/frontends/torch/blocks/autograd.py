"""Calls in destination blocks under torch's autograd, with derivatives of every order.

A gradient runs the blocks again, as does the gradient of a gradient. What a derivative of order n
is the slope of is, in each block, a sum of products: of results with their cotangents for n = 1,
else of the gradients of order n - 1 with *their* cotangents, which lie where the gradients do. So
each order is the gradient of such a sum, which torch takes within the block; what was read of
fields, of cotangents and of those of gradients gets its part where it was read.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from tiga.frontends.message_passing import PerEdge
from tiga.frontends.torch.blocks.fields import BlockFields, RowBlock, wide
from tiga.frontends.torch.blocks.gradients import Gradients
from tiga.frontends.torch.blocks.job import Job, plain
from tiga.frontends.torch.blocks.random_state import RandomState
from tiga.frontends.torch.untraced import untraced
from tiga.frontends.trees import leaves_of, numbered


class InBlocks(torch.autograd.Function):
    """The results of a call."""

    @staticmethod
    def forward(ctx: Any, job: Job, *values: Any) -> Any:
        random = RandomState.now(job.device)
        ctx.save_for_backward(*values)
        ctx.set_materialize_grads(False)
        fields = job.fields(values[: len(job.names)])
        outputs: list[Any] = []
        with job.running(fields, job.blocks):
            for block in job.blocks.each:
                sent, messages, _ = job.messages(fields, block)
                _store(job, outputs, fields, block, job.rows(fields, block, sent, messages))
        ctx.run = Replay(job, random, drew=not random.is_now())
        tensors = tuple(output.tensor for output in outputs)
        ctx.mark_non_differentiable(*(t for t in tensors if not t.is_floating_point()))
        return tensors

    @staticmethod
    @untraced
    def backward(ctx: Any, *cotangents: Any) -> Any:
        values, needed = ctx.saved_tensors, ctx.needs_input_grad[1:]
        given = [i for i, cotangent in enumerate(cotangents) if cotangent is not None]
        slots = [Slot("value", i) for i in range(len(values))]
        slots += [Slot("result", i) for i in given]
        of_results = tuple((i, len(values) + place) for place, i in enumerate(given))
        order = Order(ctx.run, tuple(slots), (of_results,), _true(needed))
        return None, *order.spread(len(values), [*values, *(cotangents[i] for i in given)])


def _store(job: Job, outputs: list[Any], fields: BlockFields, block: RowBlock, made: Any) -> None:
    """Copy a block's results to their rows; the first block says how many results there are."""
    if not outputs:
        job.bounded.result = numbered(made)
        for leaf in leaves_of(made):
            outputs.append(fields.whole(_extent(job, isinstance(leaf, PerEdge)), plain(leaf)))
    for output, leaf in zip(outputs, leaves_of(made), strict=True):
        output.put(fields.place(block, isinstance(leaf, PerEdge)), plain(leaf))


def _extent(job: Job, on_edges: bool) -> int:
    graph = job.graph
    return graph.num_edges if on_edges else graph.num_dst


def _true(flags: Sequence[bool]) -> tuple[int, ...]:
    return tuple(i for i, flag in enumerate(flags) if flag)


@dataclass(frozen=True)
class Replay:
    """A call to run again: what it drew random numbers from, and whether it drew some."""

    job: Job
    random: RandomState
    drew: bool


@dataclass(frozen=True)
class Slot:
    """How blocks see a tensor: as the value of that number (`values` of a call are its fields, then
    its other tensors), or as the result of that number."""

    kind: str
    number: int


@dataclass(frozen=True)
class Order:
    """A derivative of a call. `slots` say how blocks see its tensors: values first, then
    cotangents. `pairs` has, for each order up to its own, what is multiplied with which cotangent:
    results, then tensors that a gradient is of, by number. It is the gradient of the tensors
    `wanted`."""

    run: Replay
    slots: tuple[Slot, ...]
    pairs: tuple[tuple[tuple[int, int], ...], ...]
    wanted: tuple[int, ...]

    def spread(self, count: int, tensors: Sequence[torch.Tensor]) -> list[Any]:
        """The gradients of the first `count` tensors, None where none is wanted."""
        found: list[Any] = [None] * count
        if not self.wanted or not self.pairs[-1]:
            return found
        for i, gradient in zip(self.wanted, _Derivative.apply(self, *tensors), strict=True):
            found[i] = gradient
        return found

    def computed(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """The gradients, block by block."""
        job = self.run.job
        job.graph.require_unchanged(job.token)
        with job.budgets(), self.run.random.replayed(), torch.enable_grad():
            return self._first(tensors) if len(self.pairs) == 1 else self._higher(tensors)

    def _first(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        job = self.run.job
        count = len(job.names) + len(job.others)
        values, cotangents = tensors[:count], {i: tensors[at] for i, at in self.pairs[0]}
        fields = job.fields(values[: len(job.names)])
        results = len(leaves_of(job.bounded.result))
        with job.running(fields, job.blocks):
            gradients = Gradients(job, fields, values, [i in self.wanted for i in range(count)])
            for block in job.blocks.each:
                gradients.add(block, [cotangents.get(i) for i in range(results)])
            found = gradients.found()
        return [g for g in found if g is not None]

    def _higher(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        job = self.run.job
        fields = job.fields(tensors[: len(job.names)])
        blocks = job.blocks_of_order(len(self.pairs), fields, self.run.drew)
        with job.running(fields, blocks):
            sums = [self._sum(fields, i, tensors[i]) for i in self.wanted]
            for block in blocks.each:
                parts = InBlock(self, fields, block, tensors).gradients()
                for total, found in zip(sums, parts, strict=True):
                    total.add(found)
            return [
                total.result(tensors[i].dtype) for i, total in zip(self.wanted, sums, strict=True)
            ]

    def _sum(self, fields: BlockFields, number: int, tensor: torch.Tensor) -> "Sum":
        slot, job = self.slots[number], self.run.job
        if slot.kind == "result":
            assert job.bounded.sizes is not None
            on_edges, _ = job.bounded.sizes.results[slot.number]
            return Placed(fields.whole(_extent(job, on_edges), tensor[:0]), tensor.device)
        if slot.number < len(job.names):
            return Added(fields.total(tensor))
        return Summed(torch.zeros_like(tensor, dtype=wide(tensor.dtype)))

    def after(self, given: Sequence[int], needed: Sequence[bool]) -> "Order":
        """The derivative of those of its gradients that have cotangents, which come after its
        tensors."""
        of = [self.wanted[i] for i in given]
        pairs = tuple((number, len(self.slots) + i) for i, number in enumerate(of))
        slots = (*self.slots, *(self.slots[number] for number in of))
        return Order(self.run, slots, (*self.pairs, pairs), _true(needed))


class _Derivative(torch.autograd.Function):
    """The gradients that an order wants, of its tensors."""

    @staticmethod
    def forward(ctx: Any, order: Order, *tensors: torch.Tensor) -> Any:
        ctx.order = order
        ctx.save_for_backward(*tensors)
        ctx.set_materialize_grads(False)
        return tuple(order.computed(tensors))

    @staticmethod
    @untraced
    def backward(ctx: Any, *cotangents: Any) -> Any:
        tensors, given = ctx.saved_tensors, _true([c is not None for c in cotangents])
        order = ctx.order.after(given, ctx.needs_input_grad[1:])
        return None, *order.spread(len(tensors), [*tensors, *(cotangents[i] for i in given)])


@dataclass(frozen=True)
class Leaf:
    """What a block sees of a tensor, and where that belongs."""

    value: torch.Tensor
    place: Any = None


@dataclass(frozen=True)
class InBlock:
    """A derivative within one block."""

    order: Order
    fields: BlockFields
    block: RowBlock
    tensors: Sequence[torch.Tensor]

    def gradients(self) -> "list[list[tuple[Leaf, torch.Tensor | None]]]":
        """For each tensor that a gradient is wanted of, what it is of which part of the tensor."""
        order, job = self.order, self.order.run.job
        self.fields.reads = []
        sent, messages, _ = job.messages(self.fields, self.block)
        results = leaves_of(job.rows(self.fields, self.block, sent, messages))
        places = [self.fields.place(self.block, isinstance(r, PerEdge)) for r in results]
        leaves = [list(self._leaves(number, places)) for number in range(len(self.tensors))]
        pairs = [(plain(results[i]), leaves[number][0].value) for i, number in order.pairs[0]]
        for stage in order.pairs[1:]:
            of = [leaf.value for number, _ in stage for leaf in leaves[number]]
            by = [leaf.value for _, number in stage for leaf in leaves[number]]
            pairs = list(zip(_slopes(pairs, of, create_graph=True), by, strict=True))
        wanted = [leaf.value for i in order.wanted for leaf in leaves[i]]
        found = iter(_slopes(pairs, wanted))
        return [[(leaf, next(found)) for leaf in leaves[i]] for i in order.wanted]

    def _leaves(self, number: int, places: Sequence[Any]) -> Iterator[Leaf]:
        """The parts of a tensor that the block sees."""
        slot, tensor, job = self.order.slots[number], self.tensors[number], self.order.run.job
        is_value = number < len(job.names) + len(job.others)
        if slot.kind == "result":
            place = places[slot.number]
            yield Leaf(self.fields.part_of(tensor, place).requires_grad_(), place)
        elif slot.number >= len(job.names):
            yield Leaf(tensor if is_value else tensor.detach().requires_grad_())
        else:
            for (*name, numbers), value in self.fields.reads or ():
                if tuple(name) == job.names[slot.number]:
                    part = value if is_value else self.fields.rows_at(tensor, numbers)
                    yield Leaf(part.requires_grad_(), numbers)


def _slopes(
    pairs: Sequence[tuple[torch.Tensor | None, torch.Tensor]], of: Sequence[torch.Tensor],
    create_graph: bool = False,
) -> Sequence[torch.Tensor | None]:  # fmt: skip
    """The gradients of a sum of products; factors that there are not, or that nothing moves, add
    nothing to it."""
    moving = [
        (value, factor) for value, factor in pairs if value is not None and value.requires_grad
    ]
    if not moving or not of:
        return [None] * len(of)
    values, factors = zip(*moving, strict=True)
    return torch.autograd.grad(values, of, factors, create_graph=create_graph, allow_unused=True)


@dataclass(frozen=True)
class Added:
    """The gradient of a tensor whose rows blocks read."""

    total: Any

    def add(self, found: Sequence[tuple[Leaf, torch.Tensor | None]]) -> None:
        for leaf, part in found:
            if part is not None:
                self.total.add(leaf.place, part)

    def result(self, dtype: torch.dtype) -> torch.Tensor:
        result: torch.Tensor = self.total.result(dtype)
        return result


@dataclass(frozen=True)
class Placed:
    """That of a tensor of which each block sees its own rows."""

    whole: Any
    device: torch.device

    def add(self, found: Sequence[tuple[Leaf, torch.Tensor | None]]) -> None:
        ((leaf, part),) = found
        self.whole.put(leaf.place, torch.zeros_like(leaf.value) if part is None else part)

    def result(self, dtype: torch.dtype) -> torch.Tensor:
        result: torch.Tensor = self.whole.tensor
        return result.to(self.device)


@dataclass(frozen=True)
class Summed:
    """That of a tensor that each block sees whole."""

    tensor: torch.Tensor

    def add(self, found: Sequence[tuple[Leaf, torch.Tensor | None]]) -> None:
        for _, part in found:
            if part is not None:
                self.tensor.add_(part)

    def result(self, dtype: torch.dtype) -> torch.Tensor:
        return self.tensor.to(dtype)


Sum = Added | Placed | Summed
