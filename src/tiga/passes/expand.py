"""Expand: ops with a definition in simpler ops give way to it."""

from dataclasses import dataclass

from tiga.passes.base import Pass
from tiga.trace.node import Node, rewrite
from tiga.trace.program import Program


def _rule(node: Node, inputs: tuple[Node, ...]) -> Node | None:
    expand = getattr(node.op, "expand", None)
    return None if expand is None else expand(*inputs)


@dataclass(frozen=True)
class Expand(Pass, name="gf-expand"):
    """Replace ops that define themselves by simpler ones, such as the exclusive product."""

    def __call__(self, form: Program) -> Program:
        return Program(form.inputs, tuple(rewrite(form.outputs, _rule)))
