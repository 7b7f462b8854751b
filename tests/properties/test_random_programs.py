"""Programs drawn at random on the CPU."""

import pytest
from hypothesis import HealthCheck, settings

from tests.random_programs import check, drawn

some = settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)


@settings(some, max_examples=20)
@drawn
def test_random_programs(**program):
    check(**program)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@settings(some, max_examples=400)
@drawn
def test_many_random_programs(**program):
    check(**program)
