"""Kernels in the life of a torch program: export, autocast, checkpoints, threads, copies."""

import copy
import gc
import io
import pickle
import threading

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import tiga as tg
import tiga.interop.torch  # registers the derivatives of the op
from tiga.frontends.torch.compiled import callee
from tiga.frontends.torch.variants import state_of


class Layer(tg.MessagePassing, torch.nn.Module):
    reducer = tg.softmax()

    def __init__(self):
        super().__init__()
        self.lin = torch.nn.Linear(3, 4)
        self.negate = False

    def edge(self, src, dst, edge):
        h = self.lin(src.x)
        return self.reducer((h * self.lin(dst.x)).sum(-1), -h if self.negate else h)


class Weighted(tg.MessagePassing):
    scale = 1.0

    def edge(self, src, dst, edge):
        return edge.w * src.x * self.scale


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = Layer()

    def forward(self, x, src, dst):
        graph = tg.Graph.from_coo(src, dst, num_src=x.shape[0], num_dst=x.shape[0])
        return torch.relu(self.layer(graph=graph, ndata={"x": x}))


def ends(nodes, edges):
    generator = torch.Generator().manual_seed(edges)
    return tuple(torch.randint(0, nodes, (2, edges), generator=generator))


GRAPH = tg.Graph.from_coo(*ends(6, 20), num_src=6, num_dst=6)
X = torch.randn(6, 3, generator=torch.Generator().manual_seed(0))


def run(kernel, x=X):
    return kernel(graph=GRAPH, ndata={"x": x})


@pytest.mark.parametrize("strict", [False, True])
def test_export_with_symbolic_sizes_saved_and_loaded(strict):
    model = Model()
    nodes, edges = torch.export.Dim("N", min=2), torch.export.Dim("E", min=2)
    exported = torch.export.export(
        model, (X, *ends(6, 20)), strict=strict,
        dynamic_shapes=({0: nodes}, {0: edges}, {0: edges}),
    )  # fmt: skip
    file = io.BytesIO()
    torch.export.save(exported, file)
    file.seek(0)
    loaded = torch.export.load(file)
    for n, e in ((6, 20), (9, 40), (2, 3)):
        arguments = torch.randn(n, 3), *ends(n, e)
        expected = model(*arguments)
        torch.testing.assert_close(exported.module()(*arguments), expected)
        torch.testing.assert_close(loaded.module()(*arguments), expected)


def test_opcheck():
    kernel = Weighted()
    kernel.scale = 1.5
    x, w = X.clone().requires_grad_(), torch.rand(20, 1, requires_grad=True)
    kernel(graph=GRAPH, src={"x": x}, edge={"w": w})
    captured = state_of(kernel).all()[0].captured
    given = {"src.x": x, "edge.w": w}
    kinds = [
        callee.FLOAT if node in captured.numbers else callee.TENSOR
        for node in captured.program.inputs
    ]
    text = callee.encode(captured.program, "coo", kinds)
    tensors = [given[n.op.label] for n in captured.program.inputs if n.op.label in given]
    for name, leaves in (("run", tensors), ("compute", [t.detach() for t in tensors])):
        op = getattr(torch.ops.tiga, name).default
        results = torch.library.opcheck(op, (text, [*ends(6, 20), *leaves], [1.5], [6, 6]))
        assert set(results.values()) == {"SUCCESS"}
    found = torch.ops.tiga.run(text, [*ends(6, 20), *tensors], [1.5], [6, 6])
    torch.testing.assert_close(found[0], kernel(graph=GRAPH, src={"x": x}, edge={"w": w}))


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_autocast_gives_gradients_in_the_type_of_what_they_are_of(dtype, compiled):
    src, dst = torch.tensor([0, 2, 1]), torch.tensor([0, 0, 1])
    graph = tg.Graph.from_coo(src, dst, num_src=3, num_dst=3)
    x = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], requires_grad=True)
    w = torch.tensor([[1.0], [2.0], [3.0]], requires_grad=True)

    def weighted():
        return Weighted()(graph=graph, src={"x": x}, edge={"w": w})

    layer = Layer()

    def learned():
        return run(layer)

    if compiled:
        torch._dynamo.reset()
        learned = torch.compile(learned, fullgraph=True, backend="aot_eager")
    with torch.autocast("cpu", dtype):
        y, h = weighted(), learned()
    assert y.tolist() == [[11, 14], [9, 12], [0, 0]]
    gx, gw = torch.autograd.grad(y.sum(), (x, w))
    assert (gx.dtype, gw.dtype) == (torch.float32, torch.float32)
    assert gw.flatten().tolist() == [3, 11, 7]
    assert gx.tolist() == [[1, 1], [3, 3], [2, 2]]
    assert h.dtype == dtype
    torch.testing.assert_close(h.float(), run(layer), rtol=2e-2, atol=2e-2)
    gradients = torch.autograd.grad(h.float().sum(), list(layer.parameters()))
    assert {g.dtype for g in gradients} == {torch.float32}


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoint(reentrant):
    kernel, x = Layer(), X.clone().requires_grad_()
    (expected,) = torch.autograd.grad(run(kernel, x).pow(2).sum(), x)
    checkpoint(lambda x: run(kernel, x), x, use_reentrant=reentrant).pow(2).sum().backward()
    torch.testing.assert_close(x.grad, expected)


def test_threads_share_a_kernel():
    kernel, expected, errors = Weighted(), None, []
    w = torch.rand(20, 1)

    def work():
        try:
            for _ in range(20):
                x = X.clone().requires_grad_()
                y = kernel(graph=GRAPH, src={"x": x}, edge={"w": w})
                y.pow(2).sum().backward()
                results.append((y.detach(), x.grad))
        except Exception as error:
            errors.append(error)

    results = []
    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert kernel.cache_info.variants == 1
    expected = results[0]
    assert len(results) == 120
    for y, gradient in results:
        assert torch.equal(y, expected[0])
        assert torch.equal(gradient, expected[1])


def test_copies_and_pickles_are_kernels_of_their_own():
    kernel = Layer()
    expected = run(kernel)
    for other in (copy.deepcopy(kernel), pickle.loads(pickle.dumps(kernel)), copy.copy(kernel)):
        assert torch.equal(run(other), expected)
    other = copy.deepcopy(kernel)
    other.negate = True
    assert not torch.equal(run(other), expected)
    other = copy.deepcopy(kernel)
    with torch.no_grad():
        other.lin.weight.mul_(2)
    assert not torch.equal(run(other), expected)
    assert torch.equal(run(kernel), expected)


def test_a_state_passed_to_a_module_is_differentiated():
    kernel = Layer()
    state = {name: p.detach() * 2 for name, p in kernel.named_parameters()}
    twice = copy.deepcopy(kernel)
    with torch.no_grad():
        for p in twice.parameters():
            p.mul_(2)

    def energy(state):
        call = {"graph": GRAPH, "ndata": {"x": X}}
        return torch.func.functional_call(kernel, state, (), call).pow(2).sum()

    gradients = torch.func.grad(energy)(state)
    run(twice).pow(2).sum().backward()
    for name, p in twice.named_parameters():
        torch.testing.assert_close(gradients[name], p.grad)


def test_replicas_of_data_parallel_training(tmp_path, monkeypatch):
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")  # whatever names and networks the machine has
    kernel = Layer()
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1
    )
    try:
        parallel = torch.nn.parallel.DistributedDataParallel(kernel)
        parallel(graph=GRAPH, ndata={"x": X}).sum().backward()
    finally:
        # First the wrapper: as the last owner of the group it would wait for the group's threads,
        # and these for the lock of Python, which it holds.
        parallel = None
        gc.collect()
        torch.distributed.destroy_process_group()
    found = [p.grad.clone() for p in kernel.parameters()]
    kernel.zero_grad()
    run(kernel).sum().backward()
    for gradient, p in zip(found, kernel.parameters(), strict=True):
        torch.testing.assert_close(gradient, p.grad)
    one = torch.nn.DataParallel(kernel)
    torch.testing.assert_close(one(graph=GRAPH, ndata={"x": X}), run(kernel))
