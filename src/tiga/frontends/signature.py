"""How the functions of a kernel can be called."""

import difflib
import inspect
from collections.abc import Iterable, Mapping
from types import FunctionType, MethodType
from typing import Any

from tiga.errors import InvalidType

FIELDS = ("graph", "src", "dst", "edge", "ndata")
"""The keywords of a call that are no parameters."""

_ELSEWHERE = {"edata": "edge", "edge_attr": "edge", "srcdata": "src", "dstdata": "dst",
              "edge_index": "graph", "g": "graph"}  # fmt: skip
"""What other libraries call these."""

_DECLARED = {
    "edge": ("def edge(self, src, dst, edge)", ("src", "dst", "edge")),
    "node": ("def node(self, dst, aggregate)", ("dst", "aggregate")),
}


def user_function(kernel: Any, name: str) -> Any:
    """The function behind `kernel.edge` or `kernel.node`."""
    attribute = getattr(kernel, name)
    return attribute.__func__ if isinstance(attribute, MethodType) else attribute


def line_of(function: Any) -> str:
    """`file:line` where a function is defined; it is not known of one of Tiga's own."""
    if getattr(function, "__module__", None) == "tiga.frontends.message_passing":
        return "<unknown>"
    code = getattr(function, "__code__", None)
    return "<unknown>" if code is None else f"{code.co_filename}:{code.co_firstlineno}"


def taken(kernel: Any, function: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of a call that `edge` or `node` takes."""
    target = user_function(kernel, function)
    return {name: value for name, value in params.items() if accepts(target, name)}


def accepts(function: Any, name: str) -> bool:
    """Whether a function takes a parameter of this name."""
    if isinstance(function, FunctionType) and not hasattr(function, "__wrapped__"):
        code = function.__code__  # as `inspect` does, in a tenth of its time
        named = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        return name in named or bool(code.co_flags & inspect.CO_VARKEYWORDS)
    parameters = inspect.signature(function).parameters
    if name in parameters:
        return True
    return any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values())


def _nearest(name: str, functions: Iterable[Any]) -> str:
    """The keyword of a call that was likely meant, as a question."""
    parameters = {p for function in functions for p in inspect.signature(function).parameters}
    ends = {end for _, names in _DECLARED.values() for end in names} | {"self"}
    known = [*FIELDS, *sorted(parameters - ends)]
    found = [_ELSEWHERE[name]] if name in _ELSEWHERE else difflib.get_close_matches(name, known, 1)
    return f" Did you mean `{found[0]}`?" if found else ""


def require_known(kernel: Any, params: Mapping[str, Any]) -> None:
    """Refuse parameters that neither function takes.

    Raises:
        InvalidType: with what may have been meant.
    """
    functions = [user_function(kernel, name) for name in _DECLARED]
    for name in params:
        if not any(accepts(function, name) for function in functions):
            raise InvalidType(
                f"{type(kernel).__name__}: neither `edge` nor `node` takes a parameter `{name}`."
                f"{_nearest(name, functions)} Fields are passed by where they are, "
                f"`src={{...}}`, `dst={{...}}`, `edge={{...}}`, or `ndata={{...}}` for both ends; "
                f"any other keyword must be a parameter of `edge` or `node`."
            )


def _missing(function: Any, ends: tuple[str, ...], given: Mapping[str, Any]) -> list[str]:
    """The parameters without a value, where a function takes what it has to take."""
    parameters = list(inspect.signature(function).parameters.values())
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    if [p.name for p in parameters[: len(ends)]] != list(ends):
        return []
    rest = [p for p in parameters[len(ends) :] if p.kind in kinds and p.default is p.empty]
    return [p.name for p in rest if p.name not in given]


def check_parameters(kernel: Any, params: Mapping[str, Any]) -> None:
    """Refuse parameters that neither function takes, and functions that a call cannot reach.

    Raises:
        InvalidType: a parameter is unknown or missing, or a function takes other arguments.
    """
    require_known(kernel, params)
    kind = type(kernel).__name__
    for name, (declaration, ends) in _DECLARED.items():
        given = taken(kernel, name, params)
        missing = _missing(getattr(kernel, name), ends, given)
        if missing:
            call = ", ".join(f"{parameter}=..." for parameter in missing)
            raise InvalidType(
                f"{line_of(user_function(kernel, name))}: {kind}.{name} takes `{missing[0]}`, "
                f"which the call did not pass: `kernel(graph=..., {call})`."
            )
        try:
            inspect.signature(getattr(kernel, name)).bind(*ends, **given)
        except (TypeError, ValueError) as error:  # a ValueError: it takes not even `self`
            raise InvalidType(
                f"{line_of(user_function(kernel, name))}: {kind}.{name} cannot be called: {error}. "
                f"Expected `{declaration}`; parameters beyond these come from keywords of a call, "
                f"`kernel(graph=..., name=value)`."
            ) from None
