"""Results with a row per edge on native tensors."""

from typing import Any

import numpy as np
import pytest

import tiga as tg
from tiga.errors import InvalidType

SRC = np.array([3, 0, 1, 1, 4, 2, 0, 3])
DST = np.array([1, 4, 1, 0, 4, 1, 0, 3])
"""Edges out of the order of their destinations; node 2 has none."""


class Mixed(tg.MessagePassing):
    def edge(self, src: Any, dst: Any, edge: Any) -> Any:
        step = self.along(edge.e + src.x * dst.x)
        return tg.each()(step), tg.sum()(2.0 * step), tg.edge_softmax()(step)

    def along(self, x: Any) -> Any:
        return tg.tanh(x)


class WithNode(Mixed):
    def node(self, dst: Any, aggregate: Any) -> Any:
        step, total, weight = aggregate
        return step, dst.x + total, weight


class Unfused(WithNode):
    def along(self, x: Any) -> Any:
        return tg.tanh(tg.sort(x[:, None], axis=-1)[:, 0])


def expected(kind: type, x: np.ndarray, e: np.ndarray) -> list[np.ndarray]:
    step = np.tanh(e + x[SRC] * x[DST])
    weight, total, whole = np.exp(step), np.zeros(5), np.zeros(5)
    np.add.at(total, DST, 2.0 * step)
    np.add.at(whole, DST, weight)
    return [step, total + (x if issubclass(kind, WithNode) else 0.0), weight / whole[DST]]


@pytest.mark.parametrize("bound", ["64MiB", "1B"])
@pytest.mark.parametrize("kind", [Mixed, WithNode, Unfused])
def test_values_and_gradients(kind: type, bound: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIGA_MEMORY_BOUND", bound)
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=5), rng.normal(size=len(SRC))]
    graph = tg.Graph.from_coo(SRC, DST, num_src=5, num_dst=5)
    x, e = (tg.tensor(array, requires_grad=True) for array in arrays)
    found = kind()(graph=graph, ndata={"x": x}, edge={"e": e})
    for ours, theirs in zip(found, expected(kind, *arrays), strict=True):
        np.testing.assert_allclose(ours.numpy(), theirs, rtol=1e-12)
    weights = [rng.normal(size=ours.shape) for ours in found]
    total = sum((tg.sum(o * tg.tensor(w)) for o, w in zip(found, weights, strict=True)), start=0.0)
    slopes = [slope.numpy() for slope in tg.autograd.grad(total, [x, e])]

    def value(moved: list[np.ndarray]) -> float:
        return sum(
            float((o * w).sum()) for o, w in zip(expected(kind, *moved), weights, strict=True)
        )

    for place, slope in enumerate(slopes):
        for i in range(slope.size):
            step = np.zeros(slope.size)
            step[i] = 1e-6
            ends = [[a + (s * step if n == place else 0.0) for n, a in enumerate(arrays)]
                    for s in (1.0, -1.0)]  # fmt: skip
            difference = (value(ends[0]) - value(ends[1])) / 2e-6
            assert slope[i] == pytest.approx(difference, rel=1e-6, abs=1e-8)


def test_a_node_cannot_compute_with_them() -> None:
    class Adds(Mixed):
        def node(self, dst: Any, aggregate: Any) -> Any:
            return aggregate[0] + dst.x

    graph = tg.Graph.from_coo(SRC, DST, num_src=5, num_dst=5)
    with pytest.raises(InvalidType, match="a row per edge"):
        Adds()(graph=graph, ndata={"x": tg.ones(5)}, edge={"e": tg.ones(len(SRC))})
