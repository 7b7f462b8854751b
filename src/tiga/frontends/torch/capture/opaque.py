"""What no names in a user's code lead into: what Python's own code, and that of libraries, reads.

The functions of a message run once per program. So what differs from one call to the next, such as
a clock, an iterator or a generator of random numbers, is found here to be refused, and what objects
of libraries hold is found by what their methods read.
"""

import functools
import io
import operator
import random
import sys
from collections.abc import Iterator, Sequence, Set
from contextlib import contextmanager
from types import BuiltinFunctionType, CodeType, FrameType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch

from tiga.frontends.torch.capture.reading import IMPLICIT, is_library, mentions

_CLOCKS = {
    "time": frozenset({
        "time", "time_ns", "perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns",
        "process_time", "process_time_ns", "thread_time", "thread_time_ns", "localtime", "gmtime",
        "ctime", "asctime", "strftime", "clock_gettime", "clock_gettime_ns",
    }),
    "datetime": frozenset({"now", "today", "utcnow"}),
    "uuid": frozenset({"uuid1", "uuid4"}),
    "secrets": frozenset({
        "choice", "randbelow", "randbits", "token_bytes", "token_hex", "token_urlsafe",
    }),
    "posix": frozenset({"urandom", "getrandom", "times"}),
}  # fmt: skip
"""Functions that give something else whenever they are called, by module."""

GENERATORS = (np.random.Generator, np.random.BitGenerator, np.random.RandomState, random.Random)

_GETTERS = (operator.attrgetter, operator.methodcaller)


def unrepeatable(function: Any) -> str | None:
    """The name of a function that reads a clock or the system's randomness; None for others."""
    owner = getattr(function, "__self__", None)
    module = owner.__module__ if isinstance(owner, type) else getattr(function, "__module__", None)
    name = getattr(function, "__name__", "")
    return f"{module}.{name}" if name in _CLOCKS.get(module or "", ()) else None


@contextmanager
def calls_of(functions: Sequence[Any]) -> Iterator[set[str]]:
    """The names of those functions that code of a user's calls in the body of a `with`; none are
    told of while somebody else watches calls."""
    called = set[str]()
    codes = [getattr(function, "__code__", None) for function in functions]

    def watch(frame: FrameType, event: str, argument: Any) -> None:
        if event == "c_call" and argument in functions:
            called.add(unrepeatable(argument) or "")
        elif event == "call" and frame.f_code in codes:
            called.add(unrepeatable(functions[codes.index(frame.f_code)]) or "")

    if not functions or sys.getprofile() is not None:
        yield called
        return
    sys.setprofile(watch)
    try:
        yield called
    finally:
        sys.setprofile(None)


def state_of(generator: Any) -> Any:
    """The state of a generator of random numbers, comparable."""
    if isinstance(generator, random.Random):
        return None if isinstance(generator, random.SystemRandom) else generator.getstate()
    if isinstance(generator, np.random.RandomState):
        kind, keys, *rest = generator.get_state(legacy=True)
        return kind, bytes(np.asarray(keys)), *rest
    bits = generator if isinstance(generator, np.random.BitGenerator) else generator.bit_generator
    return repr(bits.state)


def is_iterator(value: Any) -> bool:
    """Whether a value is one of Python's iterators: it goes on whenever it is asked."""
    kind = type(value)
    return hasattr(kind, "__next__") and is_library(kind) and not isinstance(value, io.IOBase)


def names_of(value: Any) -> Set[str]:
    """The attributes that an `attrgetter` or `methodcaller` asks for."""
    if not isinstance(value, _GETTERS):
        return frozenset()
    arguments: Any = value.__reduce__()[1]
    return {part for name in arguments if isinstance(name, str) for part in name.split(".")}


def reached(function: FunctionType) -> Iterator[Any]:
    """The functions of libraries that code finds through modules, as `time.time` is."""
    free = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    for root, *names in mentions(function.__code__).paths:
        if root in free:
            value = getattr(free[root], "cell_contents", None)
        else:
            value = function.__globals__.get(root, sys.modules.get(root))
        for name in names:
            if not isinstance(value, (ModuleType, type)) or not is_library(value):
                break
            value = getattr(value, name, None)
        if isinstance(value, (BuiltinFunctionType, FunctionType, MethodType)):
            yield value


@functools.lru_cache(maxsize=1024)
def read_by_methods(cls: type, names: frozenset[str]) -> frozenset[str]:
    """The names that those methods of a library's class mention that code calls by these names, or
    without naming them, and the methods that these call."""
    found, pending = set[str](), set(names | IMPLICIT)
    while pending:
        code = _code_of(cls, pending.pop())
        new = set() if code is None else set(code.co_names) - found
        found |= new
        pending |= new
    return frozenset(found)


def _code_of(cls: type, name: str) -> CodeType | None:
    member = next((vars(c)[name] for c in cls.__mro__ if name in vars(c)), None)
    if isinstance(member, property):
        member = member.fget
    member = getattr(member, "__wrapped__", member)
    return member.__code__ if isinstance(member, FunctionType) else None


_SEEN_OTHERWISE = (FunctionType, ModuleType, type, torch.Tensor, torch.nn.Module)
_TRUSTED = frozenset({"tiga", "logging", "threading"})
"""Whose objects are taken to tell the same at every call."""


def hidden_names(owner: Any, names: Set[str]) -> Set[str]:
    """The attributes that methods of an object of a library read, if code mentions these names."""
    cls: Any = type(owner)
    if isinstance(owner, _SEEN_OTHERWISE) or not is_library(cls):
        return frozenset()
    if cls.__module__.partition(".")[0] in _TRUSTED:
        return frozenset()
    return read_by_methods(cls, frozenset(names & _members(cls)))


@functools.lru_cache(maxsize=1024)
def _members(cls: type) -> frozenset[str]:
    return frozenset(dir(cls))
