"""Native tensors on graphs in files, on a CPU and a GPU: the bits of the graph in memory there."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch_mlir")

import tiga as tg
from tiga.runtime.driver import has_gpu

NODES, WIDTH = 60, 4
DEVICES = ["cpu", "cuda"] if has_gpu() or os.environ.get("TRITON_INTERPRET") == "1" else ["cpu"]


class Weighted(tg.MessagePassing):
    def edge(self, src: Any, dst: Any, edge: Any) -> Any:
        return tg.relu(src.x - dst.x) * edge.w.reshape(-1, 1)


class Ends(tg.MessagePassing):
    def edge(self, src: Any, dst: Any, edge: Any) -> Any:
        return tg.mean()(src.x * edge.w.reshape(-1, 1)), tg.max()(src.x)

    def node(self, dst: Any, aggregate: Any) -> Any:
        average, largest = aggregate
        return {"average": tg.tanh(average), "largest": largest + dst.x}


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """A graph's file with its fields, and the index arrays."""
    rng = np.random.default_rng(0)
    degree = rng.integers(0, 9, NODES)
    degree[[3, 30]] = 300, 0
    dst = np.repeat(np.arange(NODES), degree)
    src = rng.integers(0, NODES, len(dst))
    graph = tg.Graph.from_coo(src, dst, num_src=NODES, num_dst=NODES)
    x = rng.standard_normal((NODES, WIDTH)).astype(np.float32)
    w = rng.standard_normal(len(dst)).astype(np.float32)
    path = graph.save(tmp_path_factory.mktemp("pages") / "g", {"src": {"x": x}, "edge": {"w": w}})
    return path, (src, dst, x, w)


def in_memory(arrays: Any, device: str) -> tuple[Any, Any, Any]:
    src, dst, x, w = arrays
    if device == "cpu":
        graph = tg.Graph.from_coo(src, dst, num_src=NODES, num_dst=NODES)
    else:
        ends = (tg.tensor(a, device=device) for a in (src, dst))
        graph = tg.Graph.from_coo(*ends, num_src=NODES, num_dst=NODES)
    return graph, *(tg.tensor(a, device=device, requires_grad=True) for a in (x, w))


def results(kernel: Any, graph: Any, x: Any, w: Any) -> list[np.ndarray]:
    """What a call gives, and its gradients."""
    out = kernel(graph=graph, ndata={"x": x}, edge={"w": w})
    outs = list(out.values()) if isinstance(out, dict) else [out]
    loss = sum(((o * o).sum().cpu() for o in outs), start=tg.tensor(0.0))
    gradients = tg.autograd.grad(loss, [x, w])
    return [np.array(t.cpu().numpy()) for t in (*outs, *gradients)]


def same_bits(found: list[np.ndarray], expected: list[np.ndarray]) -> bool:
    return all(a.tobytes() == b.tobytes() for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kernel", [Weighted, Ends])
@pytest.mark.parametrize("budget", [None, "24KiB"])
def test_gradients(kernel: Any, device: str, budget: str | None, stored: Any) -> None:
    """Fields in the file, and where the graph runs; results on the device and in files."""
    path, arrays = stored
    graph = tg.Graph.open(path, device=device)
    expected = results(kernel(), *in_memory(arrays, device))
    mapped = [graph.field("src", "x"), graph.field("edge", "w")]
    in_file = [tg.from_numpy(field.numpy()).requires_grad_() for field in mapped]
    there = in_memory(arrays, device)[1:]
    tiers = ("host",) if device == "cpu" else ("device", "host-pinned")
    with tg.execution(memory={} if budget is None else dict.fromkeys(tiers, budget)) as scope:
        assert same_bits(results(kernel(), graph, *in_file), expected)
        report = scope.memory_report()
    assert same_bits(results(kernel(), graph, *there), expected)
    for tier, most in report["budget_bytes"].items():
        assert most is None or report["peak_bytes"][tier] <= most


@pytest.mark.parametrize("device", DEVICES)
def test_second_derivatives(device: str, stored: Any) -> None:
    path, arrays = stored

    def twice(graph: Any, x: Any, w: Any) -> np.ndarray:
        out = Weighted()(graph=graph, ndata={"x": x}, edge={"w": w})
        (first,) = tg.autograd.grad((out * out).sum(), [x])
        (second,) = tg.autograd.grad((first * first).sum(), [w])
        return np.array(second.cpu().numpy())

    graph, (_, x, w) = tg.Graph.open(path, device=device), in_memory(arrays, device)
    assert twice(graph, x, w).tobytes() == twice(*in_memory(arrays, device)).tobytes()


@pytest.mark.parametrize("device", DEVICES)
def test_fields_of_the_file_as_they_are(device: str, stored: Any) -> None:
    path, arrays = stored
    graph, (memory, x, w) = tg.Graph.open(path, device=device), in_memory(arrays, device)
    kernel = Weighted()
    out = kernel(graph=graph, ndata=graph.fields["src"], edge={"w": w})
    assert np.array_equal(
        out.cpu().numpy(), kernel(graph=memory, ndata={"x": x}, edge={"w": w}).cpu().numpy()
    )
    assert "pages" in kernel.explain()


@pytest.mark.parametrize("device", DEVICES)
def test_what_was_written_to_a_mapped_tensor_counts(device: str, stored: Any) -> None:
    path, arrays = stored
    graph, (memory, x, w) = tg.Graph.open(path, device=device), in_memory(arrays, device)
    mapped = tg.from_numpy(graph.field("src", "x").numpy())
    mapped += 1.0
    out = Weighted()(graph=graph, ndata={"x": mapped}, edge={"w": w})
    expected = Weighted()(graph=memory, ndata={"x": x.detach() + 1.0}, edge={"w": w})
    assert np.array_equal(out.cpu().numpy(), expected.cpu().numpy())


def test_an_operand_elsewhere_is_named(stored: Any) -> None:
    if "cuda" not in DEVICES:
        pytest.skip("no GPU, and TRITON_INTERPRET=1 is not set")
    path, arrays = stored
    _, x, w = in_memory(arrays, "cuda")
    with pytest.raises(tg.errors.InvalidValue, match="device='cuda'"):
        Weighted()(graph=tg.Graph.open(path), ndata={"x": x}, edge={"w": w})


ALONE = """
import sys
sys.modules["torch"] = None
import numpy as np
import tiga as tg

class Weighted(tg.MessagePassing):
    def edge(self, src, dst, edge):
        return src.x * edge.w.reshape(-1, 1)

graph = tg.Graph.open(sys.argv[1], device=sys.argv[2])
x, w = (tg.from_numpy(graph.field(*name).numpy()) for name in (("src", "x"), ("edge", "w")))
with tg.execution(memory={"device": "24KiB", "host-pinned": "24KiB"}):
    out = Weighted()(graph=graph, src=graph.fields["src"], edge=graph.fields["edge"])
    w.requires_grad_()
    loss = (Weighted()(graph=graph, src={"x": x}, edge={"w": w}) ** 2).sum()
    (gradient,) = tg.autograd.grad(loss, [w])
np.savez(sys.argv[3], out=out.cpu().numpy(), gradient=gradient.cpu().numpy())
"""


@pytest.mark.parametrize("device", DEVICES)
def test_without_torch(device: str, stored: Any, tmp_path: Path) -> None:
    path, (src, dst, x, w) = stored
    run = [sys.executable, "-c", ALONE, str(path), device, str(tmp_path / "found.npz")]
    done = subprocess.run(run, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = np.load(tmp_path / "found.npz")
    order = np.argsort(dst, kind="stable")
    sums = np.zeros((NODES, WIDTH))
    np.add.at(sums, dst, x[src] * w[:, None].astype(np.float64))
    np.testing.assert_allclose(found["out"], sums, rtol=1e-4, atol=1e-4)
    expected = 2 * (sums[dst] * x[src]).sum(-1)
    np.testing.assert_allclose(found["gradient"], expected[order], rtol=1e-3, atol=1e-3)
