"""Text tests: a module, what to run on it, and what the output must hold, in one file.

    // RUN: gf-fold,gf-hoist             passes to run
    // CHECK: "gf.mul"([[X:%\\w+]], {{.*}})   the first line after the last match that has it
    // CHECK-NEXT: "gf.add"([[X]]        the line after
    // CHECK-NOT: gf.neg                 on no line between the matches around it, or to the end
    // ERROR: gf.mul: expected           instead of CHECK lines: part of the error

`{{...}}` holds a regular expression, `[[NAME:...]]` captures what one matches, `[[NAME]]` repeats
it. `// -----` separates cases. Patterns are searched for; spaces at their ends do not count.
"""

import re
from dataclasses import dataclass
from pathlib import Path

_SEPARATOR = "// -----"
_DIRECTIVE = re.compile(r"//\s*(RUN|CHECK|CHECK-NEXT|CHECK-NOT|ERROR):\s*(.*?)\s*$")
_HOLE = re.compile(r"\{\{(.*?)\}\}|\[\[(\w+):(.*?)\]\]|\[\[(\w+)\]\]")


@dataclass(frozen=True)
class Case:
    """One case of a file: its passes, the module's text and the directives in order."""

    name: str
    passes: str
    text: str
    checks: tuple[tuple[str, str], ...]
    error: str | None


def load(path: Path) -> list[Case]:
    """The cases of a file."""
    parts = path.read_text().split(_SEPARATOR)
    return [_case(f"{path.stem}-{number}", part) for number, part in enumerate(parts)]


def _case(name: str, text: str) -> Case:
    found = [m.groups() for line in text.splitlines() if (m := _DIRECTIVE.search(line))]
    runs = [value for kind, value in found if kind == "RUN"]
    errors = [value for kind, value in found if kind == "ERROR"]
    checks = tuple((kind, value) for kind, value in found if kind.startswith("CHECK"))
    assert len(runs) == 1, f"{name}: one RUN line per case, got {len(runs)}"
    assert bool(checks) != bool(errors), f"{name}: either CHECK lines or an ERROR line"
    return Case(name, runs[0], text, checks, errors[0] if errors else None)


def _pattern(text: str, known: dict[str, str]) -> re.Pattern[str]:
    parts, at = [], 0
    for hole in _HOLE.finditer(text):
        parts.append(re.escape(text[at : hole.start()]))
        regex, name, captured, repeated = hole.groups()
        if repeated is not None:
            parts.append(re.escape(known[repeated]))
        else:
            parts.append(f"(?:{regex})" if regex is not None else f"(?P<{name}>{captured})")
        at = hole.end()
    return re.compile("".join((*parts, re.escape(text[at:]))))


def check(checks: tuple[tuple[str, str], ...], output: str) -> None:
    """Hold `output` to the directives.

    Raises:
        AssertionError: a directive does not hold; the message has the output.
    """
    lines, at, known = output.splitlines(), 0, dict[str, str]()
    absent: list[re.Pattern[str]] = []
    for kind, text in checks:
        pattern = _pattern(text, known)
        if kind == "CHECK-NOT":
            absent.append(pattern)
            continue
        window = lines[at : at + 1] if kind == "CHECK-NEXT" else lines[at:]
        found = next((at + i for i, line in enumerate(window) if pattern.search(line)), None)
        assert found is not None, f"{kind}: {text}\nnot found from line {at + 1} on:\n{output}"
        _check_absent(absent, lines[at:found], output)
        absent = []
        match = pattern.search(lines[found])
        assert match is not None
        known.update(match.groupdict())
        at = found + 1
    _check_absent(absent, lines[at:], output)


def _check_absent(absent: list[re.Pattern[str]], lines: list[str], output: str) -> None:
    for pattern in absent:
        hit = next((line for line in lines if pattern.search(line)), None)
        assert hit is None, f"CHECK-NOT: {pattern.pattern} matches {hit!r} in:\n{output}"
