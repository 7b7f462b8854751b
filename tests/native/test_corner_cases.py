"""Small programs that random ones were cut down to."""

import numpy as np
import pytest

import tiga as tg

ag = tg.autograd


@pytest.mark.parametrize("backend", ["python", "native"])
def test_softmax_over_no_elements(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIGA_TENSOR_BACKEND", backend)
    x = tg.zeros((2, 0), requires_grad=True)
    for function in (tg.softmax, tg.log_softmax):
        out = function(x, axis=1)
        assert out.numpy().shape == (2, 0)
        assert ag.grad(out.sum(), x).numpy().shape == (2, 0)
    total = tg.logsumexp(x, axis=1)
    np.testing.assert_array_equal(total.numpy(), [-np.inf, -np.inf])
    assert ag.grad(total.sum(), x).numpy().shape == (2, 0)
