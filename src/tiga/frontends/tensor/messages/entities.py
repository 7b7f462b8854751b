"""From whole-tensor expressions over a made-up number of entities to values per entity.

`edge` and `node` run once on tensors whose first axis stands for all edges (or nodes), as users
write them. Each op of what they build keeps that axis first; here it is taken away, and becomes
the space of the value.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tiga.errors import InvalidValue, Unfusable
from tiga.frontends.tensor.lazy import MADE_UP, here
from tiga.ops.align import expand_to
from tiga.ops.contract import contract
from tiga.ops.feature import (
    broadcast,
    concat,
    feature_max,
    feature_min,
    feature_sum,
    permute,
    reshape,
)
from tiga.ops.leaf import constant
from tiga.ops.message import spread
from tiga.ops.pointwise import mul
from tiga.ops.tensor_reduce import Sum
from tiga.ops.tensor_scan import doubled_product, halved_product
from tiga.trace.node import Node, topological
from tiga.trace.origin import Origin
from tiga.types import GLOBAL, Space

EDGES, NODES = MADE_UP


def require_no_extent(number: Any) -> None:
    """Refuse a number that was made of the made-up number of entities, as far as that shows.

    Raises:
        InvalidValue: it is a multiple of that.
    """
    if not number or isinstance(number, complex) or (number % EDGES and number % NODES):
        return
    raise InvalidValue(
        f"{here()}: `edge` or `node` reads how many edges (or nodes) there are, in a shape or a "
        f"size: it computes with {number}. One program serves every graph; pass the number as a "
        f"parameter of the call, `kernel(graph=..., n=graph.num_edges)`."
    )


@dataclass
class Entities:
    """Values per entity of one space by the whole-tensor nodes that stand for all of them.

    `extent` is the made-up number of entities; `leaf` turns given values into inputs.
    """

    space: Space
    extent: int
    leaf: Callable[[Node], Node]
    values: dict[Node, Node] = field(default_factory=dict)

    def value(self, node: Node) -> Node:
        """The value per entity (or the same for all) of a whole-tensor node."""
        for one in topological([node]):
            if one not in self.values:
                self.values[one] = self._convert(one)
        return self.values[node]

    def each(self, node: Node) -> Node:
        """The value per entity, spread if it is the same for all."""
        value = self.value(node)
        return expand_to(value, value.type.shape, self.space)

    def _moves(self, node: Node) -> bool:
        return self.values[node].type.space == self.space

    def _convert(self, node: Node) -> Node:
        if node.cell is not None and node.op.origin is not Origin.NUMBER:
            return self.leaf(node)
        if not node.inputs:
            return self._constant(node)
        if not any(self._moves(child) for child in node.inputs):
            return self._shared(node)
        rule = _RULES.get(node.op.name)
        if rule is not None:
            self._require_within(node)
            return rule(self, node)
        if node.op.pointwise:
            parts = [self._part(child) for child in node.inputs]
            return node.op(*parts, where=node.where)
        raise self._refused(node, f"{node.op.name} cannot be fused into a walk over edges")

    def _require_within(self, node: Node) -> None:
        """Refuse an op along the axis that counts entities."""
        if 0 not in node.op.axes_of_fields:
            return
        if node.op.carries:
            raise self._refused(node, "it runs along the entities")
        raise self._crossed(node)

    def _refused(self, node: Node, why: str) -> Exception:
        return Unfusable(f"{node.where}: {why}")

    def _crossed(self, node: Node) -> Exception:
        return InvalidValue(
            f"{node.where}: {node.op.name} reads or moves the first axis, which counts edges or "
            "nodes; work on the other axes."
        )

    def _constant(self, node: Node) -> Node:
        """A number: the same for every entity, so the entity axis falls away."""
        shape = node.type.shape
        if node.op.origin is not Origin.NUMBER or not shape or shape[0] != self.extent:
            return node.op()
        inner = constant(node.op.value, node.type.with_shape(shape[1:]))
        return spread(inner, self.space)

    def _shared(self, node: Node) -> Node:
        """An op on values that are the same for all entities."""
        inputs = [self.values[child] for child in node.inputs]
        shape = node.type.shape
        if node.op.broadcasts and shape[:1] == (self.extent,):
            (x,) = inputs
            inner = x if len(x.type.shape) < len(shape) else reshape(x, x.type.shape[1:])
            return spread(broadcast(inner, shape[1:]), self.space)
        if isinstance(node.op, Sum):
            return _sums(inputs[0], node.op.axes)
        if node.op.pointwise or node.op.moves:
            return node.op(*inputs, where=node.where)
        return self.leaf(node)  # computed before the walk, by the program that it is part of

    def _part(self, node: Node) -> Node:
        """An operand of a pointwise op, per entity."""
        value = self.values[node]
        if value.type.space == self.space:
            return value
        shape = value.type.shape
        if shape and shape[0] == self.extent:
            raise self._refused(node, "a value that differs between entities must be a field")
        return spread(reshape(value, shape[1:]) if shape else value, self.space)


def _broadcast(entities: Entities, node: Node) -> Node:
    (x,) = node.inputs
    lead = len(node.op.to) - len(x.type.shape)
    if lead or node.op.to[0] != entities.extent:
        raise entities._crossed(node)
    return broadcast(entities.values[x], node.op.to[1:])


def _reshape(entities: Entities, node: Node) -> Node:
    if not node.op.to or node.op.to[0] != entities.extent:
        raise entities._crossed(node)
    return reshape(entities.values[node.inputs[0]], node.op.to[1:])


def _permute(entities: Entities, node: Node) -> Node:
    if node.op.axes[0] != 0:
        raise entities._crossed(node)
    return permute(entities.values[node.inputs[0]], tuple(a - 1 for a in node.op.axes[1:]))


def _along(entities: Entities, node: Node) -> Node:
    """An op of entities as well, whose axes are one fewer there."""
    made: Node = node.op.shifted(-1)(entities.values[node.inputs[0]])
    return made


def _join(entities: Entities, node: Node) -> Node:
    return concat(node.op.axis - 1, *(entities._part(child) for child in node.inputs))


def _sums(x: Node, axes: tuple[int, ...], step: Callable[[Node, int], Node] = feature_sum) -> Node:
    for axis in reversed(axes):
        x = step(x, axis)
    return x


def _reduction(step: Callable[[Node, int], Node]) -> Callable[[Entities, Node], Node]:
    def rule(entities: Entities, node: Node) -> Node:
        axes = tuple(a - 1 for a in node.op.axes)
        return _sums(entities.values[node.inputs[0]], axes, step)

    return rule


def _matmul(entities: Entities, node: Node) -> Node:
    a, b = (entities.values[child] for child in node.inputs)
    if b.type.space == GLOBAL and len(b.type.shape) == 2 and len(a.type.shape) == 1:
        return contract(a, b)
    if len(a.type.shape) != 2 or len(b.type.shape) != 2:
        raise entities._refused(node, "this matrix product has no rule")
    a, b = (expand_to(x, x.type.shape, entities.space) for x in (a, b))
    (n, k), m = a.type.shape, b.type.shape[1]
    left = broadcast(reshape(a, (n, k, 1)), (n, k, m))
    right = broadcast(reshape(b, (1, k, m)), (n, k, m))
    return feature_sum(mul(left, right), 1)


def _product(x: Node, axis: int) -> Node:
    shape = (*x.type.shape[:axis], *x.type.shape[axis + 1 :])
    return reshape(halved_product(x, axis, concat), shape)


def _products(entities: Entities, node: Node) -> Node:
    x = entities.values[node.inputs[0]]
    return doubled_product(x, node.op.axis - 1, node.op.reverse, concat)


_RULES: dict[str, Callable[[Entities, Node], Node]] = {
    "broadcast": _broadcast, "reshape": _reshape, "permute": _permute, "slice": _along,
    "unslice": _along, "join": _join, "sum_axes": _reduction(feature_sum),
    "max_axes": _reduction(feature_max), "min_axes": _reduction(feature_min),
    "prod_axes": _reduction(_product), "cumprod": _products, "matmul": _matmul,
}  # fmt: skip
