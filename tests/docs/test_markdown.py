"""Every Python block of the README and the documentation runs by itself."""

from pathlib import Path

import pytest

from tests.docs.running import blocks, run

ROOT = Path(__file__).resolve().parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
BLOCKS = [
    pytest.param(page, line, code, id=f"{page.relative_to(ROOT)}:{line}")
    for page in PAGES
    for line, code in blocks(page)
]


def test_documents_are_found() -> None:
    assert {"README.md", "README.zh.md", "architecture.md"} <= {page.name for page in PAGES}
    assert BLOCKS


@pytest.mark.parametrize(("page", "line", "code"), BLOCKS)
def test_block(page: Path, line: int, code: str) -> None:
    run(code, page, line)


def test_blocks_are_found_with_their_lines(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "text\n\n```python\na = 1\n```\n```sh\nls\n```\n```python\nraise ValueError\n```\n"
    )
    assert blocks(page) == [(4, "a = 1\n"), (10, "raise ValueError\n")]
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        run("raise ValueError\n", page, 10)
    assert caught.traceback[-1].lineno + 1 == 10
