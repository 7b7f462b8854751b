"""Message passing on native tensors of a GPU against the CPU, or as Triton interprets it."""

import os
from typing import Any

import numpy as np
import pytest

import tiga as tg
from tiga import errors

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
pytest.importorskip("triton")
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


class Decay(tg.Reducer):
    """Half of what was, and the message: folded in edge order."""

    def identity(self) -> Any:
        return 0.0

    def combine(self, left: Any, right: Any) -> Any:
        return 0.5 * left + right


class Folded(tg.MessagePassing):
    def edge(self, src: Any, dst: Any, edge: Any) -> Any:
        return Decay()(src.x * edge.w)


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
    return computed(kernel, graph, arrays, device)


def computed(kernel: Any, graph: Any, arrays: list[np.ndarray], device: str) -> list[np.ndarray]:
    x, w = (tg.tensor(a, device=device, requires_grad=True) for a in arrays)
    out = kernel(graph=graph, ndata={"x": x}, edge={"w": w})
    outputs = list(out.values()) if isinstance(out, dict) else [out]
    loss = sum(((o * o).sum() for o in outputs[1:]), (outputs[0] * outputs[0]).sum())
    found = tg.autograd.grad(loss, [x, w], allow_unused=True)
    values = [*outputs, *(g for g in found if g is not None)]
    assert all(v.device == device for v in values)
    return [v.cpu().numpy() for v in values]


@pytest.mark.parametrize("kernel", [Difference, Attention, Several, Folded])
def test_values_and_gradients(kernel: Any) -> None:
    want, got = results(kernel(), "cpu"), results(kernel(), "cuda")
    assert len(want) == len(got) >= 2
    for one, other in zip(got, want, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-4, atol=2e-4)


def test_the_same_bits_again() -> None:
    first, again = results(Difference(), "cuda"), results(Difference(), "cuda")
    assert all(a.tobytes() == b.tobytes() for a, b in zip(first, again, strict=True))


class Network(tg.MessagePassing):
    """Products of node values with a matrix, whose gradients are products of node values too."""

    def __init__(self, weight: Any) -> None:
        super().__init__()
        self.weight = weight

    def edge(self, src: Any, dst: Any, edge: Any) -> Any:
        return tg.mean()(src.x * edge.w)

    def node(self, dst: Any, sent: Any) -> Any:
        return tg.tanh(sent @ self.weight) + dst.x


def network(device: str) -> list[np.ndarray]:
    """The output, its gradients, and the gradient of a loss of those."""
    graph, *arrays = operands()
    given = [*arrays, np.random.default_rng(1).normal(size=(5, 5)).astype(np.float32)]
    x, w, m = (tg.tensor(a, device=device, requires_grad=True) for a in given)
    out = Network(m)(graph=graph, ndata={"x": x}, edge={"w": w})
    first = tg.autograd.grad((out * out).sum(), [x, w, m])
    second = tg.autograd.grad((first[2] * first[2]).sum(), [x, m])
    return [v.cpu().numpy() for v in (out, *first, *second)]


def test_products_of_nodes_and_second_derivatives() -> None:
    for one, other in zip(network("cuda"), network("cpu"), strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-4, atol=2e-4 * np.abs(other).max())


class Told(Network):
    """No other test has its programs, of which kernels share what ran."""

    def edge(self, src: Any, dst: Any, edge: Any) -> Any:
        return tg.mean()(src.x * edge.w - 0.375)


def test_a_kernel_tells_of_what_ran_on_the_gpu() -> None:
    """Of a gradient too whose cotangent is a constant, which is on no device."""
    kernel = Told(tg.ones((5, 5), device="cuda"))
    graph, *arrays = operands()
    x, w = (tg.tensor(a, device="cuda", requires_grad=True) for a in arrays)
    out = kernel(graph=graph, ndata={"x": x}, edge={"w": w})
    tg.autograd.grad(out.sum(), x).realize()
    told = kernel.explain()
    assert told.count("on GPUs:") == 2
    assert "rows of dst on cuda:0 without torch: " in told
    assert all(hasattr(schedule, "over") for schedule in kernel.schedules)
    assert kernel.code().count("@triton.jit") >= 2
    assert INTERPRETED or "tt.func public" in kernel.code("ttir")
    assert '"gf.gather"' in kernel.ir("domain")


class Both(tg.MessagePassing):
    def edge(self, src: Any, dst: Any, edge: Any) -> Any:
        return {"sum": tg.sum()(src.x), "max": tg.max()(src.x)}


def test_prepared_calls_with_several_outputs() -> None:
    indices = (tg.tensor(ends, device="cuda") for ends in ([0, 1], [1, 1]))
    graph = tg.Graph.from_coo(*indices, num_src=2, num_dst=2)
    x = tg.tensor([1.0, 2.0], device="cuda")
    launch = Both().prepare(graph=graph, ndata={"x": x})
    for number in (5.0, 6.0, 7.0):
        x.fill_(number)
        assert launch()["sum"].tolist() == [0.0, 2 * number]
        assert launch.outputs["max"].tolist()[1] == number  # type: ignore[attr-defined]


def ends(device: str, dtype: Any = np.int64) -> list[Any]:
    rng = np.random.default_rng(0)
    indices = rng.integers(0, NODES, (2, EDGES)).astype(dtype)
    indices[1, :270] = 7  # a row that is split
    return [tg.tensor(end, device=device) for end in indices]


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_graphs_from_indices_on_the_device(dtype: Any) -> None:
    src, dst = ends("cuda", dtype)
    graph = tg.Graph.from_coo(src, dst, num_src=NODES, num_dst=NODES)
    same = tg.Graph.from_coo(src.cpu(), dst.cpu(), num_src=NODES, num_dst=NODES)
    assert graph.device == "cuda"
    assert graph.row_ptr.device == "cuda"
    for name in ("row_ptr", "col_idx", "edge_permutation"):
        assert getattr(graph, name).tolist() == np.asarray(getattr(same, name)).tolist()
    assert graph.transpose().row_ptr.tolist() == same.transpose().row_ptr.tolist()
    _, *arrays = operands()
    got, want = (computed(Difference(), g, arrays, "cuda") for g in (graph, same))
    assert all(a.tobytes() == b.tobytes() for a, b in zip(got, want, strict=True))
    assert graph.topology_bytes()["plan"] > 0


def test_graphs_from_rows_on_the_device() -> None:
    pairs = tg.tensor([[1, 0, 1], [0, 0, 1]], device="cuda")
    assert tg.Graph.from_edge_index(pairs).col_idx.tolist() == [1, 0, 1]
    rows, sources = tg.tensor([0, 2, 3], device="cuda"), tg.tensor([1, 0, 1], device="cuda")
    graph = tg.Graph.from_csr(rows, sources, num_src=2)
    assert graph.coo()[1].tolist() == [0, 0, 1]
    assert graph.transpose().edge_permutation.tolist() == [1, 0, 2]


def test_writes_to_indices_are_seen() -> None:
    src, dst = (tg.tensor(end, device="cuda") for end in ([0, 1], [1, 0]))
    graph = tg.Graph.from_coo(src, dst)
    assert graph.col_idx.tolist() == [1, 0]
    src[1] = 0
    assert graph.col_idx.tolist() == [0, 0]


@pytest.mark.parametrize("wrong", [-1, NODES])
def test_a_wrong_index_is_named(wrong: int) -> None:
    src, dst = ends("cuda")
    src[3] = wrong
    with pytest.raises(errors.InvalidIndex, match=f"edge position 3 has value {wrong}"):
        tg.Graph.from_coo(src, dst, num_src=NODES, num_dst=NODES)


def test_indices_on_two_devices_are_refused() -> None:
    src, dst = ends("cuda")
    with pytest.raises(errors.InvalidType, match="must lie on one device"):
        tg.Graph.from_coo(src, dst.cpu())
    with pytest.raises(errors.InvalidType, match="int32 or int64"):
        tg.Graph.from_coo(src.astype(tg.float32), dst)


def test_the_bits_are_those_of_torch() -> None:
    torch = pytest.importorskip("torch")
    if INTERPRETED:
        pytest.skip("torch's tensors of the CPU go through the CPU's kernels")
    device = "cuda"
    graph, *arrays = operands()
    ends = [torch.tensor(np.array(end), device=device) for end in graph.coo()]
    there = tg.Graph.from_coo(*ends, num_src=NODES, num_dst=NODES)
    x, w = (torch.tensor(a, device=device, requires_grad=True) for a in arrays)
    out = Difference()(graph=there, ndata={"x": x}, edge={"w": w})
    found = torch.autograd.grad((out * out).sum(), [x, w])
    want = [v.detach().cpu().numpy() for v in (out, *found)]
    got = results(Difference(), "cuda")
    assert all(a.tobytes() == b.tobytes() for a, b in zip(got, want, strict=True))


def test_expressions_around_calls_are_planned_once() -> None:
    kernel = Difference()
    graph, *arrays = operands()
    x, w = (tg.tensor(a, device="cuda") for a in arrays)
    other = tg.Graph.from_coo(*ends("cpu"), num_src=NODES, num_dst=NODES)
    first = (kernel(graph=graph, ndata={"x": x}, edge={"w": w}) * 2.0).sum().realize()
    again = (kernel(graph=other, ndata={"x": x * 1.0}, edge={"w": w}) * 2.0).sum().realize()
    assert first.execution is not None
    assert again.execution is not None
    assert (first.execution["cache_hit"], again.execution["cache_hit"]) == (False, False)
    third = (kernel(graph=other, ndata={"x": x}, edge={"w": w}) * 2.0).sum().realize()
    assert third.execution is not None
    assert third.execution["cache_hit"]
    assert third.tolist() == again.tolist() != first.tolist()


def test_code_of_calls() -> None:
    graph, *arrays = operands()
    x, w = (tg.tensor(a, device="cuda") for a in arrays)
    out = Several()(graph=graph, ndata={"x": x}, edge={"w": w})
    code = (out["max"] * 2.0 + out["mean"]).generated_code("triton")
    assert code.count("def step0_rows(") == 1
    assert "def kernel(" in code
