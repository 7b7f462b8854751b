"""Sink: reshaped values of nodes are read as the arrays they are, and reshaped at the edges."""

from dataclasses import dataclass

from tiga.ops.feature import reshape
from tiga.ops.message import gather
from tiga.passes.base import Pass
from tiga.trace.node import Node
from tiga.trace.origin import Origin
from tiga.trace.program import Program


def _rule(node: Node, inputs: tuple[Node, ...]) -> Node | None:
    if node.op.origin is not Origin.END:
        return None
    (source,) = inputs
    if not source.op.reshapes or not source.inputs[0].inputs:
        return None
    below = gather(node.op.relation, node.op.side, source.inputs[0])
    return reshape(below, node.type.shape)


@dataclass(frozen=True)
class Sink(Pass, name="gf-sink"):
    """Reshape values of nodes at the edges that read them, so that they are stored once."""

    def __call__(self, form: Program) -> Program:
        return form.rewritten(_rule)
