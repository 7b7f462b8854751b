"""Every setting of Tiga that a program or the environment may change, in one table."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from tiga.errors import InvalidType, InvalidValue

_TRUE = ("1", "true", "yes", "on")
_FALSE = ("0", "false", "no", "off")


def _flag(text: str) -> bool:
    if text.lower() not in _TRUE + _FALSE:
        raise ValueError(f"one of {', '.join(_TRUE + _FALSE)}")
    return text.lower() in _TRUE


def _level(text: str) -> int:
    if text not in ("0", "1", "2"):
        raise ValueError("0, 1 or 2")
    return int(text)


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ValueError("a whole number of at least 1")
    return int(text)


_UNITS = {"b": 1, "kib": 2**10, "mib": 2**20, "gib": 2**30}


def _size(text: str) -> int:
    digits = text.rstrip("BKMGibkmg ")
    unit = text[len(digits) :].strip().lower() or "b"
    if not digits.isdecimal() or int(digits) < 1 or unit not in _UNITS:
        raise ValueError("a size such as 67108864, 512KiB, 64MiB or 1GiB")
    return int(digits) * _UNITS[unit]


def _size_or_off(text: str) -> int:
    """The bytes of a size; 0 for what says no."""
    try:
        return 0 if text.lower() in _FALSE else _size(text)
    except ValueError as error:
        raise ValueError(f"{error}, or 0") from None


def _knob(variable: str, parse: Callable[[str], Any], meaning: str) -> dict[str, Any]:
    return {"variable": variable, "parse": parse, "meaning": meaning}


_STRICT = _knob("TIGA_STRICT", _flag, "raise Unfusable instead of taking the bounded path")
_DUMP = _knob("TIGA_DUMP", Path, "folder that receives the text of every compiler stage")
_VERIFY = _knob(
    "TIGA_VERIFY", _level, "0: trust passes; 1: verify after each; 2: also re-parse the text"
)
_THREADS = _knob(
    "TIGA_NUM_THREADS", _count, "threads of a CPU kernel; unset: as many as torch uses"
)
_BOUND = _knob("TIGA_MEMORY_BOUND", _size, "bytes of scratch that the bounded path may use")


def _budget(text: str) -> int:
    if not text.lstrip("-").isdecimal() or int(text) < -1:
        raise ValueError("a number of bytes, or -1 for any number")
    return int(text)


_AUTOTUNE = _knob(
    "TIGA_AUTOTUNE", _flag, "measure tiles of GPU kernels once and keep the fastest on disk"
)
_KERNEL_CACHE = _knob(
    "TIGA_KERNEL_CACHE",
    _size_or_off,
    "bytes of CPU kernels on disk for later processes; 0: none",
)
_CHECKPOINT = _knob(
    "TIGA_CHECKPOINT_BUDGET_BYTES", _budget, "bytes of forward values that a gradient may save"
)
_SPILL = _knob(
    "TIGA_CHECKPOINT_SPILL_BUDGET_BYTES", _budget, "bytes that it may save on disk besides"
)
_TENSOR_BACKENDS = ("auto", "native", "python")


def _tensor_backend(text: str) -> str:
    if text not in _TENSOR_BACKENDS:
        raise ValueError(f"one of {', '.join(_TENSOR_BACKENDS)}")
    return text


_TENSOR_BACKEND = _knob(
    "TIGA_TENSOR_BACKEND",
    _tensor_backend,
    "auto: compile large tensor programs; native: all of them; python: none, numpy evaluates",
)


@dataclass(frozen=True)
class Knobs:
    """The settings in force; each is a `TIGA_*` variable and a keyword of `scope`.

    Example:
        >>> Knobs().memory_bound
        67108864
    """

    strict: bool = field(default=False, metadata=_STRICT)
    dump: Path | None = field(default=None, metadata=_DUMP)
    verify: int = field(default=1, metadata=_VERIFY)
    num_threads: int | None = field(default=None, metadata=_THREADS)
    memory_bound: int = field(default=64 * 2**20, metadata=_BOUND)
    tensor_backend: str = field(default="auto", metadata=_TENSOR_BACKEND)
    checkpoint_budget_bytes: int | None = field(default=None, metadata=_CHECKPOINT)
    checkpoint_spill_budget_bytes: int = field(default=0, metadata=_SPILL)
    autotune: bool = field(default=False, metadata=_AUTOTUNE)
    kernel_cache: int = field(default=256 * 2**20, metadata=_KERNEL_CACHE)


TABLE = fields(Knobs)
"""One dataclass field per knob; its metadata holds `variable`, `parse` and `meaning`."""

_VARIABLES = tuple(knob.metadata["variable"] for knob in TABLE)
_overrides: ContextVar[tuple[tuple[str, Any], ...]] = ContextVar("tiga_knobs", default=())


def _read(knob: Any, text: str) -> Any:
    try:
        return knob.metadata["parse"](text)
    except ValueError as error:
        variable = knob.metadata["variable"]
        raise InvalidValue(
            f"environment variable {variable}: expected {error}, got {text!r}; unset it or mend it"
        ) from None


@lru_cache(maxsize=64)
def _knobs(texts: tuple[str | None, ...], overrides: tuple[tuple[str, Any], ...]) -> Knobs:
    # An empty variable counts as unset, as in a shell's `TIGA_DUMP= python ...`.
    read = {knob.name: _read(knob, text) for knob, text in zip(TABLE, texts, strict=True) if text}
    return replace(Knobs(**read), **dict(overrides))


def current() -> Knobs:
    """The settings now: defaults, under the environment, under the enclosing `scope`s.

    Nothing is remembered between calls, so a caller reads once per use and passes the value on.

    Raises:
        InvalidValue: an environment variable holds something else than its kind of value.

    Example:
        >>> with scope(strict=True):
        ...     current().strict
        True
    """
    return _knobs(tuple(map(os.environ.get, _VARIABLES)), _overrides.get())


class Variable:
    """An environment variable, read at every call, in little time: asking `os.environ` for one that
    is not set raises and catches an error, so its own table is asked if it can be had.

    `raw()` is what that holds, None where the variable is not set, and `decode` makes it text; a
    call does both.
    """

    __slots__ = ("decode", "raw")

    decode: Callable[[Any], str]

    def __init__(self, name: str) -> None:
        table: Any = getattr(os.environ, "_data", None)
        if table is None:
            self.raw, self.decode = partial(os.environ.get, name), str
        else:
            self.raw = partial(table.get, os.environ.encodekey(name))
            self.decode = os.environ.decodevalue

    def __call__(self) -> str | None:
        """What it holds; None where it is not set."""
        found = self.raw()
        return None if found is None else self.decode(found)


_BY_NAME = {knob.name: (knob, Variable(knob.metadata["variable"])) for knob in TABLE}


def read(name: str) -> Any:
    """One setting of `current()`, without reading the others: small programs take less time.

    Raises:
        InvalidValue: its environment variable holds something else than its kind of value.

    Example:
        >>> read("tensor_backend")
        'auto'
    """
    if _overrides.get():
        return getattr(current(), name)
    knob, variable = _BY_NAME[name]
    found = variable.raw()
    return _read(knob, variable.decode(found)) if found else knob.default


def _checked(name: str, value: Any) -> Any:
    knob = next((k for k in TABLE if k.name == name), None)
    if knob is None:
        names = ", ".join(k.name for k in TABLE)
        raise InvalidType(f"knobs.scope: expected one of {names}, got {name!r}")
    if value == knob.default:
        return value
    try:
        return knob.metadata["parse"](str(value))
    except ValueError as error:
        raise InvalidValue(f"knobs.scope({name}=): expected {error}, got {value!r}") from None


@contextmanager
def scope(**settings: Any) -> Iterator[Knobs]:
    """Change settings for the body of a `with`, in this thread or task only.

    Args:
        **settings: any fields of `Knobs`; each takes what its environment variable takes.

    Raises:
        InvalidType: there is no such setting.
        InvalidValue: a value is not of its setting's kind.

    Example:
        >>> with scope(num_threads=1) as knobs:
        ...     knobs.num_threads
        1
    """
    checked = {name: _checked(name, value) for name, value in settings.items()}
    merged = {**dict(_overrides.get()), **checked}
    token = _overrides.set(tuple(sorted(merged.items())))
    try:
        yield current()
    finally:
        _overrides.reset(token)
