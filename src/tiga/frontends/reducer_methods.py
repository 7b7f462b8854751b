"""The methods of users' reducers, and what they return, checked alike for both frontends."""

import inspect
from collections.abc import Sequence
from typing import Any

import numpy as np

from tiga.errors import InvalidType, InvalidValue
from tiga.frontends.trees import leaves_of, numbered
from tiga.reducers import CustomReducer
from tiga.types import DType, Shape

_GIVEN = {
    "identity": "nothing", "lift": "the messages of an edge", "combine": "two states",
    "finalize": "a state",
}  # fmt: skip
_DECLARED = {
    "identity": "identity(self)", "lift": "lift(self, message)` with a parameter for each message "
    "that `self.reducer(...)` is given, `lift(self, *messages)", "combine":
    "combine(self, left, right)", "finalize": "finalize(self, state)",
}  # fmt: skip


def method_line(reducer: CustomReducer, name: str) -> str:
    """`file:line` of a method of a reducer."""
    code = getattr(getattr(reducer, name), "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code is not None else name


def call_method(reducer: CustomReducer, method: str, *arguments: Any) -> Any:
    """What a method returns.

    Raises:
        InvalidType: the class has none, and needs it.
    """
    own = getattr(CustomReducer, method)
    if getattr(type(reducer), method) is own and method in ("identity", "combine"):
        takes = "" if method == "identity" else ", left, right"
        raise InvalidType(
            f"{_class_line(type(reducer))}{type(reducer).__name__} has no `{method}`: define `def "
            f"{method}(self{takes})`. A reducer needs `identity` and `combine`; `lift` and "
            f"`finalize` are optional."
        )
    bound = getattr(reducer, method)
    try:
        inspect.signature(bound).bind(*arguments)
    except TypeError as error:
        raise InvalidType(
            f"{method_line(reducer, method)}: `{method}` of {type(reducer).__name__} cannot be "
            f"called with {_GIVEN[method]}: {error}. Expected `def {_DECLARED[method]}`."
        ) from None
    return bound(*arguments)


def _class_line(kind: type) -> str:
    """`file:line: ` of a class; empty where there is no file, as at a prompt."""
    try:
        return f"{inspect.getsourcefile(kind)}:{inspect.getsourcelines(kind)[1]}: "
    except (OSError, TypeError):
        return ""


def require_states(reducer: CustomReducer, lifted: Any) -> None:
    """Refuse a `lift` that returned nothing."""
    if not leaves_of(lifted):
        raise InvalidType(f"{method_line(reducer, 'lift')}: `lift` returned no state.")


def state_shape(reducer: CustomReducer, lifted: Shape, start: Shape) -> Shape:
    """The shape of a component of the state, from that of an edge and the identity."""
    try:
        return tuple(map(int, np.broadcast_shapes(lifted, start)))
    except ValueError:
        raise InvalidValue(
            f"{method_line(reducer, 'identity')}: `identity` of {type(reducer).__name__} has a "
            f"component of shape {list(start)}, which does not broadcast to that of an edge, "
            f"{list(lifted)}: return a number, or a tensor of the shape of one message."
        ) from None


def require_structure(
    reducer: CustomReducer, method: str, returned: Any, shape: Any, like: str
) -> None:
    """Refuse a state of another structure than `shape`, which is that of what `like` says."""
    if numbered(returned) != shape:
        raise InvalidType(
            f"{method_line(reducer, method)}: `{method}` of {type(reducer).__name__} must return a "
            f"state of the structure of {like}: expected {_outline(shape)}, got "
            f"{_outline(numbered(returned))}."
        )


def require_types(
    reducer: CustomReducer,
    expected: Sequence[tuple[DType, Shape]],
    combined: Sequence[tuple[DType, Shape]],
) -> None:
    """Refuse a combined state whose components have other types than those that it is made of."""
    for i, (want, got) in enumerate(zip(expected, combined, strict=True)):
        if got != want:
            part = "the state" if len(expected) == 1 else f"component {i} of the state"
            raise InvalidType(
                f"{method_line(reducer, 'combine')}: `combine` of {type(reducer).__name__} must "
                f"keep the type of {part}: expected {_text(*want)}, got {_text(*got)}."
            )


def _text(dtype: DType, shape: Shape) -> str:
    return f"{dtype}{list(shape)}"


def _outline(shape: Any) -> str:
    """The structure of a state in words."""
    if isinstance(shape, dict):
        return f"a dict of {', '.join(map(str, shape))}"
    if isinstance(shape, (tuple, list)):
        return f"a {type(shape).__name__} of {len(shape)}"
    return "one value"
