"""Messages that no walk holds, made again block by block for derivatives: values, every derivative
and the memory that they take."""

import gc
import tracemalloc
import weakref

import numpy as np
import pytest

import tiga as tg
from tiga import autograd as ag

RNG = np.random.default_rng(8)
NODES, COUNT, WIDTH = 6, 40, 4
SRC, DST = RNG.integers(0, NODES, COUNT), RNG.integers(0, NODES, COUNT)
GRAPH = tg.Graph.from_coo(SRC, DST, num_src=NODES, num_dst=NODES)
X, W = RNG.uniform(0.5, 2.0, (NODES, WIDTH)), RNG.uniform(-1, 1, (COUNT, 1))


class Ordered(tg.MessagePassing):
    """Sorted features times a weight, scaled by a tensor of the kernel's own."""

    def __init__(self, scale: tg.Tensor) -> None:
        self.scale = scale
        self.reducer = tg.sum()

    def edge(self, src, dst, edge):
        return tg.sort(src.x * src.x, axis=1) * edge.w * self.scale + dst.x


def value(x: tg.Tensor, w: tg.Tensor, scale: tg.Tensor) -> tg.Tensor:
    out = Ordered(scale)(graph=GRAPH, ndata={"x": x}, edge={"w": w})
    return (out * out).sum()


def by_hand(x: np.ndarray, w: np.ndarray, scale: np.ndarray) -> float:
    out = np.zeros((NODES, WIDTH))
    np.add.at(out, DST, np.sort(x[SRC] ** 2, axis=1) * w * scale + x[DST])
    return float((out**2).sum())


def slopes(x: np.ndarray, w: np.ndarray, scale: np.ndarray, step: float = 1e-6) -> list[np.ndarray]:
    """By central differences."""
    operands, found = [x, w, scale], []
    for place, operand in enumerate(operands):
        slope = np.zeros_like(operand)
        for at in np.ndindex(operand.shape):
            ends = []
            for sign in (1, -1):
                moved = operand.copy()
                moved[at] += sign * step
                ends.append(by_hand(*operands[:place], moved, *operands[place + 1 :]))
            slope[at] = (ends[0] - ends[1]) / (2 * step)
        found.append(slope)
    return found


@pytest.mark.parametrize("bound", [None, 300, 2000])
@pytest.mark.parametrize("backend", ["auto", "native", "python"])
def test_first_derivatives(
    bound: int | None, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIGA_TENSOR_BACKEND", backend)
    if bound is not None:
        monkeypatch.setenv("TIGA_MEMORY_BOUND", str(bound))
    scale = RNG.uniform(0.5, 1.5, WIDTH)
    operands = [tg.tensor(a, requires_grad=True) for a in (X, W, scale)]
    total = value(*operands)
    np.testing.assert_allclose(total.item(), by_hand(X, W, scale), rtol=1e-12)
    for got, want in zip(ag.grad(total, operands), slopes(X, W, scale), strict=True):
        np.testing.assert_allclose(got.numpy(), want, rtol=1e-6, atol=1e-6)


def test_nothing_of_the_first_call_is_kept_alive() -> None:
    """An error that is kept would keep the calls that it went through, down to the user's."""

    class Local:
        pass

    def first_call() -> weakref.ref:
        local = Local()
        value(*(tg.tensor(a) for a in (X, W, np.ones(WIDTH))))
        return weakref.ref(local)

    found = first_call()
    gc.collect()
    assert found() is None


@pytest.mark.parametrize("bound", [500, 1 << 20])
def test_second_and_forward_derivatives(bound: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where all fits at once: the gradient then has the type of the result."""
    monkeypatch.setenv("TIGA_MEMORY_BOUND", str(bound))
    scale = np.ones(WIDTH)
    v = RNG.uniform(-1, 1, X.shape)
    x = tg.tensor(X, requires_grad=True)
    w, s = tg.tensor(W), tg.tensor(scale)
    slope = ag.grad(value(x, w, s), x)
    curved = ag.grad((slope * tg.tensor(v)).sum(), x).numpy()
    step = 1e-5
    ends = [slopes(X + sign * step * v, W, scale)[0] for sign in (1, -1)]
    np.testing.assert_allclose(curved, (ends[0] - ends[1]) / (2 * step), rtol=1e-3, atol=0.1)
    _, moved = ag.jvp(lambda a: value(a, w, s), (tg.tensor(X),), (tg.tensor(v),))
    np.testing.assert_allclose(moved.item(), (slopes(X, W, scale)[0] * v).sum(), rtol=1e-6)

    def along(a: tg.Tensor) -> tg.Tensor:
        return ag.jvp(lambda b: value(b, w, s), (a,), (tg.tensor(v),))[1]

    _, twice = ag.jvp(along, (tg.tensor(X),), (tg.tensor(v),))
    np.testing.assert_allclose(twice.item(), (curved * v).sum(), rtol=1e-9)


def test_a_field_that_is_computed_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIGA_MEMORY_BOUND", "300")
    base = tg.tensor(X, requires_grad=True)
    x = tg.exp(base * 0.1)
    total = value(x, tg.tensor(W), tg.ones(WIDTH, dtype=tg.float64))
    got = ag.grad(total, base).numpy()
    inner = np.exp(X * 0.1)
    want = slopes(inner, W, np.ones(WIDTH))[0] * inner * 0.1
    np.testing.assert_allclose(got, want, rtol=1e-6)


def test_messages_are_not_kept_for_derivatives(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes, count, width = 100, 40_000, 64
    src, dst = RNG.integers(0, nodes, count), RNG.integers(0, nodes, count)
    graph = tg.Graph.from_coo(src, dst, num_src=nodes, num_dst=nodes)
    x = tg.tensor(RNG.uniform(0.5, 2, (nodes, width)).astype(np.float32), requires_grad=True)
    w = tg.tensor(RNG.uniform(-1, 1, (count, 1)).astype(np.float32))
    messages = 4 * count * width
    monkeypatch.setenv("TIGA_MEMORY_BOUND", str(messages // 8))

    def step() -> None:
        out = Ordered(tg.ones(width))(graph=graph, ndata={"x": x}, edge={"w": w})
        ag.grad((out * out).sum(), x).realize()

    step()
    tracemalloc.start()
    step()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < messages  # the order of sorting alone would take twice that
