"""Runs on several GPUs: they follow their graph, whichever device is current."""

import threading

import pytest
import torch

import tiga as tg
from tiga.errors import InvalidType, UnsupportedByBackend

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs"),
]
NODES, EDGES, WIDTH = 300, 4000, 16


class Weighted(tg.MessagePassing):
    def __init__(self, reducer):
        self.reducer = reducer

    def edge(self, src, dst, edge):
        return torch.tanh(src.x - dst.x) * edge.w[:, None]


class Attention(tg.MessagePassing):
    reducer = tg.softmax()

    def edge(self, src, dst, edge):
        return self.reducer((src.x * dst.x).sum(-1) + edge.w, src.x)


class Decay(tg.Reducer):
    """Half of what was, and the message: folded in edge order."""

    def identity(self):
        return 0.0

    def combine(self, left, right):
        return 0.5 * left + right


class Learned(tg.MessagePassing, torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.project = torch.nn.Linear(WIDTH, WIDTH)

    def edge(self, src, dst, edge):
        return torch.relu(self.project(src.x - dst.x)) * edge.w[:, None]


KERNELS = {
    "sum": Weighted(tg.sum()),
    "max": Weighted(tg.max()),
    "std": Weighted(tg.std()),
    "softmax": Attention(),
    "decay": Weighted(Decay()),
}


@pytest.fixture(scope="module")
def drawn():
    torch.manual_seed(3)
    src, dst = torch.randint(0, NODES, (2, EDGES))
    return src, dst, torch.randn(NODES, WIDTH), torch.randn(EDGES)


@pytest.fixture(autouse=True)
def first_is_current(request):
    torch.cuda.set_device(0)
    yield
    if "native" not in request.node.name:  # which make a device of their own the current one
        assert torch.cuda.current_device() == 0


def on(drawn, device):
    """What a call takes, on a device."""
    src, dst, x, w = (t.to(device, copy=True) for t in drawn)
    graph = tg.Graph.from_coo(src, dst, num_src=NODES, num_dst=NODES)
    return {"graph": graph, "ndata": {"x": x.requires_grad_()}, "edge": {"w": w.requires_grad_()}}


def step(kernel, call):
    """The result, first and second derivatives."""
    x, w = call["ndata"]["x"], call["edge"]["w"]
    out = kernel(**call)
    first = torch.autograd.grad(out.square().sum(), [x, w], create_graph=True)
    second = torch.autograd.grad(sum(g.square().sum() for g in first), [x, w])
    return [out, *first, *second]


@pytest.mark.parametrize("name", KERNELS)
def test_both_devices_give_the_same_bits_in_turn(drawn, name):
    kernel = KERNELS[name]
    calls = [on(drawn, f"cuda:{i}") for i in (0, 1)]
    wanted = step(kernel, on(drawn, "cpu"))
    for _ in range(3):
        here, there = (step(kernel, call) for call in calls)
        for index, found in enumerate((here, there)):
            assert {t.device.index for t in found} == {index}
        for a, b, want in zip(here, there, wanted, strict=True):
            assert torch.equal(a.detach().cpu(), b.detach().cpu())
            error = (a.detach().cpu() - want).norm() / want.norm()
            assert error < 1e-3


def test_without_gradients_in_turn(drawn):
    calls = [on(drawn, f"cuda:{i}") for i in (1, 0)]
    with torch.no_grad():
        found = [KERNELS["sum"](**call) for _ in range(3) for call in calls]
    assert [t.device.index for t in found] == [1, 0] * 3
    assert all(torch.equal(t.cpu(), found[0].cpu()) for t in found)


def test_a_module_moves_with_its_graph(drawn):
    torch.manual_seed(4)
    kernel, found = Learned(), []
    for device in ("cuda:1", "cuda:0", "cuda:1"):
        call = on(drawn, device)
        kernel.to(device).zero_grad()
        out = kernel(**call)
        out.square().sum().backward()
        found.append([out, call["ndata"]["x"].grad, *(p.grad for p in kernel.parameters())])
        assert {t.device.index for t in found[-1]} == {int(device[-1])}
        found[-1] = [t.detach().cpu().clone() for t in found[-1]]
    for other in found[1:]:
        assert all(map(torch.equal, found[0], other))


def test_what_lies_elsewhere_is_refused_by_name(drawn):
    call, other = on(drawn, "cuda:1"), on(drawn, "cuda:0")
    kernel = KERNELS["sum"]
    wanted = kernel(**call)
    for _ in range(2):
        with pytest.raises(UnsupportedByBackend, match=r"ndata.x.*cuda:0.*cuda:1"):
            kernel(**(call | {"ndata": other["ndata"]}))
        with pytest.raises(UnsupportedByBackend, match=r"edge.w.*cuda:0.*cuda:1"):
            kernel(**(call | {"edge": other["edge"]}))
        with pytest.raises(UnsupportedByBackend, match=r"cuda:1.*cuda:0"):
            kernel(**(call | {"graph": other["graph"]}))
        learned = Learned().to("cuda:0")
        with pytest.raises(InvalidType, match=r"cuda:0.*cuda:1"):
            learned(**call)
        assert torch.equal(kernel(**call), wanted)


def test_indices_on_two_devices_are_refused(drawn):
    src, dst, *_ = drawn
    with pytest.raises(Exception, match=r"cuda:[01]"):
        tg.Graph.from_coo(src.to("cuda:0"), dst.to("cuda:1"), num_src=NODES, num_dst=NODES)


def test_on_a_stream_of_the_other_device(drawn):
    call, kernel = on(drawn, "cuda:1"), KERNELS["sum"]
    x = call["ndata"]["x"].detach()
    with torch.no_grad():
        wanted = kernel(**call)
        torch.cuda.synchronize(1)
        side = torch.cuda.Stream("cuda:1")
        late = torch.zeros_like(x)
        for _ in range(3):
            late.zero_()
            torch.cuda.synchronize(1)
            with torch.cuda.stream(side):
                torch.cuda._sleep(20_000_000)
                late.copy_(x)
                found = kernel(**(call | {"ndata": {"x": late}}))
            side.synchronize()
            assert torch.equal(found, wanted)


def test_captured_on_the_other_device(drawn):
    call, kernel = on(drawn, "cuda:1"), KERNELS["max"]
    x = call["ndata"]["x"].detach()
    call["ndata"] = {"x": x}
    with torch.cuda.device(1), torch.no_grad():
        kernel(**call)
        torch.cuda.synchronize()
        recorded = torch.cuda.CUDAGraph()
        with torch.cuda.graph(recorded):
            found = kernel(**call)
    x.copy_(x.flip(0))
    with torch.no_grad():
        wanted = kernel(**call)
    with torch.cuda.device(1):
        recorded.replay()
        torch.cuda.synchronize()
    assert torch.equal(found, wanted)


def test_prepared_on_the_other_device(drawn):
    call, kernel = on(drawn, "cuda:1"), KERNELS["softmax"]
    with torch.no_grad():
        launch = kernel.prepare(**call)
        assert torch.equal(launch(), kernel(**call))
        with torch.cuda.device(1):
            assert torch.equal(launch(), kernel(**call))


def test_threads_each_with_a_device(drawn):
    kernel = KERNELS["sum"]
    wanted = [t.detach().cpu() for t in step(kernel, on(drawn, "cuda:0"))]
    wrong = []

    def work(index):
        torch.cuda.set_device(index)
        call = on(drawn, f"cuda:{index}")
        for _ in range(20):
            found = step(kernel, call)
            if not all(
                torch.equal(a.detach().cpu(), b) for a, b in zip(found, wanted, strict=True)
            ):
                wrong.append(index)

    threads = [threading.Thread(target=work, args=(i % 2,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_native_launches_on_both_devices():
    import numpy as np

    from tiga.backends.triton.device import Device
    from tiga.backends.triton.layout import Tile
    from tiga.backends.triton.writer import KernelSource, Parameter

    text = (
        "@triton.jit\ndef doubled(x, y, count):\n"
        "    i = tl.program_id(0) * 128 + tl.arange(0, 128)\n"
        "    tl.store(y + i, tl.load(x + i, mask=i < count) * 2, mask=i < count)\n"
    )
    names = (("x", "*fp32"), ("y", "*fp32"), ("count", "i32"))
    parameters = tuple(Parameter(name, type_, name) for name, type_ in names)
    source = KernelSource("doubled", text, parameters, (), Tile(1, 1, 4))
    x = np.arange(1000, dtype=np.float32)
    for number in (1, 0, 1):
        device, y = Device(number), np.empty_like(x)
        kernel = device.kernel(source)
        with device.using(device.new_stream()):
            there, result = device.allocate(x.nbytes), device.allocate(y.nbytes)
            device.copy_in(there, x.ctypes.data, x.nbytes)
            device.launch(kernel, (8, 1, 1), (there, result, len(x)))
            device.copy_out(y.ctypes.data, result, y.nbytes)
            device.synchronize()
            device.free(there), device.free(result)
        assert np.array_equal(y, 2 * x)
