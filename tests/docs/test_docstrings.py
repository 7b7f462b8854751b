"""Every example in a docstring of the package runs and prints what it says."""

import doctest
import importlib
import pkgutil
from types import ModuleType

import pytest

import tiga
from tests.docs.running import OPTIONAL, missing

OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
MODULES = ["tiga", *(m.name for m in pkgutil.walk_packages(tiga.__path__, "tiga."))]


def imported(name: str) -> ModuleType | None:
    """The module; None if it is one for something optional that is not installed."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name not in OPTIONAL:
            raise
        return None


def examples(module: ModuleType) -> list[doctest.DocTest]:
    """The module's examples that can run with what is installed."""
    found = doctest.DocTestFinder(exclude_empty=True).find(module)
    return [t for t in found if not missing("".join(e.source for e in t.examples))]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name: str) -> None:
    module = imported(name)
    if module is None:
        pytest.skip("it needs something that is not installed")
    runner = doctest.DocTestRunner(optionflags=OPTIONS)
    for test in examples(module):
        runner.run(test)
    assert runner.failures == 0


PUBLIC = [name for name in tiga.__all__ if callable(getattr(tiga, name))]


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_has_an_example(name: str) -> None:
    """Functions that are made from tables are in no module that `test_examples` looks through."""
    found = doctest.DocTestFinder(recurse=False).find(getattr(tiga, name), name, module=False)
    assert found[0].examples
    if not missing(found[0].docstring or ""):
        runner = doctest.DocTestRunner(optionflags=OPTIONS)
        runner.run(found[0])
        assert runner.failures == 0
