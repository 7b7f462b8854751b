"""Loops that update what they differentiate keep no history of earlier rounds."""

from collections.abc import Callable

import pytest

import tiga as tg
from tiga.autograd import grad, hessian, jacobian, jvp, value_and_grad, vjp
from tiga.trace.node import topological


def loss(w: tg.Tensor) -> tg.Tensor:
    return (tg.sin(w) * w).sum()


def by_grad(w: tg.Tensor) -> tg.Tensor:
    w = w if w.requires_grad else w.requires_grad_()
    return (w - 0.1 * grad(loss(w), w)).detach().requires_grad_()


def by_value_and_grad(w: tg.Tensor) -> tg.Tensor:
    _, g = value_and_grad(loss)(w)
    return w - 0.1 * g


def by_vjp(w: tg.Tensor) -> tg.Tensor:
    value, pull = vjp(loss, w)
    return w - 0.1 * pull(tg.ones_like(value))[0]


def by_newton(w: tg.Tensor) -> tg.Tensor:
    curvature = hessian(loss, w)
    _, g = value_and_grad(loss)(w)
    return w - 0.01 * (curvature @ g)


def by_jvp(w: tg.Tensor) -> tg.Tensor:
    _, slope = jvp(loss, (w,), (tg.ones_like(w),))
    return w - 0.1 * slope


def by_jacobian(w: tg.Tensor) -> tg.Tensor:
    return w - 0.1 * jacobian(tg.sin, w).sum(axis=0)


UPDATES = (by_grad, by_value_and_grad, by_vjp, by_newton, by_jvp, by_jacobian)


def size_after(update: Callable[[tg.Tensor], tg.Tensor], rounds: int) -> int:
    w = tg.tensor([0.5, -0.25, 1.5])
    for _ in range(rounds):
        w = update(w)
    return len(topological([w._node]))


@pytest.mark.parametrize("update", UPDATES)
def test_no_history(update: Callable[[tg.Tensor], tg.Tensor]) -> None:
    assert size_after(update, 3) == size_after(update, 40)


def test_a_computed_tensor_that_derivatives_are_asked_for_is_a_leaf() -> None:
    w = (tg.ones(3) * 2.0).requires_grad_()
    assert w.is_leaf
    assert grad((w * w).sum(), w).tolist() == [4.0, 4.0, 4.0]
    assert not w._node.inputs


def test_a_detached_leaf_sees_writes() -> None:
    x = tg.ones(3)
    w = x.detach().requires_grad_()
    before = (w * 2.0).sum()
    x.mul_(5.0)
    assert w.tolist() == [5.0, 5.0, 5.0]
    assert before.tolist() == 6.0


def test_what_else_is_asked_for_stays_connected() -> None:
    scale = tg.tensor(3.0, requires_grad=True)
    value, slope = value_and_grad(lambda x: (scale * x * x).sum())(tg.tensor([2.0]))
    assert value.requires_grad
    assert grad(slope.sum(), scale).tolist() == 4.0
    _, other = value_and_grad(lambda x: (x * x).sum())(tg.tensor([2.0]))
    assert not other.requires_grad


def test_transformations_within_one_another_stay_connected() -> None:
    def inner(x: tg.Tensor) -> tg.Tensor:
        value, slope = value_and_grad(lambda y: (y * y * y).sum())(x)
        _, again = value_and_grad(lambda s: (s * s).sum())(slope)
        return value + again.sum()

    # x^3 + 2 * 3 x^2, whose derivative is 3 x^2 + 12 x
    _, found = value_and_grad(inner)(tg.tensor([2.0]))
    assert found.tolist() == [36.0]
    many = tg.autograd.vmap(lambda x: value_and_grad(inner)(x)[1])(tg.tensor([[1.0], [2.0]]))
    assert many.tolist() == [[15.0], [36.0]]


def test_views_that_are_gone_are_forgotten() -> None:
    x = tg.zeros(10)
    for _ in range(1000):
        x[2:5].tolist()
    assert x._buffer is not None
    assert len(x._buffer.viewers) < 200
    assert len(x._buffer.nodes) < 200
    kept = x[:2]
    x.add_(1.0)
    assert kept.tolist() == [1.0, 1.0]


def test_long_chains_within_transformations() -> None:
    def chain(x: tg.Tensor) -> tg.Tensor:
        for _ in range(600):
            x = x * 1.001
        return (x * x).sum()

    factor = 1.001**1200
    x = tg.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=tg.float64)
    assert tg.autograd.vmap(chain)(x).tolist() == pytest.approx([5 * factor, 25 * factor])
    slopes = tg.autograd.vmap(lambda row: value_and_grad(chain)(row)[1])(x)
    assert slopes.tolist()[1] == pytest.approx([6 * factor, 8 * factor])
    assert hessian(chain, x[0]).tolist()[0] == pytest.approx([2 * factor, 0.0])
