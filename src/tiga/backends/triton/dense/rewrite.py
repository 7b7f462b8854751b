"""Whole-tensor programs in the form that GPU kernels take: reductions along the last axes."""

from collections.abc import Callable

from tiga.ops.base import Op
from tiga.ops.feature import permute, reshape
from tiga.ops.pointwise import cast
from tiga.ops.tensor_reduce import Extremum, Prod, Quantifier, Reduction
from tiga.ops.tensor_scan import (
    CumProd,
    Recurrence,
    doubled_product,
    doubled_recurrence,
    halved_product,
)
from tiga.passes.tensor_fusable import prefix, suffix
from tiga.trace.node import Node, rewrite
from tiga.trace.program import Program
from tiga.types import Shape, bool_, int8


def for_kernels(program: Program) -> Program:
    """An equal program whose reductions kernels compute: others go over moved axes, and truth
    values over whole numbers."""
    outputs = rewrite(program.outputs, _rule)
    return Program(program.inputs, tuple(outputs))


def _rule(node: Node, inputs: tuple[Node, ...]) -> Node | None:
    if not inputs or not inputs[0].type.size:
        return None
    if isinstance(node.op, Quantifier):
        kind = node.op.over_numbers
        whole = _reduced(kind(node.op.axes), cast(inputs[0], int8), node.where)
        return cast(whole, bool_)
    if type(node.op) in PRODUCTS:
        return PRODUCTS[type(node.op)](node, *inputs)
    if isinstance(node.op, Reduction):
        if isinstance(node.op, Extremum) and inputs[0].type.dtype == bool_:
            whole = _reduced(node.op, cast(inputs[0], int8), node.where)
            return cast(whole, bool_)
        return _reduced(node.op, inputs[0], node.where)
    return None


def _product(node: Node, x: Node) -> Node:
    return reshape(halved_product(x, node.op.axes[0]), node.type.shape)


PRODUCTS: dict[type[Op], Callable[..., Node]] = {
    Prod: _product,
    CumProd: lambda node, x: doubled_product(x, node.op.axis, node.op.reverse),
    Recurrence: lambda node, a, b: doubled_recurrence(a, b, node.op.axis, node.op.reverse),
}
"""What is made of products of parts here."""


def _reduced(op: Reduction, x: Node, where: str | None) -> Node:
    shape, axes = x.type.shape, op.axes
    ends = suffix(shape, axes) is not None or prefix(shape, axes) is not None
    if ends:
        return op(x, where=where)
    kept = [axis for axis in range(len(shape)) if axis not in axes]
    moved = permute(x, (*kept, *axes))
    return type(op)(_last(len(axes), len(shape)))(moved, where=where)


def _last(count: int, rank: int) -> Shape:
    return tuple(range(rank - count, rank))
