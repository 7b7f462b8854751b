"""Running code that stands in a document, with line numbers that point into the document."""

import re
from pathlib import Path

FENCE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def run(code: str, path: Path, first_line: int = 1) -> None:
    """Execute `code` as a program of its own; errors name `path` and the line in it."""
    padded = "\n" * (first_line - 1) + code
    exec(compile(padded, str(path), "exec"), {"__name__": "__main__"})


def blocks(path: Path) -> list[tuple[int, str]]:
    """Every Python block of a Markdown file with the number of its first line."""
    text = path.read_text(encoding="utf-8")
    return [(text.count("\n", 0, m.start(1)) + 1, m.group(1)) for m in FENCE.finditer(text)]
