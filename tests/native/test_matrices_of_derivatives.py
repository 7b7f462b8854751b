"""Jacobians, Hessians and vmap against torch.func, shapes and nesting included."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tiga as tg

torch = pytest.importorskip("torch")
ag = tg.autograd
RNG = np.random.default_rng(21)
A = RNG.standard_normal((4, 3))
B = RNG.standard_normal((2, 3))

# Functions that read the same on both libraries: m is tiga or torch, c makes a constant.
Case = Callable[[Any, Callable[[np.ndarray], Any], Any], Any]
FUNCTIONS: dict[str, tuple[tuple[int, ...], Case]] = {
    "wide": ((3,), lambda m, c, x: m.tanh(c(A) @ x)),
    "narrow": ((4,), lambda m, c, x: m.sin(x @ c(A))[:2]),
    "scalar": ((2, 3), lambda m, c, x: (m.exp(x) * c(B)).sum()),
    "from a scalar": ((), lambda m, c, x: m.sin(x * c(B))),
    "matrices": ((2, 3), lambda m, c, x: x @ c(A).T * 0.5),
    "constant in x": ((3,), lambda m, c, x: m.exp(c(B))),
}


def point(shape: tuple[int, ...]) -> np.ndarray:
    return np.asarray(np.random.default_rng(len(shape)).uniform(-1, 1, shape))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_jacobian(name: str) -> None:
    shape, function = FUNCTIONS[name]
    x = point(shape)
    found = ag.jacobian(lambda v: function(tg, tg.tensor, v), tg.tensor(x))
    want = torch.func.jacrev(lambda v: function(torch, torch.from_numpy, v))(torch.from_numpy(x))
    assert found.shape == tuple(want.shape)
    np.testing.assert_allclose(found.numpy(), want.numpy(), rtol=1e-12, atol=1e-12)


SCALARS: dict[str, tuple[tuple[int, ...], Case]] = {
    "vector": ((4,), lambda m, c, x: (m.sin(x @ c(A)) * (x * x).sum()).sum()),
    "matrix": ((2, 3), lambda m, c, x: (m.exp(x * c(B)) * x.sum()).sum()),
    "linear": ((3,), lambda m, c, x: (c(A) @ x).sum()),
}


@pytest.mark.parametrize("name", SCALARS)
def test_hessian(name: str) -> None:
    shape, function = SCALARS[name]
    x = point(shape)
    found = ag.hessian(lambda v: function(tg, tg.tensor, v), tg.tensor(x))
    want = torch.func.hessian(lambda v: function(torch, torch.from_numpy, v))(torch.from_numpy(x))
    assert found.shape == (*shape, *shape)
    np.testing.assert_allclose(found.numpy(), want.numpy(), rtol=1e-11, atol=1e-11)


def test_vmap_within_vmap() -> None:
    x, y = RNG.standard_normal((3, 2)), RNG.standard_normal((4, 2))

    def pairs(transform: Any, a: Any, b: Any) -> Any:
        inner = lambda u: transform(lambda v: (u * v).sum())(b)  # noqa: E731
        return transform(inner)(a)

    found = pairs(ag.vmap, tg.tensor(x), tg.tensor(y))
    np.testing.assert_allclose(found.numpy(), x @ y.T, rtol=1e-12)


def test_jacobians_of_every_example() -> None:
    x = RNG.standard_normal((5, 3))
    found = ag.vmap(lambda v: ag.jacobian(lambda u: tg.sin(u) * u.sum(), v))(tg.tensor(x))
    one = torch.func.jacrev(lambda u: torch.sin(u) * u.sum())
    want = torch.stack([one(row) for row in torch.from_numpy(x)])
    np.testing.assert_allclose(found.numpy(), want.numpy(), rtol=1e-12, atol=1e-12)


def test_results_of_several_outputs() -> None:
    x = RNG.standard_normal((4, 3))
    total, scaled = ag.vmap(lambda v: (v.sum(), v * 2.0), out_axes=0)(tg.tensor(x))
    np.testing.assert_allclose(total.numpy(), x.sum(1), rtol=1e-12)
    np.testing.assert_array_equal(scaled.numpy(), x * 2.0)
    last = ag.vmap(lambda v: v * 2.0, in_axes=1, out_axes=1)(tg.tensor(x))
    np.testing.assert_array_equal(last.numpy(), x * 2.0)


def test_jacobians_have_derivatives() -> None:
    x = tg.tensor(RNG.standard_normal(3), requires_grad=True)
    matrix = ag.jacobian(lambda v: v * v * v, x)
    slope = ag.grad(matrix.sum(), x)
    np.testing.assert_allclose(slope.numpy(), 6 * x.numpy(), rtol=1e-12)
