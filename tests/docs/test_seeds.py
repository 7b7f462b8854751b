"""The code of the project's founding documents, unchanged, with its own assertions."""

from pathlib import Path

import pytest

from tests.docs.running import run

SEEDS = Path(__file__).parent / "seeds"


def test_all_seeds_are_here() -> None:
    names = {path.stem for path in SEEDS.glob("*.py")}
    assert names == {
        "torch_gradients",
        "torch_view",
        "csr_message_passing",
        "native_gradient",
        "execution_and_storage",
        "hierarchy_runtime",
    }


@pytest.mark.parametrize("path", sorted(SEEDS.glob("*.py")), ids=lambda path: path.stem)
def test_seed(path: Path) -> None:
    run(path.read_text(encoding="utf-8"), path)
