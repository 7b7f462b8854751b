"""Expand: ops with a definition in simpler ops give way to it."""

from dataclasses import dataclass

from tiga.passes.base import Pass
from tiga.trace.program import Program


@dataclass(frozen=True)
class Expand(Pass, name="gf-expand"):
    """Replace ops that define themselves by simpler ones, such as the exclusive product."""

    def __call__(self, form: Program) -> Program:
        return form.rewritten(lambda node, inputs: node.op.expand(*inputs))
