"""Derivatives of every order of calls in blocks, over a graph in a file.

What a derivative of order n is the slope of is, in each block, a sum of products: of results with
their cotangents for n = 1, else of the gradients of order n - 1 with *their* cotangents, which lie
where the gradients do. What was read of fields, of cotangents and of those of gradients gets its
part where it was read.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from tiga.frontends.tensor.arrays import Array, device_of, moved_to
from tiga.frontends.tensor.evaluate import value_of
from tiga.frontends.tensor.lazy import LARGE, Cell, LazyNode, user_place
from tiga.frontends.tensor.messages.block_rows import Place, added, node_of, stored
from tiga.frontends.tensor.messages.file_block import Block, Call, results, values_of
from tiga.frontends.tensor.messages.paged import computed_array
from tiga.frontends.trees import leaves_of
from tiga.ops.dense import OuterCall
from tiga.ops.pointwise import add
from tiga.ops.tensor_complex import conj
from tiga.relations.row_blocks import Rows
from tiga.trace.autodiff import vjp
from tiga.trace.node import Node
from tiga.types import Type


@dataclass(frozen=True)
class Leaf:
    """What a block sees of a tensor, and where that belongs; None for all of it."""

    node: Node
    place: Place | None


@dataclass(frozen=True)
class Slot:
    """How blocks see a tensor: as an operand of the call, by number, or as a result."""

    number: int
    is_result: bool = False
    on_edges: bool = False


@dataclass(frozen=True, eq=False)
class Order:
    """A derivative of a call. `slots` say how blocks see its tensors: operands first, then
    cotangents. `pairs` has, for each order up to its own, what is multiplied with which cotangent:
    results, then tensors that a gradient is of. It is the gradient of the tensors `wanted`."""

    call: Call
    slots: tuple[Slot, ...]
    pairs: tuple[tuple[tuple[int, int], ...], ...]
    wanted: tuple[int, ...]

    def nodes(self, tensors: Sequence[Node]) -> list[Node]:
        """The gradients, computed now, each where its tensor is."""
        arrays = [computed_array(node) for node in tensors]
        found: list[Node] = []
        for place, (i, array) in enumerate(zip(self.wanted, self.computed(arrays), strict=True)):
            op = BlockGradient(tensors[i].type, self, place)
            node = LazyNode(op, tuple(tensors), op.of, user_place(), 1, LARGE)
            there = device_of(arrays[i])
            node.cell = Cell(array if device_of(array) == there else moved_to(array, there))
            found.append(node)
        return found

    def computed(self, arrays: Sequence[Array]) -> list[Array]:
        """The gradients, block by block."""
        sums = [self._sum(i, arrays[i]) for i in self.wanted]
        with self.call.rows.graph.reading():
            for one in self.call.blocks:
                for total, parts in zip(sums, self._in_block(one, arrays), strict=True):
                    for place, part in parts:
                        total.add(place, part)
        return [total.result() for total in sums]

    def _sum(self, i: int, array: Array) -> "Sum":
        slot, rows = self.slots[i], self.call.rows
        dtype, shape = np.dtype(array.dtype), tuple(array.shape)
        if slot.is_result:
            return Placed(rows.whole(shape, dtype))
        if slot.number < len(self.call.names):
            wide = np.dtype(np.float32) if dtype.itemsize == 2 else dtype
            return Added(rows.zeros(shape, wide), dtype)
        return Summed(node_of(moved_to(np.zeros(shape, dtype), rows.device)))

    def _in_block(self, one: Rows, arrays: Sequence[Array]) -> list[list[tuple[Any, Any]]]:
        """For each wanted tensor, the gradients of its parts."""
        block = Block(self.call, one, arrays)
        results = [x._node for x in leaves_of(block.made())]
        leaves = [self._leaves(i, block, arrays[i]) for i in range(len(arrays))]
        pairs: list[tuple[Node | None, Node]] = [
            (results[k], leaves[at][0].node) for k, at in self.pairs[0]
        ]
        for stage in self.pairs[1:]:
            of = [leaf.node for i, _ in stage for leaf in leaves[i]]
            by = [leaf.node for _, i in stage for leaf in leaves[i]]
            pairs = list(zip(_slopes(pairs, of), by, strict=True))
        wanted = [leaf for i in self.wanted for leaf in leaves[i]]
        slopes = _slopes(pairs, [leaf.node for leaf in wanted])
        values = iter(values_of([node for node in slopes if node is not None]))
        parts = iter([None if node is None else next(values) for node in slopes])
        return [[(leaf.place, next(parts)) for leaf in leaves[i]] for i in self.wanted]

    def _leaves(self, i: int, block: Block, array: Array) -> list[Leaf]:
        """The parts of a tensor that a block sees."""
        slot, call = self.slots[i], self.call
        is_operand, fields = i < len(call.names) + len(call.others), len(call.names)
        if slot.is_result:
            place = block.place(slot.on_edges)
            return [Leaf(node_of(call.rows.taken(array, place)), place)]
        if slot.number >= fields:
            return [Leaf(call.others[slot.number - fields] if is_operand else node_of(array), None)]
        reads = [read for read in block.reads if read.operand == slot.number]
        if is_operand:
            return [Leaf(read.node, read.place) for read in reads]
        return [Leaf(node_of(call.rows.taken(array, read.place)), read.place) for read in reads]

    def after(self, i: int, wanted: tuple[int, ...]) -> "Order":
        """The derivative of the gradient of one of its tensors, whose cotangent comes last."""
        slots = (*self.slots, self.slots[i])
        pairs = (*self.pairs, ((i, len(self.slots)),))
        return Order(self.call, slots, pairs, wanted)

    def along(self, moving: tuple[int, ...]) -> "Order":
        """The derivative, by its last tensor, of its gradients times tangents of those that move,
        which come after its tensors."""
        at = len(self.slots)
        slots = (*self.slots, *(self.slots[i] for i in moving))
        pairs = (*self.pairs, tuple((i, at + k) for k, i in enumerate(moving)))
        return Order(self.call, slots, pairs, (at - 1,))

    def spread(self, count: int, tensors: Sequence[Node]) -> list[Node | None]:
        """The gradients of the first tensors, None where none is wanted."""
        found: list[Node | None] = [None] * count
        for i, node in zip(self.wanted, self.nodes(tensors) if self.wanted else (), strict=True):
            found[i] = node
        return found


def _slopes(pairs: Sequence[tuple[Node | None, Node]], of: Sequence[Node]) -> list[Node | None]:
    """The gradients of a sum of products; factors that there are not add nothing to it."""
    known = [(node, factor) for node, factor in pairs if node is not None]
    if not known or not of:
        return [None] * len(of)
    nodes, factors = zip(*known, strict=True)
    return vjp(nodes, factors, of, add, conj)


def _true(flags: Sequence[bool]) -> tuple[int, ...]:
    return tuple(i for i, flag in enumerate(flags) if flag)


@dataclass(frozen=True)
class InBlocks(OuterCall):
    """What is computed in blocks, of type `of`."""

    of: Type

    def infer(self, *types: Type) -> Type:
        return self.of

    def order(self, count: int, wanted: tuple[int, ...]) -> Order:
        """Its derivative by the `wanted` of so many operands, whose cotangent comes after them."""
        raise NotImplementedError

    def compute_on_gpu(self, arrays: Sequence[Any], room: Any) -> Any:
        """The value of operands on a GPU."""
        return self.compute(*arrays)

    def vjp(self, ct: Node, out: Node, *inputs: Node) -> Sequence[Node | None]:
        return self.vjp_of([x.type.dtype.is_differentiable for x in inputs], ct, out, *inputs)

    def vjp_of(
        self, wanted: Sequence[bool], ct: Node, out: Node, *inputs: Node
    ) -> Sequence[Node | None]:
        order = self.order(len(inputs), _true(wanted))
        return order.spread(len(inputs), [*inputs, ct])

    def jvp(self, tangents: Sequence[Node | None], out: Node, *inputs: Node) -> Sequence[Node]:
        """The derivative, by the cotangent, of the gradients times the tangents: gradients are
        linear in it, so it may be anything."""
        below, moving = self.order(len(inputs), ()), [t for t in tangents if t is not None]
        order = below.along(_true([t is not None for t in tangents]))
        zeros = np.zeros(out.type.shape, out.type.dtype.numpy)
        any_one = node_of(moved_to(zeros, device_of(computed_array(out))))
        return order.nodes([*inputs, any_one, *moving])


@dataclass(frozen=True)
class BlockCall(InBlocks):
    """Result number `index` of a call in blocks."""

    name: ClassVar[str] = "block_call"
    call: Call
    index: int
    on_edges: bool

    @property
    def form(self) -> tuple[Any, ...]:
        return self.name, id(self.call), self.index

    def compute(self, *arrays: Any) -> Any:
        return results(self.call, arrays).wholes[self.index]

    def order(self, count: int, wanted: tuple[int, ...]) -> Order:
        slots = (*map(Slot, range(count)), Slot(self.index, True, self.on_edges))
        return Order(self.call, slots, (((self.index, count),),), wanted)


@dataclass(frozen=True)
class BlockGradient(InBlocks):
    """Gradient number `place` of an order."""

    name: ClassVar[str] = "block_gradient"
    below: Order
    place: int

    @property
    def form(self) -> tuple[Any, ...]:
        return self.name, id(self.below), self.place

    def compute(self, *arrays: Any) -> Any:
        return self.below.computed(arrays)[self.place]

    def order(self, count: int, wanted: tuple[int, ...]) -> Order:
        return self.below.after(self.below.wanted[self.place], wanted)


@dataclass(frozen=True)
class Added:
    """The gradient of a tensor whose rows blocks read."""

    total: np.ndarray
    dtype: np.dtype

    def add(self, place: Any, part: Any) -> None:
        if part is not None:
            added(self.total, place, part)

    def result(self) -> Array:
        return self.total.astype(self.dtype, copy=False)


@dataclass(frozen=True)
class Placed:
    """That of a tensor of which each block sees its own rows."""

    whole: Array

    def add(self, place: Any, part: Any) -> None:
        if part is not None:
            stored(self.whole, place, part)

    def result(self) -> Array:
        return self.whole


@dataclass
class Summed:
    """That of a tensor that each block sees whole."""

    total: LazyNode

    def add(self, place: Any, part: Any) -> None:
        if part is not None:
            self.total = node_of(value_of(add(self.total, node_of(part))))

    def result(self) -> Array:
        return self.total.cell.array  # type: ignore[union-attr]


Sum = Added | Placed | Summed
