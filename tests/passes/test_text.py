"""Every pass on text: module in, module out."""

import re
from pathlib import Path

import pytest

from tests.passes.checker import Case, check, load
from tiga.errors import TigaError
from tiga.ir.context import parse, text_of
from tiga.opt import optimize
from tiga.passes.levels import new_context
from tiga.passes.native import NativePass
from tiga.passes.pipeline import PASSES, PIPELINE
from tiga.passes.spelling import parse_passes

FOLDER = Path(__file__).parent
DOCS = FOLDER.parents[1] / "docs"
CASES = [case for path in sorted(FOLDER.glob("*.mlir")) for case in load(path)]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_text(case: Case) -> None:
    passes = parse_passes(case.passes, PASSES)
    if case.error is not None:
        with pytest.raises(TigaError, match=re.escape(case.error)):
            optimize(case.text, passes)
        return
    output = optimize(case.text, passes)
    check(case.checks, output)
    again = text_of(parse(output, new_context()), locations=False)
    assert again == output, "printing and parsing again changes the text"
    if not any(isinstance(step, NativePass) for step in passes):
        assert optimize(output, []) == output, "reading and writing again changes the text"


@pytest.mark.parametrize("kind", PASSES, ids=lambda kind: kind.name)
def test_every_pass_has_a_text_test(kind: type) -> None:
    path = FOLDER / f"{kind.name}.mlir"
    assert any(kind.name in case.passes for case in load(path))


def _blocks(page: Path) -> list[str]:
    return re.findall(r"^```mlir\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


def test_modules_in_the_documentation_are_valid() -> None:
    blocks = [block for page in sorted(DOCS.rglob("*.md")) for block in _blocks(page)]
    assert blocks
    for block in blocks:
        optimize(block, parse_passes("gf-form-rows,gf-iter-schedule", PASSES))


def test_the_program_in_the_documentation_goes_through_the_passes() -> None:
    """A block that names passes is what they make of the block before."""
    page = (DOCS / "architecture.md").read_text()
    blocks = re.findall(r"^```mlir *([a-z,-]*)\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    named = [(number, passes) for number, (passes, _) in enumerate(blocks) if passes]
    steps = [step.name for _, passes in named for step in parse_passes(passes, PASSES)]
    assert steps == [step.name for step in PIPELINE]
    for number, passes in named:
        made = optimize(blocks[number - 1][1], parse_passes(passes, PASSES))
        assert made.strip() == blocks[number][1].strip()


@pytest.mark.parametrize(
    ("directives", "output"),
    [
        ([("CHECK", "b")], "a\nc"),
        ([("CHECK", "b"), ("CHECK", "a")], "a\nb"),
        ([("CHECK", "a"), ("CHECK-NEXT", "c")], "a\nb\nc"),
        ([("CHECK", "a"), ("CHECK-NEXT", "b")], "a"),
        ([("CHECK", "a"), ("CHECK-NOT", "b")], "a\nb"),
        ([("CHECK", "a"), ("CHECK-NOT", "b"), ("CHECK", "c")], "a\nb\nc"),
        ([("CHECK", "[[X:%\\w+]] = a"), ("CHECK", "b([[X]])")], "%1 = a\nb(%2)"),
        ([("CHECK", "a({{[0-9]+}})")], "a(x)"),
    ],
)
def test_the_checker_can_fail(directives: list[tuple[str, str]], output: str) -> None:
    with pytest.raises(AssertionError):
        check(tuple(directives), output)


def test_the_checker_can_pass() -> None:
    directives = (
        ("CHECK", "[[X:%\\w+]] = a"), ("CHECK-NEXT", "b([[X]], {{.*}})"), ("CHECK-NOT", "d"),
        ("CHECK", "c"),
    )  # fmt: skip
    check(directives, "%1 = a\nb(%1, %2)\ne\nc\nd")
