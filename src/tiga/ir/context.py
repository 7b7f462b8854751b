"""MLIR contexts, and text in and out of them."""

import re
from collections.abc import Iterable

from torch_mlir import ir
from torch_mlir.passmanager import PassManager

from tiga.errors import InvalidValue
from tiga.ir.dialects import Dialect, load_dialects

_LINE = re.compile(r"(.+):(\d+)", re.DOTALL)


def make_context(dialects: Iterable[Dialect]) -> ir.Context:
    """A fresh context with `dialects` loaded.

    Compilations share no context: an op declared after a dialect was loaded would be unknown to
    it, and contexts are not safe to use from several threads.
    """
    context = ir.Context()
    load_dialects(dialects, context)
    return context


def location(where: str | None) -> ir.Location:
    """The location of a user's line `file:line`, in the current context."""
    if where is None:
        return ir.Location.unknown()
    match = _LINE.fullmatch(where)
    if match is None:
        return ir.Location.name(where)
    return ir.Location.file(match[1], int(match[2]), 0)


def where_of(place: ir.Location) -> str | None:
    """The user's line that a location stands for; the inverse of `location`."""
    if isinstance(place, ir.FileLineColLoc):
        return f"{place.filename}:{place.start_line}"
    return place.name_str if isinstance(place, ir.NameLoc) else None


_TEXT = "-:"
"""How locations name the text that is parsed: it has no file."""


def _describe(diagnostic: ir.DiagnosticInfo, source: str) -> str:
    given = diagnostic.location
    where = where_of(ir.Location.from_attr(given.attr, given.context))
    if where is None:
        return diagnostic.message
    if where.startswith(_TEXT):
        where = f"{source}:{where.removeprefix(_TEXT)}"
    return f"{where}: {diagnostic.message}"


def _explain(error: ir.MLIRError, source: str) -> str:
    found = [_describe(diagnostic, source) for diagnostic in error.error_diagnostics]
    return "\n  ".join([f"{source}: expected a valid module", *(found or [error.message])])


def parse(text: str, context: ir.Context, source: str = "text") -> ir.Module:
    """The verified module that `text` spells. `source` names it in errors.

    Raises:
        InvalidValue: the text does not parse, or its module does not verify.
    """
    try:
        return ir.Module.parse(text, context)
    except ir.MLIRError as error:
        raise InvalidValue(_explain(error, source)) from None


def verify(module: ir.Module, source: str = "module") -> None:
    """Run every verifier on `module`.

    Raises:
        InvalidValue: one of them objects.
    """
    try:
        module.operation.verify()
    except ir.MLIRError as error:
        raise InvalidValue(_explain(error, source)) from None


def transform(module: ir.Module, pipeline: str, source: str) -> None:
    """Run a pipeline of native passes, as `builtin.module(cse)`, on `module` in place.

    Raises:
        InvalidValue: a pass fails, or leaves an invalid module.
    """
    try:
        PassManager.parse(pipeline, module.context).run(module.operation)
    except ir.MLIRError as error:
        raise InvalidValue(_explain(error, source)) from None


def text_of(module: ir.Module, *, locations: bool = True) -> str:
    """The text of a module; without `locations` it is shorter and forgets the users' lines."""
    return module.operation.get_asm(enable_debug_info=locations)
