"""Expressions of native tensors drawn at random, on a GPU or interpreted."""

from typing import Any

import pytest

pytest.importorskip("torch")

from hypothesis import HealthCheck, settings

from tests.random_tensors import check, drawn

some = settings(suppress_health_check=list(HealthCheck), deadline=None)


@settings(some, max_examples=8)
@drawn
def test_random_expressions(**expression: Any) -> None:
    check(**expression, device="cuda")


@pytest.mark.slow
@pytest.mark.timeout(1200)
@settings(some, max_examples=300)
@drawn
def test_many_random_expressions(**expression: Any) -> None:
    check(**expression, device="cuda")
