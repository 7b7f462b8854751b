"""Results of recorded expressions: known without being built, built when somebody looks."""

import gc
import threading
from collections.abc import Callable
from weakref import ref

import numpy as np
import pytest

import tiga as tg
from tiga.autograd import recorded
from tiga.frontends.tensor.application import Application
from tiga.frontends.tensor.evaluate import realize_all
from tiga.frontends.tensor.lazy import LazyNode, Unbuilt

ag = tg.autograd
RNG = np.random.default_rng(7)
SIZES = {"numpy": (3, 4), "kernel": (40, 1024)}


def given(size: str) -> tuple[tg.Tensor, tg.Tensor, np.ndarray, np.ndarray]:
    shape = SIZES[size]
    a, b = RNG.standard_normal(shape), RNG.standard_normal(shape[1])
    x, w = (tg.from_numpy(one).requires_grad_() for one in (a.copy(), b.copy()))
    return x, w, a, b


def normed(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    centred = a - a.mean(1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(1, keepdims=True) + 1e-5) * b


def slopes(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The gradients of `(layer_norm(x, weight=w) ** 2).sum()`."""
    centred = a - a.mean(1, keepdims=True)
    root = np.sqrt((centred**2).mean(1, keepdims=True) + 1e-5)
    unit = centred / root
    passed = 2 * unit * b * b
    own = passed - passed.mean(1, keepdims=True) - unit * (passed * unit).mean(1, keepdims=True)
    return own / root, (2 * unit * unit * b).sum(0)


def norm(x: tg.Tensor, w: tg.Tensor) -> tg.Tensor:
    return tg.layer_norm(x, x.shape[1], w)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("known", ["nothing", "value", "one slope", "both"])
def test_what_is_known_before_changes_no_value(size: str, known: str) -> None:
    for _ in range(3):
        x, w, a, b = given(size)
        y = norm(x, w)
        if known in ("value", "both"):
            y.realize()
        dx, dw = ag.grad((y * y).sum(), (x, w))
        if known in ("one slope", "both"):
            dw.realize()
        second = ag.grad((dx * dx).sum() + (dw * dw).sum(), w)
        for found, want in zip((dx, dw), slopes(a, b), strict=True):
            np.testing.assert_allclose(found.numpy(), want, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(y.numpy(), normed(a, b), rtol=1e-9, atol=1e-12)
        ends = []
        for step in (1e-5, -1e-5):
            moved = b.copy()
            moved[2] += step
            ends.append(sum((slope**2).sum() for slope in slopes(a, moved)))
        assert second.numpy()[2] == pytest.approx((ends[0] - ends[1]) / 2e-5, rel=1e-5)


def test_results_are_built_when_they_are_looked_at() -> None:
    x, w, a, b = given("kernel")
    for _ in range(2):
        norm(x, w).realize()  # recorded, and compiled as an application
    y = norm(x, w)
    node = y._node
    assert node.__class__ is Unbuilt
    y.realize()
    assert node.__class__ is Unbuilt  # a kernel was found by the application alone
    assert node.op.name == "mul"
    assert node.__class__ is LazyNode
    assert not isinstance(node.inputs[0], Application)
    np.testing.assert_allclose(y.numpy(), normed(a, b), rtol=1e-9, atol=1e-12)


def test_results_of_one_application_share_what_is_below() -> None:
    for _ in range(2):
        x, w, *_ = given("kernel")
        y = norm(x, w)
        found = ag.grad(y, (x, w), grad_output=tg.ones(y.shape, dtype=y.dtype))
    above, below = (set() for _ in range(2))
    for tensor, reached in zip((y, found[0]), (above, below), strict=True):
        stack = [tensor._node]
        while stack:
            node = stack.pop()
            reached.add(node)
            stack += node.inputs
    inner = {node for node in above & below if node.inputs}
    assert inner  # the derivative reads values of the forward expression, not copies of them


@pytest.mark.parametrize("size", SIZES)
def test_how_results_came_about_is_told_as_before(size: str) -> None:
    told = []
    for _ in range(2):
        x, w, *_ = given(size)
        y = norm(x, w)
        dx, dw = ag.grad((y * y).sum(), (x, w))
        realize_all([y, dx, dw])
        told.append([(t.expression(), t.mlir(), t.execution["semantic_hash"]) for t in (y, dx, dw)])
    assert told[0] == told[1]


def test_results_can_be_prepared() -> None:
    for early in (True, False):
        x, w, a, b = given("kernel")
        norm(x, w)
        y = norm(x.detach(), w.detach()) if early else norm(x, w)
        if not early:
            y.realize()
        run = y.prepare()
        np.testing.assert_allclose(run().numpy(), normed(a, b), rtol=1e-9, atol=1e-12)


def test_a_write_leaves_results_their_old_values() -> None:
    for _ in range(2):
        x, w, a, b = given("kernel")
        fixed = x.detach()
        y = norm(fixed, w)
        (dw,) = ag.grad((y * y).sum(), (w,))
        fixed.mul_(3.0)
        np.testing.assert_allclose(dw.numpy(), slopes(a, b)[1], rtol=1e-9)
        np.testing.assert_allclose(y.numpy(), normed(a, b), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("budget", [0, 20_000, 10**9])
def test_checkpoints_see_through_results(budget: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIGA_CHECKPOINT_BUDGET_BYTES", str(budget))
    for _ in range(2):
        x, w, a, b = given("numpy")
        y = norm(x, w)
        dx = ag.grad((y * y).sum(), x)
        np.testing.assert_allclose(dx.numpy(), slopes(a, b)[0], rtol=1e-9, atol=1e-9)
        assert dx.execution["checkpoint_plan"]["planned_saved_bytes"] <= budget


def test_results_hold_no_longer_than_nodes_would() -> None:
    for _ in range(2):
        x, w, *_ = given("kernel")
        y = norm(x, w)
        dx = ag.grad(y, x, grad_output=tg.ones(y.shape, dtype=y.dtype))
        realize_all([y, dx])
        gone = [ref(one.numpy()) for one in (x, y, dx)]
        del y
        gc.collect()
        assert gone[1]() is None  # no derivative reads it
        del x, dx
        assert [one() for one in gone] == [None, None, None]


def run_all(work: Callable[[], None], count: int) -> None:
    failed: list[BaseException] = []

    def caught() -> None:
        try:
            work()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=caught) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]


def test_threads_build_the_same_results() -> None:
    x, w, a, b = given("numpy")
    norm(x, w)
    for _ in range(20):
        y = norm(x, w)
        dx, dw = ag.grad((y * y).sum(), (x, w))

        def work(found: tuple[tg.Tensor, ...] = (dx, dw)) -> None:
            for tensor, want in zip(found, slopes(a, b), strict=True):
                assert tensor._node.op is not None
                np.testing.assert_allclose((tensor * 1.0).numpy(), want, rtol=1e-9, atol=1e-9)

        run_all(work, 3)


def test_derivatives_of_many_orders_do_not_recurse(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorded, "RECORDS", {})
    for _ in range(2):
        x = tg.tensor([0.3], requires_grad=True)
        w = tg.tensor([0.5], requires_grad=True)
        for _ in range(30):  # an inner loop, each step of which is differentiated through
            loss = (tg.softmax(tg.stack([w * x, w]), axis=0)[0]).sum()
            w = w - 0.1 * ag.grad(loss, w)
        (outer,) = ag.grad(w.sum(), (x,))
        first = outer.item()
    assert np.isfinite(first)
    assert first != 0.0
