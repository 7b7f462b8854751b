"""Programs drawn at random on a GPU."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_mlir")

from hypothesis import HealthCheck, settings  # noqa: E402

from tests.gpu import harness  # noqa: E402
from tests.random_programs import check, drawn  # noqa: E402

pytestmark = pytest.mark.skipif(
    harness.device() is None, reason="no GPU, and TRITON_INTERPRET=1 is not set"
)


@pytest.mark.timeout(300)
@settings(
    max_examples=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@drawn
def test_random_programs_on_a_gpu(where, **program):
    check(**program, device=where)
