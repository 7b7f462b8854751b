"""Message passing on native tensors, without torch: values, derivatives, what is refused."""

import subprocess
import sys

import numpy as np
import pytest

import tiga as tg
from tests.sending import SendWeighted
from tiga import errors

ag = tg.autograd
RNG = np.random.default_rng(2)
SRC = np.array([0, 1, 2, 2, 4, 4, 1])
DST = np.array([1, 1, 0, 3, 3, 1, 0])
GRAPH = tg.Graph.from_coo(tg.tensor(SRC), tg.tensor(DST), num_src=5, num_dst=5)
X = tg.tensor(RNG.uniform(0.2, 2, (5, 3)))
W = tg.tensor(RNG.uniform(0.2, 2, (7, 1)))
M = tg.tensor(RNG.uniform(-1, 1, (3, 2)))


class Mean(tg.MessagePassing):
    reducer = tg.mean()

    def edge(self, src, dst, edge):
        return tg.tanh(src.x - dst.x) * edge.w

    def node(self, dst, aggregate):
        return aggregate + dst.x * 2.0


class Attention(tg.MessagePassing):
    reducer = tg.softmax()

    def edge(self, src, dst, edge):
        score = (src.x * dst.x).sum(dim=-1)
        return self.reducer(score, src.x)


class Learned(tg.MessagePassing):
    reducer = tg.max()

    def __init__(self, matrix):
        self.matrix = matrix

    def edge(self, src, dst, edge):
        return tg.concat([src.x, dst.x[:, 1:]], axis=1)[:, 1:4] @ self.matrix


class Near(tg.MessagePassing):
    def edge(self, src, dst, edge):
        return tg.mask(tg.sqrt(edge.w) * src.x, edge.w[:, 0] > 1.0)


def scattered(messages: np.ndarray) -> np.ndarray:
    total = np.zeros((5, *messages.shape[1:]))
    np.add.at(total, DST, messages)
    return total


def test_values() -> None:
    x, w = X.numpy(), W.numpy()
    got = SendWeighted(tg.sum())(graph=GRAPH, src={"x": X}, edge={"w": W})
    np.testing.assert_allclose(got.numpy(), scattered(w * x[SRC]))
    count = np.maximum(np.bincount(DST, minlength=5), 1)[:, None]
    want = scattered(np.tanh(x[SRC] - x[DST]) * w) / count + 2 * x
    got = Mean()(graph=GRAPH, ndata={"x": X}, edge={"w": W})
    np.testing.assert_allclose(got.numpy(), want)
    score = np.exp((x[SRC] * x[DST]).sum(-1))
    total = np.maximum(scattered(score), 1e-300)
    want = scattered((score / total[DST])[:, None] * x[SRC])
    np.testing.assert_allclose(Attention()(graph=GRAPH, ndata={"x": X}).numpy(), want)
    got = Near()(graph=GRAPH, src={"x": X}, edge={"w": W})
    np.testing.assert_allclose(got.numpy(), scattered(np.where(w > 1, np.sqrt(w) * x[SRC], 0)))


CALLS = {
    "weighted": lambda x, w, m: SendWeighted(tg.sum())(graph=GRAPH, src={"x": x}, edge={"w": w}),
    "mean": lambda x, w, m: Mean()(graph=GRAPH, ndata={"x": x}, edge={"w": w}),
    "attention": lambda x, w, m: Attention()(graph=GRAPH, ndata={"x": x}),
    "learned": lambda x, w, m: Learned(m)(graph=GRAPH, ndata={"x": x}),
    "masked": lambda x, w, m: Near()(graph=GRAPH, src={"x": x}, edge={"w": w}),
}


@pytest.mark.parametrize("name", sorted(CALLS))
def test_derivatives(name: str) -> None:
    function, values = CALLS[name], [X.numpy(), W.numpy(), M.numpy()]
    weights = tg.tensor(RNG.uniform(-1, 1, function(X, W, M).shape))

    def loss(arrays: list[np.ndarray]) -> float:
        return float((function(*map(tg.tensor, arrays)) * weights).sum())

    leaves = [tg.tensor(a, requires_grad=True) for a in values]
    total = (function(*leaves) * weights).sum()
    found = ag.grad(total, leaves, allow_unused=True)
    for place, gradient in enumerate(found):
        if gradient is None:
            continue
        want = np.zeros_like(values[place])
        for index in np.ndindex(want.shape):
            shifted = []
            for step in (1e-6, -1e-6):
                arrays = [a.copy() for a in values]
                arrays[place][index] += step
                shifted.append(loss(arrays))
            want[index] = (shifted[0] - shifted[1]) / 2e-6
        np.testing.assert_allclose(gradient.numpy(), want, rtol=1e-5, atol=1e-6)


def test_second_derivatives_and_forward_mode() -> None:
    def energy(x: tg.Tensor) -> tg.Tensor:
        return (Mean()(graph=GRAPH, ndata={"x": x}, edge={"w": W}) ** 2).sum()

    x = X.detach().requires_grad_()
    t = tg.tensor(RNG.uniform(-1, 1, (5, 3)))
    first = ag.grad(energy(x), x)
    along = ag.grad((first * t).sum(), x)
    step = 1e-5

    def slope(sign: float) -> np.ndarray:
        y = tg.tensor(X.numpy() + sign * step * t.numpy(), requires_grad=True)
        return ag.grad(energy(y), y).numpy()

    np.testing.assert_allclose(
        along.numpy(), (slope(1) - slope(-1)) / (2 * step), rtol=1e-5, atol=1e-5
    )
    _, tangent = ag.jvp(energy, (X,), (t,))
    np.testing.assert_allclose(tangent.item(), (first * t).sum().item(), rtol=1e-9)


def test_results_are_tensors_like_others() -> None:
    out = tg.softmax(SendWeighted(tg.sum())(graph=GRAPH, src={"x": X}, edge={"w": W}), axis=1)
    np.testing.assert_allclose(out.sum(1).numpy(), 1)


def test_what_is_refused() -> None:
    class Crossing(tg.MessagePassing):
        def edge(self, src, dst, edge):
            return src.x - src.x.sum(0)

    class Branching(tg.MessagePassing):
        def edge(self, src, dst, edge):
            return src.x if src.x.sum().item() > 0 else -src.x

    with pytest.raises(errors.InvalidValue, match=r"first axis"):
        Crossing()(graph=GRAPH, src={"x": X})
    with pytest.raises(errors.InvalidValue, match="has no value yet"):
        Branching()(graph=GRAPH, src={"x": X})
    with pytest.raises(errors.InvalidValue, match="leading extent 5"):
        SendWeighted(tg.sum())(graph=GRAPH, src={"x": X[:4]}, edge={"w": W})
    with pytest.raises(errors.InvalidValue, match=r"edge\.w.*not passed"):
        SendWeighted(tg.sum())(graph=GRAPH, src={"x": X})


def test_no_torch_is_needed() -> None:
    code = (
        "import sys\n"
        "sys.modules['torch'] = None\n"
        "import tiga as tg\n"
        "class Sum(tg.MessagePassing):\n"
        "    def edge(self, src, dst, edge):\n"
        "        return edge.w * src.x\n"
        "graph = tg.Graph.from_csr(tg.tensor([0, 2, 3]), tg.tensor([0, 1, 0]), num_src=2)\n"
        "x = tg.tensor([2.0, 3.0], requires_grad=True)\n"
        "w = tg.tensor([1.0, 2.0, 4.0])\n"
        "out = Sum()(graph=graph, src={'x': x}, dst={}, edge={'w': w})\n"
        "assert out.tolist() == [8.0, 8.0], out.tolist()\n"
        "assert tg.autograd.grad(out.sum(), x).tolist() == [5.0, 2.0]\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
