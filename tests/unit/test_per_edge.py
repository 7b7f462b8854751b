"""Results with a row per edge: messages as they are, and their softmax over rows."""

import pytest
import torch

import tiga as tg
from tiga.errors import InvalidType

SRC = torch.tensor([3, 0, 1, 1, 4, 2, 0, 3])
DST = torch.tensor([1, 4, 1, 0, 4, 1, 0, 3])
"""Edges out of the order of their destinations; node 2 has none."""


class Mixed(tg.MessagePassing):
    def edge(self, src, dst, edge):
        step = torch.tanh(edge.e + src.x * dst.x)
        return tg.each()(step), tg.sum()(2.0 * step), tg.edge_softmax()(step.sum(-1))


class WithNode(Mixed):
    def node(self, dst, aggregate):
        step, total, weight = aggregate
        return {"total": dst.x + total, "weight": weight, "step": step}


class Unfused(WithNode):
    def edge(self, src, dst, edge):
        step = torch.tanh(edge.e + src.x * dst.x)
        step = step + 0.0 * torch.linalg.svdvals(step[:, :, None])
        return tg.each()(step), tg.sum()(2.0 * step), tg.edge_softmax()(step.sum(-1))


def plain(x, e):
    step = torch.tanh(e + x[SRC] * x[DST])
    total = torch.zeros_like(x).index_add(0, DST, 2.0 * step)
    weight = step.sum(-1).exp()
    whole = x.new_zeros(len(x)).index_add(0, DST, weight)
    return step, total, weight / whole[DST]


@pytest.fixture
def graph():
    return tg.Graph.from_coo(SRC, DST, num_src=5, num_dst=5)


@pytest.fixture
def fields(torch_rng):
    shapes = ((5, 3), (len(SRC), 3))
    return [
        torch.randn(s, generator=torch_rng, dtype=torch.float64, requires_grad=True) for s in shapes
    ]


@pytest.fixture
def torch_rng():
    return torch.Generator().manual_seed(0)


def run(kernel, graph, x, e):
    return kernel(graph=graph, ndata={"x": x}, edge={"e": e})


def close(found, wanted):
    for ours, theirs in zip(found, wanted, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_values_and_derivatives(graph, fields):
    def call(x, e):
        return run(Mixed(), graph, x, e)

    close(call(*fields), plain(*fields))
    assert torch.autograd.gradcheck(call, fields)
    assert torch.autograd.gradgradcheck(call, fields)


def test_a_node_hands_them_on(graph, fields):
    found = run(WithNode(), graph, *fields)
    step, total, weight = plain(*fields)
    close((found["step"], found["total"], found["weight"]), (step, fields[0] + total, weight))


def test_the_oracle_gives_them_in_the_same_order(graph, fields):
    x, e = fields
    close(Mixed().reference(graph=graph, ndata={"x": x}, edge={"e": e}), plain(x, e))


def test_a_prepared_call_gives_them_in_the_same_order(graph, fields):
    x, e = (field.detach() for field in fields)
    launch = Mixed().prepare(graph=graph, ndata={"x": x}, edge={"e": e})
    e *= 0.5
    close(launch(), plain(x, e))


def test_inside_a_compiled_function(graph, fields):
    kernel = WithNode()
    compiled = torch.compile(
        lambda x, e: run(kernel, graph, x, e), fullgraph=True, backend="aot_eager"
    )
    found = compiled(*fields)
    step, total, weight = plain(*fields)
    close((found["step"], found["total"], found["weight"]), (step, fields[0] + total, weight))
    ours, theirs = (f.square().sum() + w.sin().sum() for f, w in ((found["step"], found["weight"]),
                                                                  (step, weight)))  # fmt: skip
    close(torch.autograd.grad(ours, fields), torch.autograd.grad(theirs, fields))


@pytest.mark.parametrize("bound", ["64MiB", "1B"])
def test_what_is_not_fused_gives_them_block_by_block(graph, fields, monkeypatch, bound):
    monkeypatch.setenv("TIGA_MEMORY_BOUND", bound)
    found = run(Unfused(), graph, *fields)
    step, total, weight = plain(*fields)
    wanted = {"step": step, "total": fields[0] + total, "weight": weight}
    close(found.values(), [wanted[name] for name in found])
    ours, theirs = (sum(r.square().sum() for r in results.values()) for results in (found, wanted))
    close(torch.autograd.grad(ours, fields), torch.autograd.grad(theirs, fields))


def test_batches_of_edge_fields(graph, fields):
    x, e = (field.detach() for field in fields)
    several = torch.stack([e, 2.0 * e, -e])
    found = torch.func.vmap(lambda one: run(Mixed(), graph, x, one)[0])(several)
    close(found, [plain(x, one)[0] for one in several])


def test_masked_edges_are_zero_and_have_no_gradient(graph):
    class Roots(tg.MessagePassing):
        def edge(self, src, dst, edge):
            root = tg.mask(torch.sqrt(src.x), edge.keep)
            return tg.each()(root), tg.edge_softmax()(tg.mask(edge.score, edge.keep))

    x = torch.tensor([4.0, 0.0, 0.0, 0.0, 0.0], requires_grad=True)
    keep = torch.zeros(len(SRC), dtype=torch.bool)
    keep[1] = True  # the edge from node 0 to node 4; all others have infinite derivatives
    score = torch.zeros(len(SRC))
    each, weight = Roots()(graph=graph, src={"x": x}, dst={}, edge={"keep": keep, "score": score})
    assert each.tolist() == (2.0 * keep).tolist()
    assert weight.tolist() == keep.float().tolist()
    (slope,) = torch.autograd.grad(each.sum(), x)
    assert slope.tolist() == [0.25, 0.0, 0.0, 0.0, 0.0]


def test_a_node_cannot_compute_with_them(graph, fields):
    class Adds(Mixed):
        def node(self, dst, aggregate):
            return aggregate[0] + dst.x

    with pytest.raises(InvalidType, match=r"test_per_edge.py:\d+: .*a row per edge"):
        run(Adds(), graph, *fields)


def test_over_a_graph_in_a_file(tmp_path, torch_rng):
    count, edges = 400, 6000
    src, dst = torch.randint(0, count, (2, edges), generator=torch_rng)
    order = dst.argsort(stable=True)
    graph = tg.Graph.from_coo(src[order], dst[order], num_src=count, num_dst=count)
    graph.save(tmp_path / "graph")
    x = torch.randn(count, 3, generator=torch_rng, requires_grad=True)
    e = torch.randn(edges, 3, generator=torch_rng, requires_grad=True)

    def results(of):
        found = run(Mixed(), of, x, e)
        total = sum(r.square().sum() for r in found)
        return [*found, *torch.autograd.grad(total, (x, e))]

    wanted = results(graph)
    with tg.execution(memory={"host": "300KiB"}, spill_dir=tmp_path):
        found = results(tg.Graph.open(tmp_path / "graph"))
    assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))
