"""Layers inside `edge` whose weights have more elements than a kernel holds in registers."""

import pytest
import torch

import tiga as tg

GENERATOR = torch.Generator().manual_seed(4)
ENDS = torch.randint(0, 30, (2, 400), generator=GENERATOR)
GRAPH = tg.Graph.from_edge_index(ENDS, num_nodes=30)


class Joined(tg.MessagePassing, torch.nn.Module):
    """A linear layer over both ends and a field of the edge."""

    def __init__(self, width):
        super().__init__()
        self.linear = torch.nn.Linear(2 * width + 1, width)

    def edge(self, src, dst, edge):
        return torch.tanh(self.linear(torch.cat([src.x, dst.x, edge.w], -1)))


@pytest.mark.parametrize("width", [64, 100])
def test_a_linear_layer_over_a_concatenation(width):
    torch.manual_seed(1)
    layer = Joined(width)
    x = torch.randn(30, width, requires_grad=True)
    w = torch.randn(400, 1, requires_grad=True)
    out = layer(graph=GRAPH, ndata={"x": x}, edge={"w": w})
    sent = torch.tanh(layer.linear(torch.cat([x[ENDS[0]], x[ENDS[1]], w], -1)))
    want = torch.zeros(30, width).index_add(0, ENDS[1], sent)
    torch.testing.assert_close(out, want, rtol=1e-4, atol=1e-4)
    wrt = (x, w, *layer.parameters())
    cotangent = torch.randn(30, width)
    for one, other in zip(
        torch.autograd.grad(out, wrt, cotangent),
        torch.autograd.grad(want, wrt, cotangent),
        strict=True,
    ):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-3)
    assert not layer.diagnostics
