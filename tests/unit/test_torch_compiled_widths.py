"""Calls inside torch.compile whose fields have other features than before."""

import pytest
import torch

import tiga as tg


class Product(tg.MessagePassing):
    def edge(self, src, dst, edge, scale):
        return torch.relu(src.x * dst.x) * scale


@pytest.mark.parametrize("dynamic", [None, True])
def test_sizes_of_features_that_torch_made_symbols(dynamic):
    torch._dynamo.reset()
    kernel = Product()

    def step(graph, x, y, scale):
        return kernel(graph=graph, src={"x": x}, dst={"x": y}, scale=scale) + 1

    compiled = torch.compile(step, fullgraph=True, backend="aot_eager", dynamic=dynamic)
    for count, width in ((3, 2), (3, 3), (5, 5), (4, 1)):
        index = torch.arange(count)
        graph = tg.Graph.from_coo(index, index.flip(0), num_src=count, num_dst=count)
        given = graph, torch.randn(count, width), torch.randn(count, width), torch.randn(width)
        torch.testing.assert_close(compiled(*given), step(*given))
