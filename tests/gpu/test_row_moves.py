"""Rows in another order, as torch's index_select has them."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_mlir")

from tests.gpu import harness  # noqa: E402
from tiga.frontends.torch import rows  # noqa: E402

pytestmark = pytest.mark.skipif(
    harness.device() is None, reason="no GPU, and TRITON_INTERPRET=1 is not set"
)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.bool])
@pytest.mark.parametrize("shape", [(), (3,), (4,), (5, 7), (64,)])
def test_rows_move_whatever_their_width_and_place(where, monkeypatch, dtype, shape):
    monkeypatch.setattr(rows, "LEAST_ROWS", 4)
    monkeypatch.setattr(rows, "on_gpu", lambda device: True)
    x = (9 * torch.randn(50, *shape, device=where)).to(dtype)
    for given in (x, x[1:]):  # the second begins anywhere
        order = torch.randint(0, len(given), (77,), device=where)
        assert torch.equal(rows.rows_at(given, order.int()), given[order])
        assert torch.equal(rows.rows_at(given, order), given[order])
        into = torch.empty(77, *shape, dtype=dtype, device=where)
        rows.move_rows_to(into, given, order)
        assert torch.equal(into, given[order])
