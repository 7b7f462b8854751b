"""Every case by name: a file in `benchmarks/cases` with a `CASES` tuple is all it takes."""

import importlib
import pkgutil
from typing import Protocol

import benchmarks.cases
from benchmarks.harness import Options
from benchmarks.results import Measured


class Case(Protocol):
    """Something that can be measured; its name is `family/variant`."""

    @property
    def name(self) -> str: ...

    def run(self, options: Options) -> Measured: ...


def cases() -> dict[str, Case]:
    """All cases in the order of their files."""
    found: dict[str, Case] = {}
    for module in pkgutil.iter_modules(benchmarks.cases.__path__):
        for case in importlib.import_module(f"benchmarks.cases.{module.name}").CASES:
            assert case.name not in found, f"two cases are called {case.name}"
            found[case.name] = case
    return found


def select(names: list[str]) -> list[Case]:
    """Cases whose name is, or whose leading part is, one of `names`; `all` is every case.

    Raises:
        KeyError: a name selects nothing.
    """
    known = cases()
    chosen: dict[str, Case] = {}
    for name in names:
        hits = [n for n in known if name == "all" or n == name or n.startswith(f"{name}/")]
        if not hits:
            raise KeyError(f"no case {name!r}; there are: {', '.join(known)}")
        chosen.update({hit: known[hit] for hit in hits})
    return list(chosen.values())
