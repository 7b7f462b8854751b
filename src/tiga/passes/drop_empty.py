"""Drop empty: values without elements, and what is made from such, are constants.

Kernels know no values without elements. A field of width 0 is one, and so is the gradient of one;
a sum over no features is 0, and what joins features goes without those that are none.
"""

from dataclasses import dataclass

from tiga.ops.leaf import constant
from tiga.passes.base import Pass
from tiga.trace.node import Node
from tiga.trace.program import Program


def _rule(node: Node, inputs: tuple[Node, ...]) -> Node | None:
    if not inputs or all(n.type.size for n in (node, *inputs)):
        return None
    if node.type.size and node.op.concatenates:
        return node.op(*(n for n in inputs if n.type.size), where=node.where)
    # A table without rows is the one empty operand that is not summed over.
    return None if node.type.size and node.op.by_index else constant(0, node.type)


@dataclass(frozen=True)
class DropEmpty(Pass, name="gf-drop-empty"):
    """Make values without elements constants: there is nothing to compute."""

    def __call__(self, form: Program) -> Program:
        return form.rewritten(_rule)
