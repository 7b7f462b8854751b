"""Any form of a program as a module of its level, and back."""

from collections.abc import Mapping

from torch_mlir import ir

from tiga.errors import InvalidValue
from tiga.ir.context import text_of
from tiga.passes import iteration
from tiga.passes.base import Form, ScheduledPlan
from tiga.passes.emit import emit
from tiga.passes.emit_rows import emit_rows
from tiga.passes.levels import new_context
from tiga.passes.read import functions, read
from tiga.passes.read_rows import read_rows
from tiga.passes.rows import Plan, RowProgram, Step
from tiga.passes.schedule import Schedule
from tiga.passes.tensor_dialect import TensorProgram, emit_tensors, is_tensor_function, read_tensors
from tiga.trace.program import Program

_ROW_OPS = (iteration.WALK, iteration.ROWS)


def module_of(forms: Mapping[str, Form], context: ir.Context) -> ir.Module:
    """The module of named programs of one form, not verified yet."""
    kinds = {type(form) for form in forms.values()}
    assert len(kinds) <= 1, f"one module holds programs of one form, got {kinds}"
    if kinds == {TensorProgram}:
        return emit_tensors(forms, context)  # type: ignore[arg-type]
    if kinds <= {Program}:
        return emit(forms, context)  # type: ignore[arg-type]
    plans: dict[str, Plan] = {}
    schedules: dict[Step, Schedule] = {}
    for name, form in forms.items():
        plans[name] = form.plan if isinstance(form, ScheduledPlan) else form  # type: ignore[assignment]
        schedules.update(form.schedules if isinstance(form, ScheduledPlan) else ())
    return emit_rows(plans, context, schedules)


def _form_of(function: ir.OpView) -> type:
    if is_tensor_function(function):
        return TensorProgram
    names = {view.operation.name for view in function.entry_block.operations}
    if iteration.LAUNCH in names:
        return ScheduledPlan
    return Plan if names & set(_ROW_OPS) else Program


def _scheduled(plan: Plan, schedules: Mapping[Step, Schedule]) -> ScheduledPlan:
    rows = [step for step in plan.steps if isinstance(step, RowProgram)]
    bare = sum(step not in schedules for step in rows)
    if bare:
        raise InvalidValue(
            f"expected every walk in a {iteration.LAUNCH}, got {bare} outside of one"
        )
    return ScheduledPlan(plan, tuple((step, schedules[step]) for step in rows))


def forms_of(module: ir.Module) -> dict[str, Form]:
    """The programs of a verified module by function name, each in the form it is written in.

    Raises:
        InvalidValue: a function mixes levels, or holds ops of no level.
    """
    kinds = {_form_of(function) for _, function in functions(module)}
    if kinds == {TensorProgram}:
        return dict(read_tensors(dict(functions(module))))
    if kinds <= {Program}:
        return dict(read(module))
    plans, schedules = read_rows(module)
    if kinds == {Plan}:
        return dict(plans)
    return {name: _scheduled(plan, schedules) for name, plan in plans.items()}


def form_text(form: Form, name: str = "program", *, locations: bool = False) -> str:
    """The text of one program in any form: what `ir(...)` shows."""
    return text_of(module_of({name: form}, new_context()), locations=locations)
