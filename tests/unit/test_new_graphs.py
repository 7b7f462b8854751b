"""A new graph in every step: nothing is compiled again, nothing stays, all is checked."""

import weakref

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend

import tiga as tg
from benchmarks import new_graphs
from tiga.errors import InvalidType, InvalidValue
from tiga.frontends.torch.compiled import topologies
from tiga.frontends.torch.variants import state_of

WIDTH = 3


class Weighted(tg.MessagePassing, torch.nn.Module):
    reducer = tg.mean()

    def __init__(self):
        super().__init__()
        self.mix = torch.nn.Linear(WIDTH, WIDTH).double()

    def edge(self, src, dst, edge):
        return torch.tanh(src.x) * edge.w

    def node(self, dst, aggregate):
        return self.mix(aggregate) - dst.x


def drawn(seed):
    """A graph of its own size, and fields for it."""
    generator = torch.Generator().manual_seed(seed)
    nodes, edges = 20 + 7 * seed, 40 + 31 * seed
    ends = torch.randint(0, nodes, (2, edges), generator=generator)
    x = torch.randn(nodes, WIDTH, generator=generator, dtype=torch.float64, requires_grad=True)
    w = torch.rand(edges, 1, generator=generator, dtype=torch.float64, requires_grad=True)
    return ends, x, w


def plain(layer, ends, x, w):
    src, dst = ends
    total = torch.zeros_like(x).index_add(0, dst, torch.tanh(x[src]) * w)
    count = torch.bincount(dst, minlength=len(x)).clamp(min=1)
    return layer.mix(total / count[:, None]) - x


def step(run, ends, x, w):
    out = run(tg.Graph.from_edge_index(ends, num_nodes=len(x)), x, w)
    return out, *torch.autograd.grad(out.square().sum(), (x, w))


def called(layer):
    return lambda graph, x, w: layer(graph=graph, ndata={"x": x}, edge={"w": w})


def programs(layer):
    """What is kept for a layer, whatever the graph."""
    (variant,) = state_of(layer).all()
    runnables = [runnable for _, runnable in variant.unit.runnables()]
    executables = [runnable.executable.executable for runnable in runnables]
    return layer.cache_info[1:], [(len(e.arranged), e.variants) for e in executables]


def test_every_step_is_right_and_compiles_nothing():
    layer, known = Weighted(), set()
    for seed in range(12):
        ends, x, w = drawn(seed)
        found = step(called(layer), ends, x, w)
        out = plain(layer, ends, x, w)
        wanted = out, *torch.autograd.grad(out.square().sum(), (x, w))
        for one, other in zip(found, wanted, strict=True):
            torch.testing.assert_close(one, other)
        known.add(str(programs(layer)))
    assert len(known) == 1
    assert layer.cache_info[:3] == (11, 1, 1)


def test_nothing_of_a_graph_stays():
    layer, left = Weighted(), []
    for seed in range(4):
        ends, x, w = drawn(seed)
        graph = tg.Graph.from_edge_index(ends, num_nodes=len(x))
        out = called(layer)(graph, x, w)
        out.sum().backward()
        left += [weakref.ref(one) for one in (graph, graph.snapshot(), graph.walk("src"))]
        del graph, out
        assert all(one() is None for one in left)


def test_fields_of_another_size_are_refused_as_at_the_first_call():
    layer = Weighted()
    ends, x, w = drawn(0)
    step(called(layer), ends, x, w)
    other = tg.Graph.from_edge_index(ends[:, :-1], num_nodes=len(x))
    with pytest.raises(InvalidValue, match="39"):
        called(layer)(other, x, w)
    with pytest.raises(InvalidValue, match="one node set"):
        called(layer)(tg.Graph.from_coo(*ends, num_src=99, num_dst=len(x)), x, w)
    with pytest.raises(InvalidType):
        called(layer)(tg.Graph.from_edge_index(ends, num_nodes=len(x)), x, None)


def test_fields_of_another_type_are_another_program():
    layer = Weighted().float()
    ends, x, w = drawn(0)
    with torch.no_grad():
        called(layer)(tg.Graph.from_edge_index(ends), x.float(), w.float())
        found = called(layer)(tg.Graph.from_edge_index(ends), x.float(), w.half())
    torch.testing.assert_close(found, plain(layer, ends, x.float(), w.half()), atol=1e-3, rtol=1e-3)
    assert layer.cache_info[2] == 2


def test_steps_of_torchs_compiler_compile_nothing():
    torch._dynamo.reset()
    layer, counter = Weighted(), CompileCounterWithBackend("aot_eager")
    run = torch.compile(called(layer), fullgraph=True, dynamic=True, backend=counter)
    for seed in range(1, 8):
        ends, x, w = drawn(seed)
        found = step(run, ends, x, w)
        out = plain(layer, ends, x, w)
        wanted = out, *torch.autograd.grad(out.square().sum(), (x, w))
        for one, other in zip(found, wanted, strict=True):
            torch.testing.assert_close(one, other)
    assert counter.frame_count == 1
    assert layer.cache_info[2] == 1


def test_library_calls_keep_few_graphs(monkeypatch):
    monkeypatch.setattr(topologies, "CAPACITY", 8)
    kept, graphs = drawn(0)[0], topologies.Topologies()
    first = graphs.get("coo", *kept, (20, 20))
    for seed in range(1, 30):
        ends = drawn(seed)[0]
        assert graphs.get("coo", *ends, (999, 999)).graph.num_edges == ends.shape[1]
        assert graphs.get("coo", *kept, (20, 20)) is first
        assert len(graphs.known) <= 8


def test_library_calls_tell_graphs_apart_that_are_nearly_equal():
    graphs = topologies.Topologies()
    src, dst = torch.randint(0, 50, (2, 1000), generator=torch.Generator().manual_seed(0))
    found = graphs.get("coo", src, dst, (50, 50))
    assert graphs.get("coo", src.clone(), dst.clone(), (50, 50)) is found
    for at in (0, 1, 501, 999):
        other = src.clone()
        other[at] = (other[at] + 1) % 50
        assert graphs.get("coo", other, dst, (50, 50)).graph.coo()[0][at] == other[at]


def test_the_benchmark_compares_answers_first():
    size = new_graphs.Size(3, 4, 5)
    batch = new_graphs.Batch.of(size, torch.Generator().manual_seed(0))
    assert batch.bonds.max() < len(batch.x) == len(batch.molecule)
    skip = ["tiga, compiled", "torch.compile", "pyg", "pyg, compiled"]
    everyone = new_graphs.contestants(size.width, "cpu", skip)
    wanted = [new_graphs.reference(batch, size.width, "cpu")]
    for name, one in everyone.items():
        new_graphs.check(name, one, [batch], wanted)
    everyone["torch"].network.readout.weight.data += 1
    with pytest.raises(SystemExit, match="torch: wrong"):
        new_graphs.check("torch", everyone["torch"], [batch], wanted)
