"""What surrounds a run on a GPU: streams, capture, compilers, memory, bad input."""

import gc
import warnings
from contextlib import contextmanager

import pytest
import torch

import tiga as tg
from tests.gpu import harness
from tiga.errors import InvalidIndex, InvalidType, InvalidValue, OutOfBudget

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        harness.device() is None or harness.device().type != "cuda", reason="needs a GPU"
    ),
]
NODES, EDGES, WIDTH = 300, 4000, 16


class Difference(tg.MessagePassing):
    reducer = tg.sum()

    def edge(self, src, dst, edge):
        return torch.relu(src.x - dst.x) * 0.5


class Learned(tg.MessagePassing, torch.nn.Module):
    reducer = tg.mean()

    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.randn(WIDTH))
        self.project = torch.nn.Linear(WIDTH, WIDTH)

    def edge(self, src, dst, edge):
        return torch.relu(self.project(src.x) - dst.x) * self.scale * edge.w[:, None]


def ends(device="cuda"):
    return torch.randint(0, NODES, (2, EDGES), device=device)


def graph_of(src, dst):
    return tg.Graph.from_coo(src, dst, num_src=NODES, num_dst=NODES)


def expected(x, src, dst):
    message = torch.relu(x[src] - x[dst]) * 0.5
    return torch.zeros_like(x).index_add(0, dst, message)


@pytest.fixture
def case():
    torch.manual_seed(1)
    src, dst = ends()
    return graph_of(src, dst), torch.randn(NODES, WIDTH, device="cuda"), src, dst


def test_a_graph_is_built_where_its_indices_are(case):
    graph, x, src, dst = case
    snapshot = graph.snapshot()
    assert "host" not in snapshot.derived
    out = Difference()(graph=graph, ndata={"x": x})
    torch.testing.assert_close(out, expected(x, src, dst))
    assert "host" not in snapshot.derived
    assert graph.edge_permutation.is_cuda
    here = graph_of(src.cpu(), dst.cpu())
    assert torch.equal(graph.edge_permutation.cpu(), here.edge_permutation)
    parts = graph.topology_bytes()
    assert parts["plan"] > 0
    assert parts["csr"] >= 4 * EDGES


@pytest.mark.parametrize("place", [0, EDGES - 1])
def test_an_index_out_of_range_is_named_and_harms_nothing(case, place):
    graph, x, src, dst = case
    wrong = src.clone()
    wrong[place] = NODES
    with pytest.raises(InvalidIndex, match=rf"edge position {place} has value {NODES}"):
        graph_of(wrong, dst)
    torch.cuda.synchronize()
    torch.testing.assert_close(Difference()(graph=graph, ndata={"x": x}), expected(x, src, dst))


def test_edits_in_place_are_seen_and_checked(case):
    graph, x, src, dst = case
    kernel = Difference()
    kernel(graph=graph, ndata={"x": x})
    src.copy_(src.flip(0))
    torch.testing.assert_close(kernel(graph=graph, ndata={"x": x}), expected(x, src, dst))
    src[3] = -1
    with pytest.raises(InvalidIndex, match="edge position 3 has value -1"):
        kernel(graph=graph, ndata={"x": x})
    src[3] = 0
    torch.testing.assert_close(kernel(graph=graph, ndata={"x": x}), expected(x, src, dst))


def test_fields_in_any_layout(case):
    graph, x, src, dst = case
    wide = torch.randn(NODES, 2 * WIDTH + 1, device="cuda")
    for field in (wide[:, 1::2][:, :WIDTH], wide[:, 1 : WIDTH + 1], x.T.contiguous().T):
        out = Difference()(graph=graph, ndata={"x": field})
        torch.testing.assert_close(out, expected(field.contiguous(), src, dst))


def test_devices_that_do_not_meet(case):
    graph, x, src, dst = case
    with pytest.raises(InvalidType, match="one device"):
        graph_of(src, dst.cpu())
    with pytest.raises(NotImplementedError, match=r"`ndata\.x` is on cuda:0, but the"):
        Difference()(graph=graph_of(src.cpu(), dst.cpu()), ndata={"x": x})
    with pytest.raises(NotImplementedError, match="where `edge` reads it: move"):
        Learned()(graph=graph, ndata={"x": x}, edge={"w": torch.ones(EDGES, device="cuda")})
    with pytest.raises(InvalidValue, match="its first axis"):
        Difference()(graph=graph, ndata={"x": x[1:]})
    torch.testing.assert_close(Difference()(graph=graph, ndata={"x": x}), expected(x, src, dst))


def test_no_memory_left(case):
    graph, x, src, dst = case
    kernel = Difference()
    kernel(graph=graph, ndata={"x": x})
    torch.cuda.empty_cache()
    width = 2**20
    big = torch.zeros(1, width, device="cuda").expand(NODES, width).to(torch.float16)
    _, total = torch.cuda.mem_get_info()
    used = torch.cuda.memory_allocated()
    try:
        torch.cuda.set_per_process_memory_fraction((used + 2**28) / total)
        with pytest.raises(OutOfBudget, match="for its outputs") as refusal:
            kernel(graph=graph, ndata={"x": big})
        assert isinstance(refusal.value, torch.OutOfMemoryError)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    torch.testing.assert_close(kernel(graph=graph, ndata={"x": x}), expected(x, src, dst))


def test_what_a_graph_holds_on_the_device_goes_with_it(case):
    graph, x, src, dst = case
    kernel = Difference()
    kernel(graph=graph, ndata={"x": x})
    del graph
    gc.collect()
    before = torch.cuda.memory_allocated()
    for _ in range(3):
        other = graph_of(src, dst)
        for _ in range(2):
            kernel(graph=other, ndata={"x": x})
        del other
    gc.collect()
    # The case of the fixture holds its graph still.
    assert torch.cuda.memory_allocated() <= before + 4096


def test_streams_and_threads(case):
    from concurrent.futures import ThreadPoolExecutor

    graph, x, src, dst = case
    kernel, fields = Difference(), [torch.randn_like(x) for _ in range(4)]
    kernel(graph=graph, ndata={"x": x})
    torch.cuda.synchronize()

    def work(field):
        stream = torch.cuda.Stream()
        with torch.no_grad(), torch.cuda.stream(stream):
            outs = [kernel(graph=graph, ndata={"x": field}) for _ in range(50)]
        stream.synchronize()
        return outs

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(work, fields))
    for field, outs in zip(fields, found, strict=True):
        wanted = expected(field, src, dst)
        assert all(torch.equal(out, outs[0]) for out in outs)
        torch.testing.assert_close(outs[0], wanted)


def test_a_warm_call_waits_for_nothing(case):
    graph, x, *_ = case
    kernel, x = Difference(), x.requires_grad_()
    kernel(graph=graph, ndata={"x": x}).sum().backward()
    with waits_refused():
        kernel(graph=graph, ndata={"x": x}).sum().backward()
        with torch.no_grad():
            kernel(graph=graph, ndata={"x": x})


@contextmanager
def waits_refused():
    """Whatever waits for the device raises."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch calls the mode a prototype
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_a_step_captured_in_a_cuda_graph(case):
    graph, x, *_ = case
    kernel = Learned().cuda()
    x, w = x.requires_grad_(), torch.rand(EDGES, device="cuda")

    def step():
        out = kernel(graph=graph, ndata={"x": x}, edge={"w": w})
        return out, *torch.autograd.grad(out.square().sum(), [x, *kernel.parameters()])

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        # Without its graph, whose nodes belong to this stream.
        wanted = [t.detach().clone() for t in step()]
    torch.cuda.current_stream().wait_stream(side)
    recorded = torch.cuda.CUDAGraph()
    with torch.cuda.graph(recorded):
        found = step()
    recorded.replay()
    for got, want in zip(found, wanted, strict=True):
        assert torch.equal(got, want)


def test_compiled_without_breaks(case):
    graph, x, *_ = case
    kernel, w = Learned().cuda(), torch.rand(EDGES, device="cuda")

    def function(x, w):
        return kernel(graph=graph, ndata={"x": x.sin()}, edge={"w": w}).cos()

    compiled = torch.compile(function, fullgraph=True)
    results = []
    for run in (function, compiled, compiled):
        leaf = x.clone().requires_grad_()
        out = run(leaf, w)
        results.append([out, *torch.autograd.grad(out.sum(), [leaf, *kernel.parameters()])])
    for got in results[1:]:
        for a, b in zip(got, results[0], strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast(case, dtype):
    graph, x, src, dst = case
    kernel, w = Learned().cuda(), torch.rand(EDGES, device="cuda")
    leaf = x.clone().requires_grad_()
    with torch.autocast("cuda", dtype=dtype):
        out = kernel(graph=graph, ndata={"x": leaf}, edge={"w": w})
        sent = torch.relu(kernel.project(leaf)[src] - leaf[dst]) * kernel.scale * w[:, None]
    count = torch.bincount(dst, minlength=NODES).clamp(min=1)[:, None]
    wanted = torch.zeros(NODES, WIDTH, device="cuda").index_add(0, dst, sent.float()) / count
    assert out.dtype == sent.dtype
    torch.testing.assert_close(out.float(), wanted, rtol=3e-2, atol=3e-2)
    (gradient,) = torch.autograd.grad(out.float().sum(), leaf)
    assert gradient.dtype == torch.float32


def test_batches_of_samples(case):
    graph, _, src, dst = case
    kernel, many = Difference(), torch.randn(3, NODES, WIDTH, device="cuda")
    out = torch.func.vmap(lambda x: kernel(graph=graph, ndata={"x": x}))(many)
    for got, sample in zip(out, many, strict=True):
        torch.testing.assert_close(got, expected(sample, src, dst))


def test_what_no_program_holds_runs_in_blocks(case):
    graph, x, src, dst = case

    class Sorted(tg.MessagePassing):
        def edge(self, src, dst, edge):
            return (src.x - dst.x).cummax(1).values

    leaf = x.clone().requires_grad_()
    out = Sorted()(graph=graph, ndata={"x": leaf})
    other = x.clone().requires_grad_()
    message = (other[src] - other[dst]).cummax(1).values
    wanted = torch.zeros_like(x).index_add(0, dst, message)
    torch.testing.assert_close(out, wanted)
    torch.testing.assert_close(
        torch.autograd.grad(out, leaf, x)[0], torch.autograd.grad(wanted, other, x)[0],
        rtol=1e-3, atol=1e-4,
    )  # fmt: skip


def test_numbers_that_change(case):
    graph, x, src, dst = case

    class Scaled(tg.MessagePassing):
        def edge(self, src, dst, edge, scale):
            return src.x * scale

    kernel = Scaled()
    for scale in (0.5, -0.0, 3.0, 0.5):
        out = kernel(graph=graph, ndata={"x": x}, scale=scale)
        wanted = torch.zeros_like(x).index_add(0, dst, x[src] * scale)
        torch.testing.assert_close(out, wanted)


def test_measured_tiles(case, monkeypatch, tmp_path):
    graph, x, src, dst = case
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    class Product(tg.MessagePassing):
        def edge(self, src, dst, edge):
            return src.x * dst.x

    kernel = Product()
    with tg.knobs.scope(autotune=True), torch.no_grad():
        out = kernel(graph=graph, ndata={"x": x})
    wanted = torch.zeros_like(x).index_add(0, dst, x[src] * x[dst])
    torch.testing.assert_close(out, wanted)
    assert any("measured" in schedule.why for schedule in kernel.schedules)
    assert list((tmp_path / "tiga" / "tiles").iterdir())
    assert torch.equal(kernel(graph=graph, ndata={"x": x}), out)


def test_native_launches_beside_torch():
    """The same kernel on memory of our own, launched without torch's help."""
    import numpy as np

    from tiga.backends.triton.device import Device
    from tiga.backends.triton.layout import Tile
    from tiga.backends.triton.writer import KernelSource, Parameter

    text = (
        "@triton.jit\ndef scaled(x, y, factor, count):\n"
        "    i = tl.program_id(0) * 128 + tl.arange(0, 128)\n"
        "    tl.store(y + i, tl.load(x + i, mask=i < count) * factor, mask=i < count)\n"
    )
    names = (("x", "*fp32"), ("y", "*fp32"), ("factor", "fp32"), ("count", "i32"))
    parameters = tuple(Parameter(name, type_, name) for name, type_ in names)
    device = Device(0)
    kernel = device.kernel(KernelSource("scaled", text, parameters, (), Tile(1, 1, 4)))
    x = np.arange(1000, dtype=np.float32)
    y = np.empty_like(x)
    with device.using(device.new_stream()):
        there, result = device.allocate(x.nbytes), device.allocate(y.nbytes)
        device.copy_in(there, x.ctypes.data, x.nbytes)
        device.launch(kernel, (8, 1, 1), (there, result, 0.5, len(x)))
        device.copy_out(y.ctypes.data, result, y.nbytes)
        device.synchronize()
        device.free(there), device.free(result)
    assert np.array_equal(y, x * 0.5)
