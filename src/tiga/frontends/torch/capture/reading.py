"""What code mentions: the names that it reads, the modules it imports, and whether to trust it."""

import builtins
import dis
import functools
import os
import sys
from collections.abc import Iterator
from dataclasses import is_dataclass
from types import CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

_PROGRAMS = "tiga._cli"
"""The demonstration's kernels are written as a user's are, and may change as theirs may."""

_LIBRARIES = frozenset({"torch", "numpy", "tiga", "scipy", "ml_dtypes", "torch_mlir"})
_STANDARD = frozenset(sys.stdlib_module_names)
_STANDARD_FOLDER = os.path.dirname(os.__file__)
_MADE_BY_PYTHON = 1 << 9
"""The flag of types that a class statement made: `builtins` itself has none."""

_READS_GLOBAL = ("LOAD_GLOBAL", "LOAD_NAME")
_STARTS = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "IMPORT_NAME")
_FOLLOWS = ("LOAD_ATTR", "LOAD_METHOD", "IMPORT_FROM")
_ARITHMETIC = (
    "add", "sub", "mul", "matmul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor",
    "lshift", "rshift",
)  # fmt: skip
_ORDER = frozenset({"__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__"})
IMPLICIT = _ORDER | {f"__{kind}{name}__" for name in _ARITHMETIC for kind in ("", "r", "i")} | {
    "__call__", "__getattr__", "__getattribute__", "__getitem__", "__missing__", "__len__",
    "__iter__", "__next__", "__contains__", "__reversed__", "__bool__", "__float__", "__int__",
    "__index__", "__complex__", "__round__", "__neg__", "__pos__", "__abs__", "__invert__",
    "__get__", "__enter__", "__exit__", "__array__", "__torch_function__",
}  # fmt: skip
"""Methods that Python calls without their being named."""


_BY_NAME = frozenset({"modules", "import_module", "__import__"})
"""What finds modules whose names are strings in the code."""


class Mentions(NamedTuple):
    """The names that code reads as globals, all that may name an attribute (strings included), the
    modules that it imports, each with the number of dots before it, and the names that it follows
    from a variable, as in `time.time`."""

    reads: frozenset[str]
    names: frozenset[str]
    imports: frozenset[tuple[int, str]]
    paths: frozenset[tuple[str, ...]]


@functools.lru_cache(maxsize=1024)
def mentions(code: CodeType) -> Mentions:
    """What code mentions, that of functions within it included."""
    reads, imports, level = set[str](), set[tuple[int, str]](), 0
    before: list[Any] = [None, None]
    for instruction in dis.get_instructions(code):
        if instruction.opname in _READS_GLOBAL:
            reads.add(instruction.argval)
        elif instruction.opname == "IMPORT_NAME":
            level = before[0] if isinstance(before[0], int) else 0
            imports.add((level, instruction.argval))
        before = [before[1], instruction.argval]
    names, paths = set(code.co_names), set(_paths(code))
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            inner = mentions(constant)
            reads |= inner.reads
            names |= inner.names
            imports |= inner.imports
            paths |= inner.paths
        elif isinstance(constant, str) and constant.isidentifier():
            names.add(constant)
    return Mentions(frozenset(reads), frozenset(names), frozenset(imports), frozenset(paths))


def _paths(code: CodeType) -> Iterator[tuple[str, ...]]:
    """The names that follow each other from a variable, or a module that is imported."""
    path: tuple[str, ...] = ()
    imports = set[str]()
    for instruction in dis.get_instructions(code):
        name, argument = instruction.opname, instruction.argval
        if name == "IMPORT_NAME":
            imports.add(argument)
        if name in _STARTS or (name == "LOAD_FAST" and argument in imports):
            path = (argument,)
        elif name in _FOLLOWS and path:
            path = (*path, argument)
            yield path
        else:
            path = ()


def imported(function: FunctionType) -> list[ModuleType]:
    """The modules that a function imports when it runs, as far as they are loaded."""
    package = function.__globals__.get("__package__") or ""
    _, names, imports, _ = mentions(function.__code__)
    found = [sys.modules[n] for n in sorted(names & sys.modules.keys()) if names & _BY_NAME]
    for level, name in sorted(imports):
        if level:
            parts = package.split(".")
            name = ".".join([*parts[: len(parts) - level + 1], *filter(None, [name])])
        found += [sys.modules[name]] if name in sys.modules else []
    return found


def implicit_methods(cls: type) -> list[str]:
    """The methods of a class that Python may call without their being named. The comparisons of a
    dataclass read all of its fields, and are not looked into."""
    skipped = _ORDER if is_dataclass(cls) else ()
    return [name for name in sorted(IMPLICIT & vars(cls).keys()) if name not in skipped]


def is_library(value: Any) -> bool:
    """Whether a function, class or module belongs to Python, torch or numpy, and is trusted."""
    if isinstance(value, ModuleType):
        return _is_trusted(value.__name__)
    if isinstance(value, FunctionType):  # a wrapper bears the name of what it wraps
        return _is_trusted(value.__module__) and _is_trusted(value.__globals__.get("__name__"))
    name = getattr(value, "__module__", None) or "builtins"
    if isinstance(value, type) and name == builtins.__name__:
        return not value.__flags__ & _MADE_BY_PYTHON  # code without a `__name__` calls itself so
    return _is_trusted(name)


def _is_trusted(module: str | None) -> bool:
    if module is None or module.startswith(_PROGRAMS):
        return False
    root = module.partition(".")[0]
    return root in _LIBRARIES or (root in _STANDARD and root != "__main__" and not _shadows(root))


@functools.cache
def _shadows(name: str) -> bool:
    """Whether a module of the user's has the name of one of Python's."""
    file = getattr(sys.modules.get(name), "__file__", None)
    return file is not None and not file.startswith(_STANDARD_FOLDER)
