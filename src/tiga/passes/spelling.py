"""Pass pipelines as text: `cse,gf-save-rows,gf-vjp{wanted=x,w present=0}`."""

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, get_type_hints

from tiga.errors import InvalidValue
from tiga.passes.base import Pass
from tiga.passes.native import NativePass

_STEP = re.compile(r"\s*([\w.-]+)(?:\{([^}]*)\})?\s*(,|$)")

_VALUES: dict[Any, Callable[[str], Any]] = {
    str: str,
    int: int,
    tuple[str, ...]: lambda text: tuple(text.split(",")),
    tuple[int, ...]: lambda text: tuple(map(int, text.split(","))),
}


def split_steps(text: str) -> list[tuple[str, str]]:
    """Names and option texts of a comma-separated pipeline."""
    steps, at = [], 0
    while at < len(text):
        match = _STEP.match(text, at)
        if match is None:
            raise InvalidValue(f"expected passes as a,b{{option=value}},c; got {text[at:]!r}")
        steps.append((match[1], match[2] or ""))
        at = match.end()
    return steps


def _option(kind: type[Pass], text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    names = [field.name for field in dataclasses.fields(kind)]
    if name not in names or not equals:
        known = ", ".join(f"{n}=..." for n in names) or "none"
        raise InvalidValue(f"pass {kind.name}: expected options of {known}; got {text!r}")
    try:
        return name, _VALUES[get_type_hints(kind)[name]](value)
    except ValueError:
        raise InvalidValue(f"pass {kind.name}: option {name} cannot be {value!r}") from None


def make_pass(name: str, options: str, known: Mapping[str, type[Pass]]) -> Pass | NativePass:
    """The pass that a step of a pipeline names: one of `known`, or one of MLIR's own.

    Raises:
        InvalidValue: there is no such pass or option.
    """
    kind = known.get(name)
    if kind is None:
        native = NativePass.named(name, options)
        if native is not None:
            return native
        ours = ", ".join(sorted(known))
        raise InvalidValue(f"expected passes of {ours}, or any of MLIR's own; got {name!r}")
    return kind(**dict(_option(kind, option) for option in options.split()))


def parse_passes(text: str, kinds: Sequence[type[Pass]]) -> list[Pass | NativePass]:
    """The passes that a pipeline text names, of those in `kinds` or of MLIR's own."""
    known = {kind.name: kind for kind in kinds}
    return [make_pass(name, options, known) for name, options in split_steps(text)]
