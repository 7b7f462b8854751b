"""Run passes on a module: ours on each of its functions, MLIR's own on the whole of it."""

from collections.abc import Sequence
from itertools import groupby

from torch_mlir import ir

from tiga.errors import TigaError
from tiga.ir.context import verify
from tiga.passes.base import Form, Pass
from tiga.passes.native import NativePass
from tiga.passes.pipeline import run_pass
from tiga.passes.text import forms_of, module_of


def transform(module: ir.Module, passes: Sequence[Pass | NativePass]) -> ir.Module:
    """The verified module after `passes`, in order; native ones change `module` itself.

    Without any pass it is read and written once, as between two passes of ours.

    Raises:
        InvalidValue: a pass fails, or one of ours meets a module of no level of ours.
        Unfusable: a pass meets what the compiler cannot fuse.
    """
    if not passes:
        return _through_forms(module, [])
    for native, group in groupby(passes, lambda step: isinstance(step, NativePass)):
        steps = list(group)
        module = _natively(module, steps) if native else _through_forms(module, steps)
    return module


def _natively(module: ir.Module, passes: Sequence[Pass | NativePass]) -> ir.Module:
    for step in passes:
        step(module)
    return module


def _through_forms(module: ir.Module, passes: Sequence[Pass | NativePass]) -> ir.Module:
    forms = forms_of(module)
    for step in passes:
        assert isinstance(step, Pass)
        forms = {name: _run(step, name, form) for name, form in forms.items()}
    result = module_of(forms, module.context)
    verify(result, f"the result of {', '.join(map(str, passes)) or 'no pass'}")
    return result


def _run(step: Pass, function: str, form: Form) -> Form:
    try:
        return run_pass(step, form)
    except TigaError as error:
        error.args = (f"@{function}: {error.args[0]}", *error.args[1:])
        raise
