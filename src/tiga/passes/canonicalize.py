"""Canonical form: sums over edges taken by rows, signs outside sums.

Derived ops stay as they are: their own derivatives hold where those of what they expand to do not,
such as that of the exclusive product at exact zeros.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from tiga.ops.contract import contract, is_contract
from tiga.ops.message import is_edge_sum, reduce, reduce_all
from tiga.ops.pointwise import Neg, cast, neg
from tiga.passes.base import Pass
from tiga.trace.node import Node
from tiga.trace.origin import Origin
from tiga.trace.program import Program
from tiga.types import Relation, Space

WIDENING = 4
"""Summing before a product may widen the summed messages by this factor."""


def _rule(relations: Mapping[Space, Relation], node: Node, inputs: tuple[Node, ...]) -> Node | None:
    if node.op.origin is Origin.TOTAL and inputs[0].type.space in relations:
        # By rows first: row sums are fixed whatever the threads, and need no edge array.
        relation = relations[inputs[0].type.space]
        return reduce_all(_sum_rows(reduce(relation, "dst", "sum", inputs[0])))
    if is_edge_sum(node):
        return _sum_rows(node.op(*inputs))
    return None


def _sum_rows(total: Node) -> Node:
    """A sum with what commutes with it taken out.

    Negation: the same bits, and one sum for both signs. A product with a matrix: one product per
    row instead of one per edge, unless that makes the summed messages much wider.
    """
    if not is_edge_sum(total):
        return total
    (message,) = total.inputs
    if isinstance(message.op, Neg):
        return neg(total.op(message.inputs[0]))
    wide = message.inputs[0] if message.op.converts else message
    if not is_contract(wide):
        return total
    x, matrix = wide.inputs
    if x.type.shape[-1] > WIDENING * matrix.type.shape[1]:
        return total
    dtype = message.type.dtype
    return contract(total.op(cast(x, dtype)), cast(matrix, dtype))


@dataclass(frozen=True)
class Canonicalize(Pass, name="gf-canonicalize"):
    """Sum over edges by rows, take signs out of sums."""

    def __call__(self, form: Program) -> Program:
        rule = partial(_rule, form.edges)
        return form.rewritten(rule)
