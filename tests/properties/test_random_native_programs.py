"""Programs drawn at random on native tensors, on the CPU: with room for all messages, and block by
block."""

from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.random_native_programs import check, drawn

some = settings(suppress_health_check=list(HealthCheck), deadline=None)


@settings(some, max_examples=4)
@drawn
def test_random_programs(**program: Any) -> None:
    check(**program)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@settings(some, max_examples=200)
@drawn
def test_many_random_programs(**program: Any) -> None:
    check(**program)
