"""Graphs and training on native tensors of one GPU, in a process that cannot load torch.

    python -m benchmarks.gpu_native            # graphs, work lists, steps of training, sorting
    python -m benchmarks.gpu_native --torch    # graphs, work lists, sorting by torch, to compare

Answers are compared first: training with numpy in float64, orders with numpy's. Times are the least
of a few by the host's clock, the device waited for.
"""

import sys

if "--torch" not in sys.argv:
    sys.modules["torch"] = None  # type: ignore[assignment]

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from time import perf_counter
from typing import Any

import numpy as np

import tiga as tg
from tiga.backends.triton.topology import device_walk

NODES, EDGES = 200_000, 10_000_000
REPEATS = 5
Array = np.ndarray


class Layer(tg.MessagePassing):
    """The mean of the neighbours and the node itself, times a matrix."""

    def __init__(self, weight: Any) -> None:
        super().__init__()
        self.weight = weight

    def edge(self, src: Any, dst: Any, edge: Any) -> Any:
        return tg.mean()(src.h)

    def node(self, dst: Any, sent: Any) -> Any:
        return (sent + dst.h) @ self.weight


def best(call: Callable[[], Any], wait: Callable[[], Any], repeats: int = REPEATS) -> float:
    """Milliseconds of a call, the least of a few."""
    times = []
    for _ in range(repeats):
        wait()
        start = perf_counter()
        call()
        wait()
        times.append(perf_counter() - start)
    return 1e3 * min(times)


def edges(nodes: int, count: int) -> tuple[Array, Array]:
    """Random sources, and destinations some of which have very many edges."""
    rng = np.random.default_rng(0)
    heavy = np.minimum(rng.zipf(1.6, count) - 1, nodes - 1)
    return rng.integers(0, nodes, count).astype(np.int32), heavy.astype(np.int32)


def topology(ends: list[Any], platform: Any, wait: Callable[[], Any]) -> None:
    """Times of a graph from its edges, and of both of its work lists."""

    def graph() -> tg.Graph:
        return tg.Graph.from_coo(*ends, num_src=NODES, num_dst=NODES)

    order = graph().edge_permutation
    dst = ends[1].cpu().numpy()
    assert (order.cpu().numpy() == np.argsort(dst, kind="stable")).all()
    print(f"graph of {EDGES} edges: {best(graph, wait):.2f} ms")
    for side in ("dst", "src"):
        times = []
        for _ in range(REPEATS):
            snapshot = graph().snapshot()
            times.append(best(partial(device_walk, snapshot, side, platform), wait, 1))
        print(f"work list of {side}: {min(times):.2f} ms")


def trained(nodes: int, count: int, widths: tuple[int, int, int], steps: int, wait: Any) -> None:
    """Steps of a network of two layers; small ones beside numpy's in float64."""
    rng = np.random.default_rng(1)
    src, dst = edges(nodes, count)
    x = rng.normal(size=(nodes, widths[0])).astype(np.float32)
    y = np.eye(widths[2], dtype=np.float32)[rng.integers(0, widths[2], nodes)]
    matrices = [rng.normal(size=s).astype(np.float32) / np.float32(np.sqrt(s[0]))
                for s in pairwise(widths)]  # fmt: skip
    ends = [tg.tensor(end, device="cuda") for end in (src, dst)]
    graph = tg.Graph.from_coo(*ends, num_src=nodes, num_dst=nodes)
    field, labels = (tg.tensor(a, device="cuda") for a in (x, y))
    weights = [tg.tensor(m, device="cuda", requires_grad=True) for m in matrices]
    layers = [Layer(w) for w in weights]
    losses: list[float] = []

    def step() -> None:
        h = tg.tanh(layers[0](graph=graph, ndata={"h": field}))
        out = layers[1](graph=graph, ndata={"h": h})
        loss = -(tg.log_softmax(out, axis=1) * labels).sum() / nodes
        for w, g in zip(weights, tg.autograd.grad(loss, weights), strict=True):
            w.add_((g * -0.5).detach())
        losses.append(loss.item())

    start = perf_counter()
    step()
    first = perf_counter() - start
    if nodes > 10_000:
        print(f"step of {nodes} nodes, {count} edges: {best(step, wait, steps):.2f} ms "
              f"(the first, with compiling, {first:.2f} s)")  # fmt: skip
        return
    for _ in range(steps - 1):
        step()
    want = reference(src, dst, x, y, matrices, steps)
    error = np.linalg.norm(np.array(losses) - want) / np.linalg.norm(want)
    print(f"{steps} steps differ from float64 by {error:.1e}")
    assert error < 1e-5


def reference(src: Array, dst: Array, x: Array, y: Array, matrices: list[Array], steps: int
              ) -> Array:  # fmt: skip
    """The losses in float64."""
    x, (a, b) = x.astype(np.float64), [m.astype(np.float64) for m in matrices]
    degree = np.maximum(np.bincount(dst, minlength=len(x)), 1)[:, None]
    losses = []

    def collected(values: Array, at: Array, by: Array) -> Array:
        total = np.zeros_like(values)
        np.add.at(total, at, values[by])
        return total

    for _ in range(steps):
        p = collected(x, dst, src) / degree + x
        h = np.tanh(p @ a)
        q = collected(h, dst, src) / degree + h
        z = q @ b
        z = z - np.log(np.exp(z).sum(1, keepdims=True))
        losses.append(-(z * y).sum() / len(x))
        g = (np.exp(z) - y) / len(x)
        g_q = g @ b.T
        g_h = collected(g_q / degree, src, dst) + g_q
        a, b = a - 0.5 * p.T @ (g_h * (1 - h * h)), b - 0.5 * q.T @ g
    return np.array(losses)


def _sorted(x: tg.Tensor) -> None:
    tg.argsort(x).realize()


def unsorted() -> list[Array]:
    """Numbers to sort: floats, whole ones of about 24 bits, and of 64."""
    rng = np.random.default_rng(0)
    normal = rng.normal(size=EDGES) * 1e6
    return [
        normal.astype(np.float32),
        normal.astype(np.int64),
        rng.integers(-(2**63), 2**63, EDGES),
    ]


def sorting(wait: Callable[[], Any]) -> None:
    """Times of sorting whole arrays."""
    for host in unsorted():
        x = tg.tensor(host, device="cuda")
        assert (tg.argsort(x).cpu().numpy() == np.argsort(host, kind="stable")).all()
        took = best(partial(_sorted, x), wait)
        print(f"argsort of {EDGES} numbers in {x.dtype}: {took:.2f} ms")


def sorting_by_torch(wait: Callable[[], Any]) -> None:
    """The same by torch."""
    import torch

    for host in unsorted():
        x = torch.tensor(host).cuda()
        took = best(partial(torch.argsort, x, stable=True), wait)
        print(f"argsort of {EDGES} numbers in {x.dtype}: {took:.2f} ms")


def main() -> None:
    src, dst = edges(NODES, EDGES)
    if "--torch" in sys.argv:
        import torch

        from tiga.runtime.cuda import torch_platform

        ends = [torch.tensor(end).cuda() for end in (src, dst)]
        topology(ends, torch_platform(ends[0].device), torch.cuda.synchronize)
        sorting_by_torch(torch.cuda.synchronize)
        return
    from tiga.backends.triton.machine import machine

    gpu = machine(0)
    topology([tg.tensor(e, device="cuda") for e in (src, dst)], gpu.platform, gpu.synchronize)
    trained(2000, 20_000, (16, 32, 4), 20, gpu.synchronize)
    trained(NODES, 4_000_000, (64, 64, 16), 20, gpu.synchronize)
    sorting(gpu.synchronize)


if __name__ == "__main__":
    main()
