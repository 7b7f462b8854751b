"""Nodes without edges have no derivative, whatever a message would make of their values."""

import pytest
import torch

import tiga as tg

SOURCES, TARGETS = torch.tensor([0, 1, 1]), torch.tensor([0, 0, 1])
GRAPH = tg.Graph.from_coo(SOURCES, TARGETS, num_src=3, num_dst=3)
"""Node 2 has no edge."""
MATRIX = torch.tensor([[0.5, 1.0], [2.0, 0.25]], dtype=torch.float64)

MESSAGES = {
    "log of a source": lambda s, d, p: torch.log(s.x),
    "root of a target": lambda s, d, p: d.x.sqrt() * s.x,
    "both ends": lambda s, d, p: (1 / s.x - torch.rsqrt(d.x)).tanh(),
    "a power": lambda s, d, p: (s.x**p) * d.x.log(),
    "a factor of a log": lambda s, d, p: p * s.x.log(),
    "a matrix": lambda s, d, p: s.x.log() @ (p * MATRIX) + d.x,
    "a matrix of a matrix": lambda s, d, p: s.x.log() @ ((p * MATRIX).exp() @ MATRIX) + d.x,
    "two matrices": lambda s, d, p: (s.x.log().square() @ (p * MATRIX)).log() @ (MATRIX + p),
}


def derivatives(out, wanted):
    """The first and second ones, zeros where there is none."""
    options = {"create_graph": True, "allow_unused": True, "materialize_grads": True}
    first = torch.autograd.grad(out.sin().sum(), wanted, **options)
    return [*first, *torch.autograd.grad(sum(g.square().sum() for g in first), wanted, **options)]


@pytest.mark.parametrize("name", MESSAGES)
@pytest.mark.parametrize("one_set", [True, False])
def test_padding_gets_no_derivative(name, one_set):
    message = MESSAGES[name]

    class Kernel(tg.MessagePassing):
        def edge(self, src, dst, edge, p):
            return message(src, dst, p)

    class Ends:
        def __init__(self, x):
            self.x = x

    x = torch.tensor([[1.5, 2.0], [0.5, 3.0], [0.0, 0.0]], dtype=torch.float64)
    x, y = x.clone().requires_grad_(), (2 * x).requires_grad_()
    p = torch.tensor(1.5, dtype=torch.float64, requires_grad=True)
    fields = {"ndata": {"x": x}} if one_set else {"src": {"x": x}, "dst": {"x": y}}
    got = Kernel()(graph=GRAPH, p=p, **fields)
    sent = message(Ends(x[SOURCES]), Ends((x if one_set else y)[TARGETS]), p)
    want = torch.zeros_like(x).index_add(0, TARGETS, sent)
    wanted = (x, p) if one_set else (x, y, p)
    torch.testing.assert_close(got, want)
    torch.testing.assert_close(derivatives(got, wanted), derivatives(want, wanted))


def test_what_cannot_be_infinite_stays_as_it_is():
    class Kernel(tg.MessagePassing):
        def edge(self, src, dst, edge, w):
            return torch.tanh(src.x @ w) + torch.relu(dst.x)

    x, w = torch.randn(3, 4, requires_grad=True), torch.randn(4, 4, requires_grad=True)
    kernel = Kernel()
    kernel(graph=GRAPH, ndata={"x": x}, w=w).sum().backward()
    assert "degree" not in kernel.explain()
