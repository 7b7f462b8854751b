"""Where tests of kernels run on a GPU, or on its way: under Triton's interpreter."""

import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tiga.runtime.driver import has_gpu

HERE = Path(__file__).parent
NATIVE = ("test_native_", "test_index_arrays", "test_random_tensors")
"""Files whose tests need no torch on a GPU."""

if not all(map(find_spec, ("torch", "torch_mlir"))):
    files = (path.name for path in HERE.glob("test_*.py"))
    collect_ignore = [name for name in files if not name.startswith(NATIVE)]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    own = [item for item in items if item.path.parent == HERE]
    runs = {name: _runs(name) for name in {item.path.name for item in own}}
    for item in own:
        if not runs[item.path.name]:
            item.add_marker(pytest.mark.skip(reason="no GPU, and TRITON_INTERPRET=1 is not set"))


def _runs(name: str) -> bool:
    if name.startswith(NATIVE):
        return has_gpu() or os.environ.get("TRITON_INTERPRET") == "1"
    from tests.gpu import harness  # torch may be missing

    return harness.device() is not None


@pytest.fixture
def where(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The device; the interpreter's CPU tensors take the way of a GPU's."""
    from tests.gpu import harness
    from tiga.frontends.torch import forecast, paged, unit
    from tiga.frontends.torch.blocks import job as block_job
    from tiga.frontends.torch.compiled import callee

    found = harness.device()
    if found is not None and found.type == "cpu":
        for module in (block_job, callee, forecast, paged, unit):
            monkeypatch.setattr(module, "on_gpu", lambda place: True)
    return found
