"""Samples of a batch run together on copies of the graph, or one by one with the reason."""

import pytest
import torch
from torch import func

import tiga as tg
from tiga import errors
from tiga.frontends.torch import batching
from tiga.frontends.torch.compiled.callee import Ready
from tiga.frontends.torch.unit import Runnable

NODES, EDGES = 7, 20
torch.manual_seed(0)
SRC, DST = torch.randint(0, NODES, (2, EDGES))
GRAPH = tg.Graph.from_coo(SRC, DST, num_src=NODES, num_dst=NODES)
X, W = torch.randn(5, NODES, 3), torch.randn(5, EDGES, 1)


class Attention(tg.MessagePassing):
    reducer = tg.softmax()

    def edge(self, src, dst, edge):
        return self.reducer((src.x * dst.x).sum(-1), torch.tanh(src.x) * edge.w)


class Scaled(tg.MessagePassing):
    reducer = tg.max()

    def edge(self, src, dst, edge, scale):
        return src.x * edge.w * scale


@pytest.fixture
def runs(monkeypatch):
    """The extents of the graphs of all runs."""
    seen = []
    run = Runnable.run

    def counted(self, graph, values, *rest, **options):
        seen.append(graph.num_edges)
        return run(self, graph, values, *rest, **options)

    monkeypatch.setattr(Runnable, "run", counted)
    return seen


def compute(kernel, x, w, **params):
    return kernel(graph=GRAPH, ndata={"x": x}, edge={"w": w}, **params)


def test_samples_run_together_and_give_the_same_bits(runs):
    kernel = Attention()
    expected = torch.stack([compute(kernel, x, w) for x, w in zip(X, W, strict=True)])
    runs.clear()
    assert torch.equal(func.vmap(lambda x, w: compute(kernel, x, w))(X, W), expected)
    assert torch.equal(
        func.vmap(lambda x: compute(kernel, x, W[0]))(X),
        torch.stack([compute(kernel, x, W[0]) for x in X]),
    )
    assert runs[0] == 5 * EDGES
    assert kernel.diagnostics == ()


def test_gradients_and_jacobians_of_batches(runs):
    kernel = Attention()

    def energy(x, w):
        return compute(kernel, x, w).square().sum()

    expected = [func.grad(energy, (0, 1))(x, w) for x, w in zip(X, W, strict=True)]
    runs.clear()
    found = func.vmap(func.grad(energy, (0, 1)))(X, W)
    for one, each in zip(found, zip(*expected, strict=True), strict=True):
        assert torch.equal(one, torch.stack(each))
    assert set(runs) == {5 * EDGES}
    x, w = X[0].double(), W[0].double()
    jacobian = torch.autograd.functional.jacobian(lambda x: compute(kernel, x, w), x)
    runs.clear()
    torch.testing.assert_close(func.jacrev(lambda x: compute(kernel, x, w))(x), jacobian)
    torch.testing.assert_close(func.jacfwd(lambda x: compute(kernel, x, w))(x), jacobian)
    assert len(runs) <= 6
    hessian = func.hessian(lambda x: compute(kernel, x, w).square().sum())(x)
    expected = torch.autograd.functional.hessian(lambda x: compute(kernel, x, w).square().sum(), x)
    torch.testing.assert_close(hessian, expected)


def test_batches_of_batches():
    kernel = Attention()
    ways = func.vmap(lambda x: func.vmap(lambda w: compute(kernel, x, w))(W))(X)
    expected = torch.stack([torch.stack([compute(kernel, x, w) for w in W]) for x in X])
    assert torch.equal(ways, expected)


def test_as_many_as_fit_run_together(monkeypatch, runs):
    kernel = Attention()
    expected = torch.stack([compute(kernel, x, W[0]) for x in X])
    monkeypatch.setattr(batching, "MOST_ENTITIES", 2 * (EDGES + 2 * NODES))
    runs.clear()
    assert torch.equal(func.vmap(lambda x: compute(kernel, x, W[0]))(X), expected)
    assert runs == [2 * EDGES, 2 * EDGES, EDGES]


def test_samples_of_a_global_value_run_one_by_one_and_it_is_said(runs):
    kernel, scales = Scaled(), torch.rand(5, 3)
    found = func.vmap(lambda s: compute(kernel, X[0], W[0], scale=s))(scales)
    expected = torch.stack([compute(kernel, X[0], W[0], scale=s) for s in scales])
    assert torch.equal(found, expected)
    assert runs[:5] == [EDGES] * 5
    (record,) = kernel.diagnostics
    assert (record.stage, record.disposition) == ("vmap", "per sample")
    assert "param.scale" in record.message
    assert "sample by sample: `param.scale`" in kernel.explain()


def test_gradients_that_sum_over_all_nodes_run_one_by_one():
    kernel, scale = Scaled(), torch.rand(3)

    def energy(scale, x):
        return compute(kernel, x, W[0], scale=scale).square().sum()

    found = func.vmap(func.grad(energy), in_dims=(None, 0))(scale, X)
    torch.testing.assert_close(found, torch.stack([func.grad(energy)(scale, x) for x in X]))
    assert any("sums over all" in record.message for record in kernel.diagnostics)


def test_an_edit_of_the_indices_between_forward_and_backward_is_seen():
    sources = SRC.clone()
    graph = tg.Graph.from_coo(sources, DST, num_src=NODES, num_dst=NODES)
    kernel, x = Attention(), X.clone().requires_grad_()
    y = func.vmap(lambda x: kernel(graph=graph, ndata={"x": x}, edge={"w": W[0]}))(x)
    sources[0] = (sources[0] + 1) % NODES
    with pytest.raises(errors.StaleTopology):
        y.sum().backward()


def test_the_edge_of_a_maximum_is_numbered_within_its_sample():
    class First(tg.MessagePassing):
        reducer = tg.argmax()

        def edge(self, src, dst, edge):
            return src.x * edge.w

    kernel = First()
    expected = torch.stack([compute(kernel, x, W[0]) for x in X])
    assert torch.equal(func.vmap(lambda x: compute(kernel, x, W[0]))(X), expected)


@pytest.mark.parametrize("kind", ["coo", "csr", "transposed"])
def test_batches_inside_a_compiled_region_run_together(kind, monkeypatch):
    torch._dynamo.reset()
    graph = GRAPH
    if kind != "coo":
        pointers = torch.zeros(NODES + 1, dtype=torch.int64)
        pointers[1:] = torch.bincount(DST, minlength=NODES).cumsum(0)
        graph = tg.Graph.from_csr(pointers, SRC[DST.argsort(stable=True)], num_src=NODES)
        graph = graph.transpose() if kind == "transposed" else graph
    kernel = Attention()

    def energy(x, w):
        return kernel(graph=graph, ndata={"x": x}, edge={"w": w}).square().sum()

    def step(xs, ws):
        return func.vmap(func.grad(energy, (0, 1)))(xs, ws)

    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
    compiled(X, W)
    seen = []
    run = Ready.run

    def counted(self, *arguments):
        seen.append(self.topology.num_edges)
        return run(self, *arguments)

    monkeypatch.setattr(Ready, "run", counted)
    found = compiled(X, W)
    assert set(seen) == {5 * EDGES}
    assert len(seen) <= 3
    for one, each in zip(found, step(X, W), strict=True):
        torch.testing.assert_close(one, each)
