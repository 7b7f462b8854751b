"""Kernels on tensors of a GPU, against the same formulas in torch: values and two derivatives."""

import pytest
import torch

import tiga as tg
from tiga.errors import UnsupportedByBackend
from tiga.frontends.torch.compiled import library

NODES, EDGES, WIDTH = 20, 90, 6


class Attention(tg.MessagePassing, torch.nn.Module):
    reducer = tg.softmax()

    def __init__(self):
        super().__init__()
        self.a = torch.nn.Parameter(torch.randn(WIDTH))
        self.project = torch.nn.Linear(WIDTH, WIDTH)

    def edge(self, src, dst, edge):
        z = torch.nn.functional.leaky_relu(self.project(src.x) + self.project(dst.x), 0.2)
        return self.reducer((z * self.a).sum(-1), src.x * edge.w[:, None])


def reference(kernel, x, w, src, dst):
    z = torch.nn.functional.leaky_relu(kernel.project(x)[src] + kernel.project(x)[dst], 0.2)
    score = (z * kernel.a).sum(-1)
    low = torch.full((NODES,), -torch.inf, device=x.device)
    peak = low.scatter_reduce(0, dst, score.detach(), "amax")
    p = (score - peak[dst]).exp()
    total = torch.zeros(NODES, device=x.device).index_add(0, dst, p)
    message = (p / total[dst])[:, None] * x[src] * w[:, None]
    return torch.zeros(NODES, WIDTH, device=x.device).index_add(0, dst, message)


def test_attention_and_its_derivatives(where):
    kernel = Attention().to(where)
    src, dst = torch.randint(0, NODES, (2, EDGES), device=where)
    x = torch.randn(NODES, WIDTH, device=where, requires_grad=True)
    w = torch.randn(EDGES, device=where, requires_grad=True)
    graph = tg.Graph.from_coo(src, dst, num_src=NODES, num_dst=NODES)
    found, expected = [], []
    for results, out in (
        (found, kernel(graph=graph, ndata={"x": x}, edge={"w": w})),
        (expected, reference(kernel, x, w, src, dst)),
    ):
        leaves = [x, w, *kernel.parameters()]
        first = torch.autograd.grad(out.square().sum(), leaves, create_graph=True)
        second = torch.autograd.grad(first[0].square().sum(), [x, w])
        results += [out, *first, *second]
    assert found[0].device == where
    for got, wanted in zip(found, expected, strict=True):
        torch.testing.assert_close(got, wanted, rtol=2e-4, atol=2e-4)


def test_outputs_of_one_value(where):
    """Results that are fields or one another, and gradients of two biases, which are one value."""

    class Kernel(tg.MessagePassing):
        def edge(self, src, dst, edge, a, b):
            return torch.tanh(src.x + a + b)

        def node(self, dst, aggregate, a, b):
            return dst.x, aggregate, 2 * aggregate + dst.x, aggregate, dst.x

    src, dst = torch.randint(0, NODES, (2, EDGES), device=where)
    x = torch.randn(NODES, WIDTH, device=where, requires_grad=True)
    a, b = (torch.randn(WIDTH, device=where, requires_grad=True) for _ in range(2))
    graph = tg.Graph.from_coo(src, dst, num_src=NODES, num_dst=NODES)
    got = Kernel()(graph=graph, ndata={"x": x}, a=a, b=b)
    total = torch.zeros_like(x).index_add(0, dst, torch.tanh(x[src] + a + b))
    want = (x, total, 2 * total + x, total, x)
    for one, other in zip(got, want, strict=True):
        torch.testing.assert_close(one, other)
    found, expected = (
        torch.autograd.grad(sum(i * y.square().sum() for i, y in enumerate(out)), (x, a, b))
        for out in (got, want)
    )
    torch.testing.assert_close(found, expected, rtol=2e-4, atol=2e-4)


def test_fields_of_width_0(where):
    class Joined(tg.MessagePassing):
        reducer = tg.max()

        def edge(self, src, dst, edge):
            return torch.cat([src.nothing, src.x], -1), src.nothing

    src, dst = torch.randint(0, NODES, (2, EDGES), device=where)
    graph = tg.Graph.from_coo(src, dst, num_src=NODES, num_dst=NODES)
    x = torch.randn(NODES, WIDTH, device=where, requires_grad=True)
    nothing = torch.zeros(NODES, 0, device=where, requires_grad=True)
    joined, none = Joined()(graph=graph, src={"x": x, "nothing": nothing})
    rows = dst[:, None].expand(-1, WIDTH)
    want = torch.zeros_like(x).scatter_reduce(0, rows, x[src], "amax", include_self=False)
    torch.testing.assert_close(joined, want)
    assert none.shape == (NODES, 0)
    assert torch.autograd.grad(joined.sum() + none.sum(), nothing)[0].shape == (NODES, 0)


def test_a_step_in_a_compiled_graph(where):
    kernel = Attention().to(where)
    src, dst = torch.randint(0, NODES, (2, EDGES), device=where)
    x, w = torch.randn(NODES, WIDTH, device=where), torch.randn(EDGES, device=where)
    graph = tg.Graph.from_coo(src, dst, num_src=NODES, num_dst=NODES)

    def function(x, w):
        return kernel(graph=graph, ndata={"x": x.sin()}, edge={"w": w}).cos()

    found = []
    for run in (function, torch.compile(function, backend="aot_eager", fullgraph=True)):
        leaf = x.clone().requires_grad_()
        out = run(leaf, w)
        found.append([out, *torch.autograd.grad(out.sum(), [leaf, *kernel.parameters()])])
    for got, wanted in zip(found[1], found[0], strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-5)
    ready = [r for t in library._TOPOLOGIES.known.values() for r in t.ready.values()]
    assert any(r.runnable.ran_on_gpu for r in ready), "the op did not take the way of a GPU"


def test_what_a_kernel_tells_about_its_runs(where):
    class Difference(tg.MessagePassing):
        def edge(self, src, dst, edge):
            return torch.relu(src.x - dst.x)

    kernel = Difference()
    src, dst = torch.randint(0, NODES, (2, EDGES), device=where)
    graph = tg.Graph.from_coo(src, dst, num_src=NODES, num_dst=NODES)
    kernel(graph=graph, ndata={"x": torch.randn(NODES, WIDTH, device=where)})
    (schedule,) = kernel.schedules
    assert (schedule.kernel, schedule.over) == ("step0_rows", "rows, and chunks of split rows")
    assert f"rows of dst on {where}: {NODES} rows, {EDGES} edges, 0 rows split" in kernel.explain()
    assert "@triton.jit" in kernel.code()


@pytest.mark.gpu
def test_fields_on_another_device_are_refused():
    src, dst = torch.randint(0, NODES, (2, EDGES), device="cuda")
    graph = tg.Graph.from_coo(src, dst, num_src=NODES, num_dst=NODES)
    kernel = Attention().cuda()
    fields = {"ndata": {"x": torch.randn(NODES, WIDTH)}, "edge": {"w": torch.randn(EDGES).cuda()}}
    with pytest.raises(UnsupportedByBackend, match=r"field `ndata\.x` is on cpu"):
        kernel(graph=graph, **fields)


@pytest.mark.gpu
def test_capture_in_a_cuda_graph_repeats_the_bits():
    src, dst = torch.randint(0, NODES, (2, EDGES), device="cuda")
    graph = tg.Graph.from_coo(src, dst, num_src=NODES, num_dst=NODES)
    kernel = Attention().cuda()
    fields = {"ndata": {"x": torch.randn(NODES, WIDTH).cuda()}, "edge": {"w": dst.float()}}
    with torch.no_grad():
        expected = kernel(graph=graph, **fields)
        recorded = torch.cuda.CUDAGraph()
        with torch.cuda.graph(recorded):
            out = kernel(graph=graph, **fields)
    out.zero_()
    recorded.replay()
    assert torch.equal(out, expected)


class Kinds(tg.MessagePassing, torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(5, WIDTH)

    def edge(self, src, dst, edge):
        return torch.tanh(self.table(src.kind)) * dst.x


def test_an_embedding_of_kinds_of_nodes_in_two_derivatives(where):
    torch.manual_seed(2)
    kernel, (src, dst) = Kinds().to(where), torch.randint(0, NODES, (2, EDGES), device=where)
    graph = tg.Graph.from_coo(src, dst, num_src=NODES, num_dst=NODES)
    kind = torch.randint(0, 5, (NODES,), device=where)
    x = torch.randn(NODES, WIDTH, device=where, requires_grad=True)
    leaves = [kernel.table.weight, x]

    def derivatives(out):
        first = torch.autograd.grad(out.square().sum(), leaves, create_graph=True)
        return [out, *first, *torch.autograd.grad(sum(g.square().sum() for g in first), leaves)]

    found = derivatives(kernel(graph=graph, ndata={"kind": kind, "x": x}))
    assert kernel.diagnostics == ()
    message = torch.tanh(kernel.table(kind)[src]) * x[dst]
    zeros = torch.zeros(NODES, WIDTH, device=where)
    for got, want in zip(found, derivatives(zeros.index_add(0, dst, message)), strict=True):
        torch.testing.assert_close(
            got, want, rtol=1e-4, atol=1e-4 * float(want.detach().abs().max())
        )


@pytest.mark.gpu
def test_offsets_past_32_bits():
    """Rows times width exceeds 2^31: the last rows must come from where they lie."""
    nodes, width = 2**22 + 3, 512
    ends = torch.tensor([0, nodes - 1, nodes - 2], device="cuda")
    graph = tg.Graph.from_coo(ends, ends.flip(0), num_src=nodes, num_dst=nodes)

    class Copy(tg.MessagePassing):
        reducer = tg.sum()

        def edge(self, src, dst, edge):
            return src.x

    x = torch.zeros(nodes, width, device="cuda", dtype=torch.bfloat16)
    x[ends] = torch.tensor([1.0, 2.0, 3.0], device="cuda", dtype=torch.bfloat16)[:, None]
    out = Copy()(graph=graph, src={"x": x}, dst={})
    assert out[ends.flip(0), 0].tolist() == [1.0, 2.0, 3.0]
    assert out[ends.flip(0), -1].tolist() == [1.0, 2.0, 3.0]
    assert float(out.float().sum()) == 6.0 * width
