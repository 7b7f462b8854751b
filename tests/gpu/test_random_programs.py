"""Programs drawn at random on a GPU."""

import pytest
from hypothesis import HealthCheck, settings

from tests.random_programs import check, drawn


@pytest.mark.timeout(300)
@settings(
    max_examples=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@drawn
def test_random_programs_on_a_gpu(where, **program):
    check(**program, device=where)
