"""`vmap`: a function of one example as a function of many, by a rule per kind of op."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tiga.errors import InvalidType, InvalidValue
from tiga.frontends.tensor.arguments import normalize_axis
from tiga.frontends.tensor.build import result
from tiga.frontends.tensor.core import Tensor
from tiga.frontends.tensor.functions.views import moveaxis
from tiga.frontends.tensor.lazy import here
from tiga.frontends.tensor.storage import helper, standing_for
from tiga.ops.feature import broadcast, permute, reshape
from tiga.ops.leaf import constant
from tiga.ops.pointwise import add, lt, mul, where
from tiga.ops.tensor_index import IndexAdd, IndexTake
from tiga.ops.tensor_views import join, slice_
from tiga.trace.node import Node, topological


@dataclass(frozen=True)
class Batch:
    """How many examples there are, and which values differ between them (axis 0 counts them)."""

    count: int
    values: dict[Node, Node]

    def is_batched(self, node: Node) -> bool:
        return self.values[node] is not node

    def whole(self, node: Node) -> Node:
        """The value of all examples, repeated if it is the same for all."""
        value = self.values[node]
        if self.is_batched(node):
            return value
        shape = node.type.shape
        return broadcast(reshape(value, (1, *shape)), (self.count, *shape))


def vmap(function: Callable[..., Any], in_axes: Any = 0, out_axes: int = 0) -> Callable[..., Any]:
    """The function applied to every example along an axis, as one program.

    Args:
        function: of tensors, to a tensor or a tuple of them; it must not look at values.
        in_axes: the axis of the examples per argument (or for all), None: the same for all.
        out_axes: where the examples are in the results.

    Raises:
        InvalidValue: arguments of different numbers of examples, or an op without a rule.

    Example:
        >>> import tiga as tg
        >>> dot = tg.autograd.vmap(lambda a, b: (a * b).sum())
        >>> dot(tg.ones((3, 2)), tg.ones((3, 2))).tolist()
        [2.0, 2.0, 2.0]
    """
    if not callable(function):
        raise InvalidType(f"vmap expected a function, got {function!r} ({here()}).")

    def call(*args: Tensor) -> Any:
        axes = list(in_axes) if isinstance(in_axes, (tuple, list)) else [in_axes] * len(args)
        if len(axes) != len(args):
            raise InvalidValue(f"in_axes={in_axes!r} for {len(args)} arguments ({here()}).")
        moved = [_examples_first(a, axis) for a, axis in zip(args, axes, strict=True)]
        counts = {m.shape[0] for m, axis in zip(moved, axes, strict=True) if axis is not None}
        if len(counts) != 1:
            raise InvalidValue(f"vmap: arguments of {sorted(counts)} examples ({here()}).")
        count = counts.pop()
        inner = [m if axis is None else _example(m) for m, axis in zip(moved, axes, strict=True)]
        value = function(*inner)
        outputs = _outputs(value)
        given: dict[Node, Node] = {
            i._node: m._node for i, m, axis in zip(inner, moved, axes, strict=True)
            if axis is not None
        }  # fmt: skip
        nodes = batched([o._node for o in outputs], given, count)
        made = [moveaxis(result(n, *moved, *outputs), 0, out_axes) for n in nodes]
        return tuple(made) if isinstance(value, (tuple, list)) else made[0]

    return call


def _outputs(value: Any) -> list[Tensor]:
    outputs = list(value) if isinstance(value, (tuple, list)) else [value]
    wrong = [output for output in outputs if not isinstance(output, Tensor)]
    if wrong:
        raise InvalidType(f"vmap expected a function to tensors, got {wrong[0]!r} ({here()}).")
    return outputs


def _examples_first(x: Any, axis: int | None) -> Tensor:
    if not isinstance(x, Tensor):
        raise InvalidType(f"vmap expected tensors, got {type(x).__name__} ({here()}).")
    return x if axis is None else moveaxis(x, normalize_axis(axis, x.ndim), 0)


def _example(x: Tensor) -> Tensor:
    """A tensor that stands for one of the examples."""
    return standing_for(x._node.type.with_shape(x.shape[1:]), "vmap", x.requires_grad)


def batched(outputs: Sequence[Node], given: dict[Node, Node], count: int) -> list[Node]:
    """`outputs` for all examples, along a leading axis; `given` are the batched inputs."""
    batch = Batch(count, dict(given))
    for node in topological(outputs):
        if node in batch.values:
            continue
        if any(batch.is_batched(child) for child in node.inputs):
            batch.values[node] = _rule(node, batch)
        else:
            batch.values[node] = node
    return [batch.whole(node) for node in outputs]


def _rule(node: Node, batch: Batch) -> Node:
    op = node.op
    if op.defers:
        return _one_by_one(node, batch)
    rule = _RULES.get(op.name)
    if rule is not None:
        return rule(node, batch)
    if not op.batches and not op.axis_fields:
        raise InvalidValue(f"vmap has no rule for {op.name} ({here()}).")
    made: Node = (op if op.batches else op.shifted(1))(*map(batch.whole, node.inputs))
    return made


def _broadcast(node: Node, batch: Batch) -> Node:
    (x,) = node.inputs
    lead = len(node.op.to) - len(x.type.shape)
    wide = reshape(batch.whole(x), (batch.count, *(1,) * lead, *x.type.shape))
    return broadcast(wide, (batch.count, *node.op.to))


def _reshape(node: Node, batch: Batch) -> Node:
    return reshape(batch.whole(node.inputs[0]), (batch.count, *node.op.to))


def _permute(node: Node, batch: Batch) -> Node:
    return permute(batch.whole(node.inputs[0]), (0, *(axis + 1 for axis in node.op.axes)))


def _one_by_one(node: Node, batch: Batch) -> Node:
    """A call on a graph, say, for one example after another: it has no axis for examples."""
    shape = node.type.shape

    def example(of: Node, number: int) -> Node:
        if not batch.is_batched(of):
            return of
        return reshape(slice_(batch.values[of], 0, number, 1), of.type.shape)

    made = [node.op(*(example(child, i) for child in node.inputs)) for i in range(batch.count)]
    if not made:
        return constant(0, node.type.with_shape((0, *shape)))
    return join(0, *(reshape(one, (1, *shape)) for one in made))


def _numbered(index: Node, extent: int, batch: Batch) -> Node:
    """Positions of every example in the examples laid end to end."""
    shape = index.type.shape
    negative = lt(index, constant(0, index.type))
    index = where(negative, add(index, constant(extent, index.type)), index)
    first: Node = helper(np.arange(batch.count))._node
    first = broadcast(reshape(first, (batch.count, *(1,) * (len(shape) - 1))), shape)
    return add(index, mul(first, constant(extent, index.type)))


def _index_take(node: Node, batch: Batch) -> Node:
    x, index = node.inputs
    axis, extent = node.op.axis, x.type.shape[node.op.axis]
    if not batch.is_batched(index):
        return IndexTake(axis + 1)(batch.values[x], index)
    if not batch.is_batched(x):
        taken = IndexTake(axis)(x, batch.values[index])
        rank = len(taken.type.shape)
        return permute(taken, (axis, *(a for a in range(rank) if a != axis)))
    rank, width = len(x.type.shape), len(index.type.shape)
    others = [a + 1 for a in range(rank) if a != axis]
    moved = permute(batch.values[x], (0, axis + 1, *others))
    flat = reshape(moved, (batch.count * extent, *moved.type.shape[2:]))
    taken = IndexTake(0)(flat, _numbered(batch.values[index], extent, batch))
    before = range(1 + width, 1 + width + axis)
    after = range(1 + width + axis, width + rank)
    return permute(taken, (0, *before, *range(1, 1 + width), *after))


def _index_add(node: Node, batch: Batch) -> Node:
    values, index = node.inputs
    axis, extent = node.op.axis, node.op.extent
    if not batch.is_batched(index):
        return IndexAdd(axis + 1, extent)(batch.values[values], index)
    rank, width = len(values.type.shape), len(index.type.shape)
    places = [axis + 1 + i for i in range(width)]
    others = [a + 1 for a in range(rank) if a + 1 not in places]
    moved = permute(batch.whole(values), (0, *places, *others))
    total = IndexAdd(0, batch.count * extent)(moved, _numbered(batch.values[index], extent, batch))
    parted = reshape(total, (batch.count, extent, *total.type.shape[1:]))
    order = (0, *range(2, 2 + axis), 1, *range(2 + axis, len(parted.type.shape)))
    return permute(parted, order)


_RULES: dict[str, Callable[[Node, Batch], Node]] = {
    "broadcast": _broadcast, "reshape": _reshape, "permute": _permute,
    "index_take": _index_take, "index_add": _index_add,
}  # fmt: skip
"""Ops that a further axis changes in another way than their axes."""
