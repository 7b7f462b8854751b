"""Message passing on native tensors of a GPU against the CPU, or as Triton interprets it."""

import os
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import tiga as tg
from tiga.runtime.driver import has_gpu

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
pytestmark = pytest.mark.skipif(
    not (INTERPRETED or has_gpu()), reason="no GPU, and Triton does not interpret"
)
pytest.importorskip("torch_mlir")  # the CPU's side of the comparison
NODES, EDGES = 40, 300


class Difference(tg.MessagePassing):
    reducer = tg.sum()

    def edge(self, src: Any, dst: Any, edge: Any) -> Any:
        return tg.relu(src.x - dst.x) * edge.w


class Attention(tg.MessagePassing):
    reducer = tg.softmax()

    def edge(self, src: Any, dst: Any, edge: Any) -> Any:
        return self.reducer((src.x * dst.x).sum(axis=-1), src.x)


class Several(tg.MessagePassing):
    def edge(self, src: Any, dst: Any, edge: Any) -> Any:
        return {"max": tg.max()(src.x * edge.w), "mean": tg.mean()(src.x + dst.x)}


def operands() -> tuple[Any, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    ends = rng.integers(0, NODES, (2, EDGES))
    ends[1, :120] = 7
    graph = tg.Graph.from_coo(ends[0], ends[1], num_src=NODES, num_dst=NODES)
    x = rng.normal(size=(NODES, 5)).astype(np.float32)
    return graph, x, rng.normal(size=(EDGES, 1)).astype(np.float32)


def results(kernel: Any, device: str) -> list[np.ndarray]:
    """Outputs, and gradients of a weighted sum of them."""
    graph, *arrays = operands()
    x, w = (tg.tensor(a, device=device, requires_grad=True) for a in arrays)
    out = kernel(graph=graph, ndata={"x": x}, edge={"w": w})
    outputs = list(out.values()) if isinstance(out, dict) else [out]
    loss = sum(((o * o).sum() for o in outputs[1:]), (outputs[0] * outputs[0]).sum())
    found = tg.autograd.grad(loss, [x, w], allow_unused=True)
    values = [*outputs, *(g for g in found if g is not None)]
    assert all(v.device == device for v in values)
    return [v.cpu().numpy() for v in values]


@pytest.mark.parametrize("kernel", [Difference, Attention, Several])
def test_values_and_gradients(kernel: Any) -> None:
    want, got = results(kernel(), "cpu"), results(kernel(), "cuda")
    assert len(want) == len(got) >= 2
    for one, other in zip(got, want, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-4, atol=2e-4)


def test_the_same_bits_again() -> None:
    first, again = results(Difference(), "cuda"), results(Difference(), "cuda")
    assert all(a.tobytes() == b.tobytes() for a, b in zip(first, again, strict=True))
