"""Inverses: edges multiply by the inverse of what a node has, and do not divide by it.

A quotient that is exact takes a GPU ten times as long as a product, and an edge has a turn for each
lane that holds it; the node's inverse is found once. That rounds twice where a quotient does once,
in the same way in every walk.
"""

from dataclasses import dataclass

from tiga.ops.leaf import constant
from tiga.ops.message import gather
from tiga.ops.pointwise import Div, div, mul
from tiga.passes.base import Pass
from tiga.trace.node import Node
from tiga.trace.origin import Origin
from tiga.trace.program import Program


def _rule(node: Node, inputs: tuple[Node, ...]) -> Node | None:
    on_edges = node.type.on_edges and node.type.dtype.kind == "f"
    if not on_edges or not isinstance(node.op, Div):
        return None
    x, y = inputs
    if y.op.origin is not Origin.END or node.type.dtype.itemsize < 4:
        return None
    below = y.inputs[0]
    inverse = div(constant(1, below.type), below)
    return mul(x, gather(y.op.relation, y.op.side, inverse))


@dataclass(frozen=True)
class Inverses(Pass, name="gf-inverses"):
    """Multiply edge values by the inverses of node values: GPUs divide slowly.

    Equal up to rounding.
    """

    def __call__(self, form: Program) -> Program:
        return form.rewritten(_rule)
