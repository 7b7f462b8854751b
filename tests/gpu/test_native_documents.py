"""Blocks of the documentation that need a GPU, and no torch."""

import re
from pathlib import Path

import pytest

import tiga as tg

PAGE = Path(__file__).parents[2] / "docs" / "gpu_tensors.md"
FENCE = re.compile(r"^```py\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCKS = [code for code in FENCE.findall(PAGE.read_text(encoding="utf-8")) if "@triton" not in code]


@pytest.mark.parametrize("code", BLOCKS, ids=range(len(BLOCKS)))
def test_block(code: str) -> None:
    exec(compile(code, str(PAGE), "exec"), {"tg": tg})
