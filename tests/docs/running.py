"""Running code that stands in a document, with line numbers that point into the document."""

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

OPTIONAL = ("matplotlib", "sklearn", "torch", "torch_geometric")
"""What only part of the package and its documents needs."""

FENCE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def missing(code: str) -> str | None:
    """Something optional that the code imports and that is not installed."""
    for name in OPTIONAL:
        if re.search(rf"\b(import|from) {name}\b", code) and find_spec(name) is None:
            return name
    return None


def run(code: str, path: Path, first_line: int = 1) -> None:
    """Execute `code` as a program of its own; errors name `path` and the line in it."""
    lacks = missing(code)
    if lacks:
        pytest.skip(f"{lacks} is not installed")
    padded = "\n" * (first_line - 1) + code
    exec(compile(padded, str(path), "exec"), {"__name__": "__main__"})


def blocks(path: Path) -> list[tuple[int, str]]:
    """Every Python block of a Markdown file with the number of its first line."""
    text = path.read_text(encoding="utf-8")
    return [(text.count("\n", 0, m.start(1)) + 1, m.group(1)) for m in FENCE.finditer(text)]
