"""Where tests of the frontends run on a GPU, or on its way."""

from typing import Any

import pytest


@pytest.fixture
def where(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The device; the interpreter's CPU tensors take the way of a GPU's."""
    from tests.gpu import harness  # torch may be missing
    from tiga.frontends.torch import callee, forecast, paged, unit

    found = harness.device()
    if found is not None and found.type == "cpu":
        for module in (callee, forecast, paged, unit):
            monkeypatch.setattr(module, "on_gpu", lambda place: True)
    return found
