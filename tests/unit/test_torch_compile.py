"""Kernels inside torch.compile: no graph break, few graphs, nothing stale, every derivative."""

import os
import subprocess
import sys
from typing import NamedTuple

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend

import tiga as tg
from tiga.interop.torch import mark_dynamic

SCALE = 2.0
WEIGHT = torch.tensor([1.0, 2.0, 3.0])
SIZES = ((5, 7), (6, 9), (50, 300), (1, 1), (2, 0), (1, 0), (3, 1))


@pytest.fixture(autouse=True)
def _fresh_compiler():
    torch._dynamo.reset()


class Difference(tg.MessagePassing):
    reducer = tg.mean()
    alpha = 1.5

    def edge(self, src, dst, edge):
        return torch.tanh(src.x - dst.x) * self.alpha * SCALE * WEIGHT * edge.w


class Layer(tg.MessagePassing, torch.nn.Module):
    reducer = tg.softmax()

    def __init__(self):
        super().__init__()
        self.lin = torch.nn.Linear(3, 4)
        self.mlp = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
        self.negate = False

    def edge(self, src, dst, edge):
        h = self.mlp(self.lin(src.x)) * edge.w
        return self.reducer((h * self.lin(dst.x)).sum(-1), -h if self.negate else h)

    def node(self, dst, aggregate, beta=1.0):
        return aggregate * beta + self.lin(dst.x)


def graph_of(nodes, edges, kind="coo"):
    generator = torch.Generator().manual_seed(nodes * 1000 + edges)
    src, dst = torch.randint(0, nodes, (2, edges), generator=generator)
    if kind == "coo":
        return tg.Graph.from_coo(src, dst, num_src=nodes, num_dst=nodes)
    pointers = torch.zeros(nodes + 1, dtype=torch.int64)
    pointers[1:] = torch.bincount(dst, minlength=nodes).cumsum(0)
    return tg.Graph.from_csr(pointers, src, num_src=nodes)


def fields(nodes, edges):
    torch.manual_seed(edges)
    return torch.randn(nodes, 3, requires_grad=True), torch.randn(edges, 1, requires_grad=True)


GRAPH = graph_of(6, 20)
X, W = (t.detach() for t in fields(6, 20))


def run(kernel, graph, x, w, **params):
    return torch.sigmoid(kernel(graph=graph, ndata={"x": x}, edge={"w": w}, **params))


def assert_same(compiled, kernel, graph, x, w, **params):
    leaves = [x, w, *(kernel.parameters() if isinstance(kernel, torch.nn.Module) else ())]
    found, expected = compiled(graph, x, w), run(kernel, graph, x, w, **params)
    torch.testing.assert_close(found, expected)
    pairs = zip(
        torch.autograd.grad(found.sum(), leaves, allow_unused=True),
        torch.autograd.grad(expected.sum(), leaves, allow_unused=True),
        strict=True,
    )
    for gradient, eager in pairs:
        torch.testing.assert_close(gradient, eager)


def compiled_with_counter(kernel, backend="aot_eager", **params):
    counter = CompileCounterWithBackend(backend)
    compiled = torch.compile(
        lambda graph, x, w: run(kernel, graph, x, w, **params), fullgraph=True, backend=counter
    )
    return compiled, counter


@pytest.mark.parametrize("kind", ["coo", "csr"])
@pytest.mark.parametrize("make", [Difference, Layer])
def test_one_graph_more_for_any_sizes_and_right_ones_at_zero_and_one(make, kind):
    kernel = make()
    compiled, counter = compiled_with_counter(kernel)
    for nodes, edges in SIZES:
        assert_same(compiled, kernel, graph_of(nodes, edges, kind), *fields(nodes, edges))
        if nodes >= 2 and edges >= 2:
            assert counter.frame_count <= 2


@pytest.mark.parametrize("kind", ["coo", "csr"])
@pytest.mark.parametrize("make", [Difference, Layer])
def test_mark_dynamic_makes_one_graph_for_all_sizes(make, kind):
    kernel = make()
    compiled, counter = compiled_with_counter(kernel)
    for nodes, edges in (*SIZES, (4, 4)):
        graph, (x, w) = graph_of(nodes, edges, kind), fields(nodes, edges)
        mark_dynamic(graph, x, w)
        assert_same(compiled, kernel, graph, x, w)
    assert counter.frame_count == 1


@pytest.mark.slow
@pytest.mark.parametrize("make", [Difference, Layer])
def test_inductor_with_gradients(make):
    kernel = make()
    compiled, _ = compiled_with_counter(kernel, "inductor")
    for nodes, edges in ((5, 7), (6, 9), (1, 0)):
        assert_same(compiled, kernel, graph_of(nodes, edges), *fields(nodes, edges))


def test_what_edge_reads_is_seen_when_it_changes():
    kernel = Layer()
    compiled, counter = compiled_with_counter(kernel)

    def check():
        torch.testing.assert_close(compiled(GRAPH, X, W), run(kernel, GRAPH, X, W))

    check()
    kernel.negate = True
    check()
    assert counter.frame_count == 2
    kernel.negate = False
    check()
    assert counter.frame_count == 2
    kernel.lin = torch.nn.Linear(3, 4)
    check()
    kernel.mlp[1] = torch.nn.Tanh()
    check()
    with torch.no_grad():
        kernel.lin.weight.mul_(3)
    check()


def test_numbers_tensors_reducers_and_functions_are_seen_when_they_change(monkeypatch):
    kernel = Difference()
    compiled, _ = compiled_with_counter(kernel)

    def check():
        torch.testing.assert_close(compiled(GRAPH, X, W), run(kernel, GRAPH, X, W))

    check()
    for alpha in (2.5, 3.5, 4.5):
        kernel.alpha = alpha
        check()
    monkeypatch.setitem(globals(), "SCALE", 7.0)
    check()
    monkeypatch.setitem(globals(), "WEIGHT", torch.full((3,), 9.0))
    check()
    kernel.reducer = tg.max()
    check()
    monkeypatch.setattr(Difference, "edge", lambda self, src, dst, edge: src.x * edge.w)
    check()


def test_a_parameter_of_the_call_that_changes_makes_one_graph_more():
    kernel = Layer()
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(
        lambda beta: run(kernel, GRAPH, X, W, beta=beta), fullgraph=True, backend=counter
    )
    for beta in (0.5, 1.5, 2.5, 3.5):
        torch.testing.assert_close(compiled(beta), run(kernel, GRAPH, X, W, beta=beta))
    assert counter.frame_count == 2


def test_transforms_inside_the_region():
    kernel = Difference()

    def energy(x):
        return kernel(graph=GRAPH, ndata={"x": x}, edge={"w": W}).pow(2).sum()

    def force_energy(x):
        return torch.func.grad(energy)(x).pow(2).sum()

    batch = torch.stack([X, X * 2])
    cases = {
        torch.func.grad(energy): X,
        torch.func.grad(force_energy): X,
        torch.func.vmap(lambda x: kernel(graph=GRAPH, ndata={"x": x}, edge={"w": W})): batch,
        lambda x: torch.func.jvp(energy, (x,), (torch.ones_like(x),))[1]: X,
    }
    for transform, at in cases.items():
        compiled = torch.compile(transform, fullgraph=True, backend="aot_eager")
        torch.testing.assert_close(compiled(at), transform(at))
    x = X.clone().requires_grad_()
    compiled = torch.compile(force_energy, fullgraph=True, backend="aot_eager")
    (found,) = torch.autograd.grad(compiled(x), x)
    (expected,) = torch.autograd.grad(force_energy(x), x)
    torch.testing.assert_close(found, expected)


def test_torch_says_that_it_refuses_a_double_backward_through_the_region():
    compiled, _ = compiled_with_counter(Difference())
    x = X.clone().requires_grad_()
    (g,) = torch.autograd.grad(compiled(GRAPH, x, W).sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="does not currently support double backward"):
        torch.autograd.grad(g.sum(), x)


def test_graphs_made_or_turned_in_the_region_and_graphs_from_lists():
    kernel = Difference()
    src, dst = GRAPH.coo()
    csr = graph_of(6, 20, "csr")
    listed = tg.Graph.from_coo(src.tolist(), dst.tolist(), num_src=6, num_dst=6)

    def made(x, w, src, dst):
        graph = tg.Graph.from_coo(src, dst, num_src=x.shape[0], num_dst=x.shape[0])
        return run(kernel, graph, x, w)

    cases = [
        (made, (src, dst)),
        (lambda x, w, graph: run(kernel, graph.transpose(), x, w), (GRAPH,)),
        (lambda x, w, graph: run(kernel, graph, x, w), (GRAPH.transpose(),)),
        (lambda x, w, graph: run(kernel, graph, x, w), (csr.transpose(),)),
        (lambda x, w, graph: run(kernel, graph, x, w), (listed,)),
    ]
    for function, more in cases:
        torch._dynamo.reset()
        compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
        torch.testing.assert_close(compiled(X, W, *more), function(X, W, *more))
    with pytest.raises(Exception, match="num_nodes"):
        torch.compile(
            lambda s, d: run(kernel, tg.Graph.from_coo(s, d), X, W), fullgraph=True,
            backend="eager",
        )(src, dst)  # fmt: skip


class Pair(NamedTuple):
    first: torch.Tensor
    rest: list


class Trees(tg.MessagePassing):
    def edge(self, src, dst, edge):
        return {"m": src.x, "n": (tg.mask(src.x * 2, edge.w[:, 0] > 0),)}

    def node(self, dst, aggregate):
        return Pair(aggregate["m"], [aggregate["n"][0] + dst.x])


class Several(tg.MessagePassing):
    reducer = tg.multi(tg.sum(), tg.max(), tg.std())

    def edge(self, src, dst, edge):
        return edge.w * src.x


def test_trees_masks_and_several_reducers():
    for kernel in (Trees(), Several()):

        def compute(x, kernel=kernel):
            return kernel(graph=GRAPH, ndata={"x": x}, edge={"w": W})

        found = torch.compile(compute, fullgraph=True, backend="aot_eager")(X)
        expected = compute(X)
        assert type(found) is type(expected)
        torch.testing.assert_close(found, expected)


class Dropped(tg.MessagePassing, torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.drop = torch.nn.Dropout(0.5)

    def edge(self, src, dst, edge):
        return self.drop(src.x)


def test_dropout_is_fresh_reproducible_and_the_same_in_the_gradient():
    kernel, x = Dropped(), torch.ones(6, 3, requires_grad=True)
    compiled = torch.compile(
        lambda x: kernel(graph=GRAPH, ndata={"x": x}), fullgraph=True, backend="aot_eager"
    )
    torch.manual_seed(3)
    first, second = compiled(x), compiled(x)
    torch.manual_seed(3)
    again = compiled(x)
    assert torch.equal(first, again)
    assert not torch.equal(first, second)
    (gradient,) = torch.autograd.grad(first.sum(), x)
    torch.testing.assert_close(gradient.sum(), first.sum().detach())


class Unfused(tg.MessagePassing):
    def edge(self, src, dst, edge):
        return torch.special.bessel_j0(src.x)


def test_what_is_not_fused_breaks_the_graph_and_fullgraph_says_why():
    kernel = Unfused()

    def compute(x):
        return kernel(graph=GRAPH, ndata={"x": x}) * 2

    torch.testing.assert_close(torch.compile(compute, backend="eager")(X), compute(X))
    torch._dynamo.reset()
    with pytest.raises(Exception, match="bessel_j0"):
        torch.compile(compute, fullgraph=True, backend="eager")(X)


class Flipped(tg.MessagePassing):
    """Compiles forward; its gradient holds values too wide for registers."""

    def edge(self, src, dst, edge):
        return (src.x * dst.x).flip(-1).amax(-1)


def test_a_gradient_that_cannot_be_compiled_breaks_the_graph():
    kernel = Flipped()
    x = torch.randn(6, 300, requires_grad=True)

    def compute(x):
        return kernel(graph=GRAPH, ndata={"x": x})

    compiled = torch.compile(compute, backend="aot_eager")
    (found,) = torch.autograd.grad(compiled(x).sum(), x)
    (expected,) = torch.autograd.grad(compute(x).sum(), x)
    torch.testing.assert_close(found, expected)


def test_wrong_fields_are_refused_with_what_is_there():
    kernel = Difference()
    compiled, _ = compiled_with_counter(kernel)
    with pytest.raises(tg.errors.InvalidValue, match=r"node\.x.*6 destinations.*\[5, 3\]"):
        compiled(GRAPH, X[:5], W)
    torch.testing.assert_close(compiled(GRAPH, X, W), run(kernel, GRAPH, X, W))
    with pytest.raises(Exception, match=r"edge\.w` is read but was not passed"):
        torch.compile(
            lambda: kernel(graph=GRAPH, ndata={"x": X}), fullgraph=True, backend="eager"
        )()


def test_edits_of_the_index_tensors_are_seen():
    src, dst = (t.clone() for t in GRAPH.coo())
    graph = tg.Graph.from_coo(src, dst, num_src=6, num_dst=6)
    kernel, x = Difference(), X.clone().requires_grad_()
    compiled, _ = compiled_with_counter(kernel)
    for _ in range(3):
        torch.testing.assert_close(compiled(graph, x, W), run(kernel, graph, x, W))
        dst[0] = (dst[0] + 1) % 6
    y = compiled(graph, x, W)
    dst[0] = (dst[0] + 1) % 6
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_inference_mode():
    kernel = Difference()
    compiled, _ = compiled_with_counter(kernel)
    with torch.inference_mode():
        torch.testing.assert_close(compiled(GRAPH, X, W), run(kernel, GRAPH, X, W))


_PROCESS = """
import sys, torch, tiga as tg
class K(tg.MessagePassing):
    def edge(self, src, dst, edge):
        return src.x * float(sys.argv[1]) if sys.argv[2] == "a" else src.x - dst.x
kernel = K()
graph = tg.Graph.from_coo(torch.tensor([0, 1, 2]), torch.tensor([1, 1, 0]), num_src=3, num_dst=3)
x = torch.tensor([1.0, 2.0, 4.0], requires_grad=True)
run = lambda x: torch.sigmoid(kernel(graph=graph, ndata={"x": x}))
y, expected = torch.compile(run, fullgraph=True)(x), run(x)
pair = [torch.autograd.grad(v.sum(), x)[0] for v in (y, expected)]
torch.testing.assert_close(y, expected)
torch.testing.assert_close(*pair)
print(torch._dynamo.utils.counters["aot_autograd"]["autograd_cache_hit"])
"""


@pytest.mark.slow
def test_another_process_with_warm_caches_computes_its_own_program(tmp_path):
    environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(tmp_path)}
    hits = []
    for arguments in (("2.0", "a"), ("2.0", "a"), ("3.0", "a"), ("2.0", "b")):
        done = subprocess.run(
            [sys.executable, "-c", _PROCESS, *arguments], env=environment, check=True,
            capture_output=True, text=True,
        )  # fmt: skip
        hits.append(done.stdout.strip())
    assert hits == ["0", "1", "0", "0"]
