"""The page of public names is the one that `make reference` writes, and names them all."""

from pathlib import Path

import tiga
from tools.reference import page

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference.md"


def test_the_page_is_what_the_package_says() -> None:
    found = "\n".join(page()) + "\n"
    assert PAGE.read_text(encoding="utf-8") == found, "run `make reference`"


def test_every_public_name_is_on_the_page() -> None:
    text = PAGE.read_text(encoding="utf-8")
    names = [name for name in tiga.__all__ if not name.startswith("__")]
    assert [name for name in names if f"`tg.{name}" not in text] == []
