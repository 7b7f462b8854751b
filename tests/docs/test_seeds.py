"""The code of the project's founding documents, unchanged, with its own assertions.

A block for a feature that is still to come must fail, and for the reason given: when the feature
arrives, the strict xfail turns red and its mark goes.
"""

from pathlib import Path

import pytest

from tests.docs.running import run

SEEDS = Path(__file__).parent / "seeds"

TO_COME = {
    "execution_and_storage": "tg.execution: memory tiers",
}


def _parameter(path: Path) -> object:
    reason = TO_COME.get(path.stem)
    marks = [pytest.mark.xfail(raises=AttributeError, strict=True, reason=reason)] if reason else []
    return pytest.param(path, id=path.stem, marks=marks)


def test_all_seeds_are_here() -> None:
    names = {path.stem for path in SEEDS.glob("*.py")}
    assert names == {
        "torch_gradients",
        "torch_view",
        "csr_message_passing",
        "native_gradient",
        "hierarchy_runtime",
        *TO_COME,
    }


@pytest.mark.parametrize("path", [_parameter(path) for path in sorted(SEEDS.glob("*.py"))])
def test_seed(path: Path) -> None:
    run(path.read_text(encoding="utf-8"), path)
