"""Fold: apply every op's own fold rule again."""

from dataclasses import dataclass

from tiga.passes.base import Pass
from tiga.trace.node import rewrite
from tiga.trace.program import Program


@dataclass(frozen=True)
class Fold(Pass, name="gf-fold"):
    """Rebuild every op, so that the fold rules apply: the same bits from fewer ops."""

    def __call__(self, form: Program) -> Program:
        outputs = rewrite(form.outputs, lambda node, inputs: node.op(*inputs, where=node.where))
        return Program(form.inputs, tuple(outputs))
