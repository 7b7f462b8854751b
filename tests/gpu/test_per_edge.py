"""Results per edge, and picks by the kind of an edge, on tensors of a GPU."""

import pytest
import torch

import tiga as tg

NODES, EDGES = 9, 40


class Mixed(tg.MessagePassing):
    def edge(self, src, dst, edge):
        picked = src.y.gather(1, edge.kind[:, None, None].expand(-1, 1, 3))[:, 0]
        step = torch.tanh(edge.e + picked * dst.x)
        return tg.each()(step), tg.sum()(2.0 * step), tg.edge_softmax()(step.sum(-1))

    def node(self, dst, aggregate):
        step, total, weight = aggregate
        return step, dst.x + total, weight


def plain(src, dst, y, x, e, kind):
    step = torch.tanh(e + y[src, kind] * x[dst])
    weight = step.sum(-1).exp()
    whole = torch.zeros_like(x[:, 0]).index_add(0, dst, weight)
    return step, x + torch.zeros_like(x).index_add(0, dst, 2.0 * step), weight / whole[dst]


@pytest.fixture
def problem(where):
    generator = torch.Generator().manual_seed(0)
    src, dst = torch.randint(0, NODES, (2, EDGES), generator=generator).to(where)
    kind = torch.randint(0, 4, (EDGES,), generator=generator).to(where)
    shapes = (NODES, 4, 3), (NODES, 3), (EDGES, 3)
    fields = [torch.randn(s, generator=generator, dtype=torch.float64) for s in shapes]
    return src, dst, kind, [field.to(where).requires_grad_() for field in fields]


def call(graph, kind, y, x, e):
    return {"graph": graph, "src": {"y": y}, "dst": {"x": x}, "edge": {"e": e, "kind": kind}}


def derivatives(results, fields):
    total = sum(r.square().sum() for r in results)
    first = torch.autograd.grad(total, fields, create_graph=True)
    return [*results, *first, *torch.autograd.grad(sum(g.sin().sum() for g in first), fields)]


def test_values_and_two_derivatives(problem):
    src, dst, kind, fields = problem
    graph = tg.Graph.from_coo(src, dst, num_src=NODES, num_dst=NODES)
    found = derivatives(Mixed()(**call(graph, kind, *fields)), fields)
    wanted = derivatives(plain(src, dst, *fields, kind), fields)
    for ours, theirs in zip(found, wanted, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_the_oracle_and_a_prepared_call(problem):
    src, dst, kind, fields = problem
    fields = [field.detach() for field in fields]
    graph = tg.Graph.from_coo(src, dst, num_src=NODES, num_dst=NODES)
    given = call(graph, kind, *fields)
    launch = Mixed().prepare(**given)
    fields[2] *= 0.5
    wanted = plain(src, dst, *fields, kind)
    for results in (launch(), Mixed().reference(**given)):
        for ours, theirs in zip(results, wanted, strict=True):
            torch.testing.assert_close(ours, theirs)
