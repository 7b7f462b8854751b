"""Functions composed of others, against numpy and torch."""

import numpy as np
import pytest

import tiga as tg
from tiga import errors

X = np.array([[-1.5, 0.0, 2.0], [np.inf, -np.inf, np.nan]])
Y = np.array([[-1.5 + 1e-9, 1e-9, 2.1], [np.inf, np.inf, np.nan]])


def test_comparison_within_a_tolerance() -> None:
    x, y = tg.tensor(X), tg.tensor(Y)
    for equal_nan in (False, True):
        want = np.isclose(X, Y, equal_nan=equal_nan)
        assert (tg.isclose(x, y, equal_nan=equal_nan).numpy() == want).all()
    assert not tg.allclose(x, y)
    assert tg.allclose(tg.tensor([1, 2]), tg.tensor([1.0, 2.0]))
    assert tg.array_equal(tg.arange(3), np.arange(3))
    assert not tg.array_equal(tg.arange(3), tg.arange(4))
    assert tg.isin(tg.arange(5), tg.tensor([[1], [3]])).tolist() == [
        False,
        True,
        False,
        True,
        False,
    ]


def test_numbers_instead_of_what_is_none() -> None:
    for dtype in (tg.float32, tg.float64):
        x = tg.tensor(X).astype(dtype)
        want = np.nan_to_num(x.numpy())
        np.testing.assert_array_equal(tg.nan_to_num(x).numpy(), want)
    assert tg.nan_to_num(tg.tensor(X), 1.0, 2.0, 3.0).tolist()[1] == [2.0, 3.0, 1.0]


@pytest.mark.parametrize("offset", [-2, -1, 0, 1, 3])
def test_diagonals(offset: int) -> None:
    array = np.arange(24.0).reshape(2, 3, 4)
    got = tg.diagonal(tg.tensor(array), offset=offset).numpy()
    np.testing.assert_array_equal(got, np.diagonal(array, offset, -2, -1))


def test_picking_and_products() -> None:
    assert tg.one_hot(tg.tensor([1, 0, 5]), 3).tolist() == [[0, 1, 0], [1, 0, 0], [0, 0, 0]]
    assert tg.dot(tg.tensor([1.0, 2.0]), tg.tensor([3.0, 4.0])).item() == 11.0
    assert tg.positive(tg.tensor([-1.0])).tolist() == [-1.0]
    assert tg.exp2(tg.tensor([3, -1])).tolist() == [8.0, 0.5]
    assert tg.lerp(tg.tensor([0.0]), tg.tensor([4.0]), 0.25).tolist() == [1.0]
    with pytest.raises(errors.InvalidValue, match="one length"):
        tg.dot(tg.ones(2), tg.ones(3))
    with pytest.raises(errors.InvalidType, match=r"integers, got float32 .*test_composed.py:\d+"):
        tg.one_hot(tg.ones(2), 3)


@pytest.mark.parametrize("name", ["leaky_relu", "elu", "logsigmoid", "gelu", "silu", "softplus"])
def test_activations_are_torch_s(name: str) -> None:
    torch = pytest.importorskip("torch")
    array = np.linspace(-30, 30, 41)
    x = tg.tensor(array, requires_grad=True)
    given = torch.tensor(array, requires_grad=True)
    want = getattr(torch.nn.functional, name)(given)
    got = getattr(tg, name)(x)
    np.testing.assert_allclose(got.numpy(), want.detach().numpy(), rtol=1e-9, atol=3e-9)
    slope = tg.autograd.grad(got.sum(), x).numpy()
    (other,) = torch.autograd.grad(want.sum(), given)
    np.testing.assert_allclose(slope, other.numpy(), rtol=1e-8, atol=3e-9)
    assert torch.equal(getattr(tg, name)(given), want)


def test_rms_norm_is_torch_s() -> None:
    torch = pytest.importorskip("torch")
    array = np.random.default_rng(0).standard_normal((3, 4, 5)).astype(np.float32)
    weight = np.linspace(0.5, 2, 5).astype(np.float32)
    want = torch.nn.functional.rms_norm(torch.tensor(array), (5,), torch.tensor(weight))
    got = tg.rms_norm(tg.tensor(array), (5,), tg.tensor(weight))
    np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-6)
