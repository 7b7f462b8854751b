"""What every test shares: one seed, a clean environment, Hypothesis profiles."""

import importlib.util
import os
import shutil
import sys

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

SEED = 20240229

settings.register_profile(
    "local", deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow]
)
# The same examples on every run: a red build is the change's own doing, and can be repeated.
settings.register_profile("ci", settings.get_profile("local"), derandomize=True)
settings.load_profile(
    os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "local")
)


NO_KERNEL_CACHE = ("TIGA_KERNEL_CACHE", "0")
"""No test finds kernels that another one, or another process, has left on disk."""

os.environ.update([NO_KERNEL_CACHE])


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A developer's own `TIGA_*` variables do not change what a test sees."""
    for variable in [name for name in os.environ if name.startswith("TIGA_")]:
        if variable != "TIGA_GOLDEN_UPDATE":
            monkeypatch.delenv(variable)
    monkeypatch.setenv(*NO_KERNEL_CACHE)


@pytest.fixture
def rng() -> np.random.Generator:
    """A numpy generator with a fixed seed."""
    return np.random.default_rng(SEED)


@pytest.fixture(autouse=True)
def torch_seed() -> None:
    """Give a test that uses torch the same random numbers whatever ran before it. What a module
    draws when it is imported it seeds itself."""
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.manual_seed(SEED)


def _has_gpu() -> bool:
    if importlib.util.find_spec("torch") is None or shutil.which("nvidia-smi") is None:
        return False
    import torch

    return torch.cuda.is_available()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if not marked or _has_gpu():
        return
    for item in marked:
        item.add_marker(pytest.mark.skip(reason="no NVIDIA GPU that torch can use"))
