"""Forces in functions that torch compiles: derivatives that are themselves differentiated."""

import pytest
import torch
import torch._dynamo

import tiga as tg

SRC, DST = torch.tensor([0, 1, 2, 3, 1, 0]), torch.tensor([1, 0, 3, 2, 2, 3])
GRAPH = tg.Graph.from_coo(SRC, DST)


class Pairs(tg.MessagePassing, torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.mix = torch.nn.Linear(3, 1).double()

    def edge(self, src, dst, edge):
        squared = (src.r - dst.r).square().sum(-1, keepdim=True)
        return edge.w * self.mix(torch.exp(-squared * torch.arange(1, 4)))


class Sorted(tg.MessagePassing):
    """No kernel: it runs through torch, block by block."""

    def edge(self, src, dst, edge):
        return (edge.w * (src.r - dst.r)).sort(dim=-1).values.square()


@pytest.fixture(autouse=True)
def fresh():
    torch.compiler.reset()


def drawn():
    generator = torch.Generator().manual_seed(0)
    r = torch.randn(4, 3, dtype=torch.float64, generator=generator)
    return r, torch.rand(6, 1, dtype=torch.float64, generator=generator)


def test_torch_func_grad_in_one_graph():
    pairs, (r, w) = Pairs(), drawn()

    def loss(r):
        def energy(r):
            return pairs(graph=GRAPH, ndata={"r": r}, edge={"w": w}).sum()

        return torch.func.grad(energy)(r).square().sum()

    run = torch.compile(loss, fullgraph=True, backend="aot_eager")
    found, wanted = (torch.autograd.grad(f(r), pairs.mix.weight) for f in (run, loss))
    torch.testing.assert_close(found, wanted)


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # that torch's compiler looks at
@pytest.mark.parametrize("kernel", [Pairs, Sorted])
def test_gradients_between_graphs_are_not_traced(kernel):
    """Of a kernel that is kept out of torch's graphs. The gradient runs while torch's compiler
    watches, and is not its business."""
    (r, w), layer = drawn(), kernel()
    twice = kernel is Pairs

    @torch.compiler.disable
    def energy(r):
        return layer(graph=GRAPH, ndata={"r": r}, edge={"w": w}).sum()

    def loss(r):
        r = r.detach().requires_grad_()
        (force,) = torch.autograd.grad(energy(r), r, create_graph=twice)
        return force.square().sum()

    found, wanted = torch.compile(loss, backend="eager")(r), loss(r)
    torch.testing.assert_close(found, wanted)
    if twice:
        slopes = (torch.autograd.grad(value, layer.mix.weight) for value in (found, wanted))
        torch.testing.assert_close(*slopes)


@pytest.mark.slow
@pytest.mark.skipif(
    not hasattr(torch._dynamo.config, "trace_autograd_ops"), reason="this torch has no such setting"
)
def test_torch_autograd_grad_in_one_graph(monkeypatch):
    monkeypatch.setattr(torch._dynamo.config, "trace_autograd_ops", True)
    pairs, (r, w) = Pairs(), drawn()
    r.requires_grad_()

    def loss(r):
        energy = pairs(graph=GRAPH, ndata={"r": r}, edge={"w": w}).sum()
        (slope,) = torch.autograd.grad(energy, r, create_graph=True)
        return slope.square().sum()

    run, wrt = torch.compile(loss, fullgraph=True, backend="aot_eager"), (r, pairs.mix.weight)
    found, wanted = (torch.autograd.grad(f(r), wrt) for f in (run, loss))
    torch.testing.assert_close(found, wanted)
