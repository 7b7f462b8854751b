"""Native tensors on a GPU: messages that no walk holds, of graphs there and in files."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch_mlir")

import tiga as tg
from tiga import autograd as ag
from tiga import knobs
from tiga.runtime.driver import has_gpu

NODES, EDGES, WIDTH = 12, 60, 3

pytestmark = pytest.mark.skipif(
    not (has_gpu() or os.environ.get("TRITON_INTERPRET") == "1"), reason="no GPU"
)


class Ordered(tg.MessagePassing):
    """Sorted features times a weight and a tensor of the kernel's own; values of edges, too."""

    def __init__(self, device: str) -> None:
        self.scale = tg.tensor(SCALE, device=device, requires_grad=True)

    def edge(self, src: Any, dst: Any, edge: Any) -> Any:
        sent = tg.sort(src.x * edge.w, axis=1) * self.scale - dst.x
        return {"sum": tg.sum()(sent), "each": tg.each()(sent)}

    def node(self, dst: Any, aggregate: Any) -> Any:
        return {"sum": aggregate["sum"] * dst.x, "each": aggregate["each"]}


SCALE = np.linspace(0.5, 1.5, WIDTH, dtype=np.float32)


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    rng = np.random.default_rng(0)
    dst = np.sort(rng.integers(0, NODES - 2, EDGES))
    src = rng.integers(0, NODES, EDGES)
    x = rng.standard_normal((NODES, WIDTH)).astype(np.float32)
    w = rng.standard_normal((EDGES, 1)).astype(np.float32)
    graph = tg.Graph.from_coo(src, dst, num_src=NODES, num_dst=NODES)
    path = graph.save(tmp_path_factory.mktemp("blocks") / "g", {"src": {"x": x}, "edge": {"w": w}})
    return path, (src, dst, x, w)


def results(graph: Any, x: Any, w: Any, device: str, second: bool = True) -> list[np.ndarray]:
    """What a call gives, its first derivatives, and second ones."""
    kernel = Ordered(device)
    out = kernel(graph=graph, ndata={"x": x}, edge={"w": w})
    leaves = [x, w, kernel.scale]
    total = (out["sum"] * out["sum"]).sum().cpu() + (out["each"] * out["each"]).sum().cpu()
    first = ag.grad(total, leaves)
    found = [out["sum"], out["each"], *first]
    if second:
        found += ag.grad((first[0] * first[0]).sum().cpu(), leaves)
    return [np.array(t.cpu().numpy()) for t in found]


def by_cpu(arrays: Any, second: bool = True) -> list[np.ndarray]:
    src, dst, x, w = arrays
    graph = tg.Graph.from_coo(src, dst, num_src=NODES, num_dst=NODES)
    return results(graph, *(tg.tensor(a, requires_grad=True) for a in (x, w)), "cpu", second)


def close(found: list[np.ndarray], expected: list[np.ndarray]) -> None:
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


def test_a_graph_on_the_device(stored: Any) -> None:
    src, dst, x, w = stored[1]
    ends = (tg.tensor(a, device="cuda") for a in (src, dst))
    graph = tg.Graph.from_coo(*ends, num_src=NODES, num_dst=NODES)
    x, w = (tg.tensor(a, device="cuda", requires_grad=True) for a in (x, w))
    close(results(graph, x, w, "cuda", second=False), by_cpu(stored[1], second=False))


@pytest.mark.parametrize("where", ["file", "device"])
def test_a_graph_in_a_file(where: str, stored: Any, tmp_path: Path) -> None:
    path, arrays = stored
    graph = tg.Graph.open(path, device="cuda")
    mapped = [graph.field("src", "x").numpy(), graph.field("edge", "w").numpy()]
    if where == "file":
        x, w = (tg.from_numpy(a).requires_grad_() for a in mapped)
    else:
        x, w = (tg.tensor(a, device="cuda", requires_grad=True) for a in arrays[2:])
    budgets = {"device": "256KiB", "host": "64KiB"}
    with knobs.scope(memory_bound=1500), tg.execution(memory=budgets, spill_dir=tmp_path) as run:
        found = results(graph, x, w, "cuda")
        report = run.memory_report()
    close(found, by_cpu(arrays))
    assert 0 < report["peak_bytes"]["device"] <= 256 * 2**10
    assert report["peak_bytes"]["host"] <= 64 * 2**10


def test_results_in_files(
    stored: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    from tiga.frontends.tensor.messages import block_rows

    monkeypatch.setattr(block_rows, "HALF", 2**20)  # neither the device nor the host has room
    path, arrays = stored
    graph = tg.Graph.open(path, device="cuda")
    x, w = (tg.from_numpy(graph.field(*n).numpy()) for n in (("src", "x"), ("edge", "w")))
    budgets, kernel = {"device": "64KiB", "host": "64KiB"}, Ordered("cuda")
    with knobs.scope(memory_bound=1500), tg.execution(memory=budgets, spill_dir=tmp_path) as run:
        out = kernel(graph=graph, ndata={"x": x}, edge={"w": w})
        report = run.memory_report()["peak_bytes"]
    assert str(out["each"].device) == "cpu"
    close([out["each"].numpy()], by_cpu(arrays, second=False)[1:2])
    assert report["nvme"] > 0
    assert report["device"] <= 64 * 2**10
