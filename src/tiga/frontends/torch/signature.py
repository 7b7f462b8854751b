"""How the functions of a kernel can be called."""

import inspect
from collections.abc import Mapping
from types import MethodType
from typing import Any

from tiga.errors import InvalidType
from tiga.frontends.torch.where import line_of

_DECLARED = {
    "edge": ("def edge(self, src, dst, edge)", ("src", "dst", "edge")),
    "node": ("def node(self, dst, aggregate)", ("dst", "aggregate")),
}


def user_function(kernel: Any, name: str) -> Any:
    """The function behind `kernel.edge` or `kernel.node`."""
    attribute = getattr(kernel, name)
    return attribute.__func__ if isinstance(attribute, MethodType) else attribute


def accepts(function: Any, name: str) -> bool:
    """Whether a function takes a parameter of this name."""
    parameters = inspect.signature(function).parameters
    if name in parameters:
        return True
    return any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values())


def check_parameters(kernel: Any, params: Mapping[str, Any]) -> None:
    """Refuse parameters that neither function takes, and functions that a call cannot reach.

    Raises:
        InvalidType: a parameter is unknown or missing, or a function takes other arguments.
    """
    kind = type(kernel).__name__
    functions = {name: user_function(kernel, name) for name in _DECLARED}
    for name in params:
        if not any(accepts(function, name) for function in functions.values()):
            raise InvalidType(
                f"{kind}: neither `edge` nor `node` takes a parameter `{name}`. Leave it out, or "
                f"add it to the parameters of one of them."
            )
    for name, function in functions.items():
        declaration, ends = _DECLARED[name]
        taken = {p: value for p, value in params.items() if accepts(function, p)}
        try:
            inspect.signature(getattr(kernel, name)).bind(*ends, **taken)
        except TypeError as error:
            raise InvalidType(
                f"{line_of(function)}: {kind}.{name} cannot be called: {error}. Expected "
                f"`{declaration}`; parameters beyond these come from keywords of the call, "
                f"`kernel(graph=..., name=value)`."
            ) from None
