"""Programs of expressions: equal parts shared, values in memory as inputs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from tiga.frontends.tensor.lazy import LazyNode, Leaf
from tiga.ops.base import Op
from tiga.ops.feature import FeatureSum, Reshape, reshape
from tiga.ops.leaf import Constant, Input
from tiga.ops.tensor_reduce import Sum, kept_shape
from tiga.trace.node import Node, intern
from tiga.trace.program import Program
from tiga.types import Shape


@dataclass(frozen=True)
class BoundProgram:
    """A program and the nodes whose values are its inputs, in order."""

    program: Program
    leaves: tuple[LazyNode, ...]

    @property
    def arrays(self) -> list[np.ndarray]:
        """The inputs' present values."""
        return [leaf.cell.array for leaf in self.leaves]  # type: ignore[union-attr]


def program_of(
    roots: Sequence[Node], cut: bool = True, instead: Mapping[int, Op] = MappingProxyType({})
) -> BoundProgram:
    """The program of expressions. Values that are in memory are its inputs (but for `cut=False`,
    where only given ones are); the roots are computed in any case. Nodes whose ids are in `instead`
    have other ops in the program."""
    done: dict[int, Node] = {}
    leaves: list[LazyNode] = []
    tops = {id(root) for root in roots}
    for node in _order(roots, tops, cut):
        if id(node) in instead:
            op = instead[id(node)]
            done[id(node)] = op(*(done[id(child)] for child in node.inputs), where=node.where)
            continue
        done[id(node)] = _rebuilt(node, done, leaves, id(node) in tops, cut)
    outputs = tuple(done[id(root)] for root in roots)
    inputs = tuple(done[id(leaf)] for leaf in leaves)
    return BoundProgram(Program(inputs, outputs), tuple(leaves))


def _is_input(node: Node, top: bool, cut: bool) -> bool:
    if isinstance(node.op, Constant) or node.cell is None:
        return False
    return not node.inputs or (cut and not top)


def _order(roots: Sequence[Node], tops: set[int], cut: bool) -> list[Node]:
    order: list[Node] = []
    seen: set[int] = set()
    stack = [(root, False) for root in reversed(roots)]
    while stack:
        node, ready = stack.pop()
        if ready:
            order.append(node)
            continue
        if id(node) in seen:
            continue
        seen.add(id(node))
        stack.append((node, True))
        if not _is_input(node, id(node) in tops, cut):
            stack.extend((child, False) for child in reversed(node.inputs) if id(child) not in seen)
    return order


def _rebuilt(
    node: Node, done: dict[int, Node], leaves: list[LazyNode], top: bool, cut: bool
) -> Node:
    if _is_input(node, top, cut):
        assert isinstance(node, LazyNode)
        leaves.append(node)
        op = Input(f"x{len(leaves) - 1}", node.type)
        return intern(op, (), node.type, node.where)
    if isinstance(node.op, Leaf):
        node.op.reference()  # raises: it stands for values that are not there
    inputs = tuple(done[id(child)] for child in node.inputs)
    if isinstance(node.op, FeatureSum):
        return _sum(inputs[0], (node.op.axis,), node.where)
    if isinstance(node.op, Sum):
        return _sum(inputs[0], node.op.axes, node.where)
    return node.op(*inputs, where=node.where)


def _sum(x: Node, axes: Shape, where: str | None) -> Node:
    """The sum over axes, joined with a sum right below it."""
    if isinstance(x.op, Sum):
        (inner,) = x.inputs
        left = [a for a in range(len(inner.type.shape)) if a not in x.op.axes]
        joined = tuple(sorted((*x.op.axes, *(left[a] for a in axes))))
        return Sum(joined)(inner, where=where)
    if isinstance(x.op, Reshape) and isinstance(x.inputs[0].op, Sum):
        (below,) = x.inputs
        (inner,) = below.inputs
        kept = kept_shape(inner.type.shape, below.op.axes)
        if x.type.shape == kept:
            joined = tuple(sorted({*below.op.axes, *axes}))
            shape = tuple(e for a, e in enumerate(kept) if a not in axes)
            return reshape(Sum(joined)(inner, where=where), shape)
    return Sum(axes)(x, where=where)
