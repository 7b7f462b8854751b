"""The page of all public names, from their signatures and docstrings.

python -m tools.reference > docs/reference.md
"""

import inspect
from collections.abc import Iterable, Iterator
from types import ModuleType
from typing import Any

import tiga
from tiga import autograd, errors, knobs, runtime
from tiga._names import FUNCTIONS

HEAD = """# Reference

Every public name in a line. `help(tg.name)` has arguments, shapes, errors and an example that runs.
Functions of tensors take native tensors; those of `edge` and `node` are called with torch's tensors
as well, and call torch then (see [native tensors](tensor.md)). This page is made by
`python -m tools.reference`.
"""

PARTS = {
    "Tensors": (
        "core",
        "functions.creation",
        "functions.filled",
        "functions.grids",
        "memory.execution",
        "memory.snapshot",
    ),
    "Element by element": ("functions.elementwise", "functions.selection", "functions.composed"),
    "Reductions and reducers": (),
    "Along axes": ("functions.reductions", "functions.along", "functions.sorting"),
    "Shapes and pieces": ("functions.views", "functions.pieces"),
    "Positions": ("functions.indexing",),
    "Products, losses, norms": ("functions.linear", "functions.losses"),
    "Numbers and promotion": ("functions.namespace",),
}
"""Headings, and the modules of `tiga.frontends.tensor` whose names stand under each."""

OTHERS = {"Reductions and reducers": "tiga.functions"}

KERNELS = (
    "Graph", "GraphBatch", "radius_graph", "MessagePassing", "mask", "Reducer", "multi", "each",
    "edge_softmax", "online_softmax",
)  # fmt: skip


def first_sentence(text: str | None) -> str:
    """The first sentence of a docstring, on one line."""
    paragraph = " ".join((text or "").strip().split("\n\n")[0].split())
    sentence, dot, _ = paragraph.partition(". ")
    return sentence + "." if dot else paragraph


def signature(value: Any) -> str:
    """The names of parameters and their defaults, without types."""
    if inspect.isclass(value):
        return ""
    try:
        found = inspect.signature(value)
    except ValueError:
        return "(...)"
    plain = [p.replace(annotation=p.empty, default=_shown(p)) for p in found.parameters.values()]
    return str(found.replace(parameters=plain, return_annotation=found.empty))


class _Text(str):
    """A default by the text that stands for it."""

    def __repr__(self) -> str:
        return str(self)


def _shown(parameter: inspect.Parameter) -> Any:
    if parameter.default is parameter.empty:
        return parameter.empty
    plain = isinstance(parameter.default, (bool, int, float, str, tuple, type(None)))
    return parameter.default if plain else _Text("...")


def line(name: str, value: Any) -> str:
    """One name: how it is called, and what it is."""
    documented = callable(value) or inspect.ismodule(value)
    told = first_sentence(inspect.getdoc(value)) if documented else f"`{value!r}`"
    return f"- `{name}{signature(value) if callable(value) else ''}`: {told}"


def methods(name: str, value: type) -> Iterator[str]:
    """The public methods and properties of a class, in a line."""
    named = (n for n in dir(value) if not n.startswith("_"))
    found = [n for n in named if inspect.getdoc(getattr(value, n))]
    yield f"  - {' '.join(f'`{n}`' for n in found)}"


def section(title: str, named: Iterable[tuple[str, Any]]) -> Iterator[str]:
    yield f"\n## {title}\n"
    for name, value in named:
        yield line(name, value)
        if name in ("tg.Graph", "tg.GraphBatch", "tg.MessagePassing", "tg.Tensor"):
            yield from methods(name, value)


def public(names: Iterable[str], module: ModuleType = tiga) -> list[tuple[str, Any]]:
    """Names of a module with what they are."""
    prefix = module.__name__.replace("tiga", "tg", 1)
    return [(f"{prefix}.{name}", getattr(module, name)) for name in names]


def page() -> Iterator[str]:
    """The lines of the page."""
    yield HEAD.rstrip()
    yield from section("Kernels and graphs", public(KERNELS))
    for title, files in PARTS.items():
        modules = [f"tiga.frontends.tensor.{file}" for file in files]
        modules += [OTHERS[title]] if title in OTHERS else []
        names = sorted({n for module in modules for n in FUNCTIONS[module]})
        yield from section(title, public(n for n in names if not n.startswith("__")))
    yield from section("Element types", public(["DType"]))
    yield f"- {' '.join(f'`tg.{t}`' for t in ('bool', *FUNCTIONS['tiga.types'][1:]))}"
    yield from section("Derivatives of native tensors", public(autograd.__all__, autograd))
    yield from section("Memory and tasks", public(runtime.__all__, runtime))
    raised = errors.TigaError
    kinds = [n for n, v in vars(errors).items() if inspect.isclass(v) and issubclass(v, raised)]
    yield from section("Errors", public(kinds, errors))
    yield from section("Compiler", public(["compiler"]))
    yield from section("Settings", public(["current", "scope"], knobs))
    yield "\n| variable | name | default | |\n|---|---|---|---|"
    for knob in knobs.TABLE:
        told = knob.metadata
        yield f"| `{told['variable']}` | `{knob.name}` | `{knob.default}` | {told['meaning']} |"


if __name__ == "__main__":
    print("\n".join(page()))
