"""Fields of width 0, whose values have no elements."""

import pytest
import torch

import tiga as tg

SOURCES, ROWS = torch.tensor([[0, 2, 0, 1], [1, 1, 1, 2]])
GRAPH = tg.Graph.from_edge_index(torch.stack([SOURCES, ROWS]), num_nodes=4)
REDUCERS = ["sum", "mean", "max", "prod", "std", "logsumexp"]


def gradients(out, *inputs):
    return torch.autograd.grad(out.sum(), inputs, create_graph=True)


@pytest.mark.parametrize("name", REDUCERS)
def test_results_and_gradients_have_width_0(name):
    x = torch.zeros(4, 0, requires_grad=True)
    w = torch.rand(GRAPH.num_edges, 1, requires_grad=True)

    class Weighted(tg.MessagePassing):
        reducer = getattr(tg, name)()

        def edge(self, src, dst, edge):
            return edge.w * torch.relu(src.x - dst.x)

    kernel = Weighted()
    out = kernel(graph=GRAPH, src={"x": x}, dst={"x": x}, edge={"w": w})
    assert out.shape == (4, 0)
    dx, dw = gradients(out, x, w)
    assert dx.shape == (4, 0)
    assert torch.equal(dw, torch.zeros_like(w))


def test_reductions_over_no_features():
    class Reduced(tg.MessagePassing):
        reducer = tg.max()

        def edge(self, src, dst, edge):
            (piece,) = src.x.cumsum(-1).split(1, -1)
            return torch.stack([piece.prod(-1), piece.any(-1), piece.all(-1), piece.sum(-1)], -1)

    out = Reduced()(graph=GRAPH, src={"x": torch.zeros(4, 0)})
    assert out[1].tolist() == [1.0, 0.0, 1.0, 0.0]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_results_of_width_0_in_16_bits(dtype):
    class Plain(tg.MessagePassing):
        reducer = tg.sum()

        def edge(self, src, dst, edge):
            return src.x.sin()

    out = Plain()(graph=GRAPH, src={"x": torch.zeros(4, 0, dtype=dtype)})
    assert out.shape == (4, 0)
    assert out.dtype == dtype


def test_what_is_joined_with_nothing_is_itself():
    class Plain(tg.MessagePassing):
        reducer = tg.sum()

        def edge(self, src, dst, edge):
            return torch.cat([src.nothing, src.x * edge.w, dst.nothing], -1)

    x = torch.rand(4, 3, dtype=torch.float64, requires_grad=True)
    w = torch.rand(GRAPH.num_edges, 1, dtype=torch.float64, requires_grad=True)
    nothing = torch.zeros(4, 0, dtype=torch.float64, requires_grad=True)

    def run(x, w, nothing):
        fields = {"x": x, "nothing": nothing}
        return Plain()(graph=GRAPH, src=fields, dst=fields, edge={"w": w})

    want = torch.zeros(4, 3, dtype=torch.float64).index_add(0, ROWS, x[SOURCES] * w)
    torch.testing.assert_close(run(x, w, nothing), want)
    assert torch.autograd.gradcheck(run, (x, w, nothing))
    assert torch.autograd.gradgradcheck(run, (x, w, nothing))


@pytest.mark.parametrize(("inner", "outer"), [(0, 3), (3, 0), (0, 0)])
def test_products_with_matrices_without_elements(inner, outer):
    class Product(tg.MessagePassing):
        reducer = tg.sum()

        def __init__(self):
            super().__init__()
            self.weight = torch.rand(inner, outer, requires_grad=True)

        def edge(self, src, dst, edge):
            return (src.x * edge.w) @ self.weight

    kernel = Product()
    x, w = torch.rand(4, inner, requires_grad=True), torch.rand(GRAPH.num_edges, 1)
    out = kernel(graph=GRAPH, src={"x": x}, edge={"w": w})
    assert torch.equal(out, torch.zeros(4, outer))
    dx, dm = gradients(out, x, kernel.weight)
    assert torch.equal(dx, torch.zeros(4, inner))
    assert dm.shape == (inner, outer)


def test_an_empty_slice():
    class Sliced(tg.MessagePassing):
        reducer = tg.sum()

        def edge(self, src, dst, edge):
            return torch.cat([src.x[:, 2:2], src.x[:, 1:]], -1)

    x = torch.rand(4, 3, dtype=torch.float64, requires_grad=True)
    want = torch.zeros(4, 2, dtype=torch.float64).index_add(0, ROWS, x[SOURCES, 1:])
    out = Sliced()(graph=GRAPH, src={"x": x})
    torch.testing.assert_close(out, want)
    torch.testing.assert_close(gradients(out, x), gradients(want, x))


def test_in_batches_attention_and_own_reducers():
    class Attention(tg.MessagePassing):
        reducer = tg.softmax()

        def edge(self, src, dst, edge):
            return self.reducer((src.x * dst.x).sum(-1), src.x)

    kernel = Attention()
    x = torch.zeros(2, 4, 0, requires_grad=True)
    out = torch.func.vmap(lambda x: kernel(graph=GRAPH, ndata={"x": x}))(x)
    assert out.shape == (2, 4, 0)
    assert gradients(out, x)[0].shape == x.shape
