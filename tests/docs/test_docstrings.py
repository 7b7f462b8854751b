"""Every example in a docstring of the package runs and prints what it says."""

import doctest
import importlib
import pkgutil

import pytest

import tiga

OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
MODULES = ["tiga", *(m.name for m in pkgutil.walk_packages(tiga.__path__, "tiga."))]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name: str) -> None:
    module = importlib.import_module(name)
    failed, _ = doctest.testmod(module, optionflags=OPTIONS)
    assert failed == 0


def test_examples_exist() -> None:
    finder = doctest.DocTestFinder(exclude_empty=True)
    found = [
        t for name in MODULES for t in finder.find(importlib.import_module(name)) if t.examples
    ]
    assert len(found) >= 5
