"""Verify a program between passes, without MLIR or through it."""

from tiga.ir.context import parse, text_of, verify
from tiga.passes.base import Form, ScheduledPlan
from tiga.passes.levels import new_context
from tiga.passes.rows import Plan
from tiga.passes.text import forms_of, module_of
from tiga.trace.node import Node
from tiga.trace.program import Program


def _verify_program(program: Program) -> None:
    """Every type is what its op infers."""
    for node in program.order:
        inferred = node.op.infer(*(child.type for child in node.inputs))
        assert inferred == node.type, f"{node!r}: its op infers {inferred}"


def _verify_plan(plan: Plan) -> None:
    """Every array that a step reads was given or written before, and outputs are written."""
    known: set[Node] = set(plan.inputs)
    for step in plan.steps:
        missing = [node for node in step.reads if node not in known]
        assert not missing, f"{missing[0]!r} is read before it is written"
        known.update(step.writes)
    unwritten = [node for node in plan.outputs if node not in known]
    assert not unwritten, f"output {unwritten[0]!r} is never written"


def verify_form(form: Form) -> None:
    """Check the structure of a program; an AssertionError is a bug of the pass before."""
    if isinstance(form, Program):
        _verify_program(form)
    else:
        _verify_plan(form.plan if isinstance(form, ScheduledPlan) else form)


def verify_text(form: Form) -> None:
    """Check that the form's module verifies, and is the same program after print and parse."""
    context = new_context()
    module = module_of({"program": form}, context)
    verify(module)
    again = forms_of(parse(text_of(module), context))["program"]
    assert again == form, "the program changes when it is printed and parsed"
