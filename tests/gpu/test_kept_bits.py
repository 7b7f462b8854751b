"""Gradients from conditions that a run kept as bits."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_mlir")

import tiga as tg  # noqa: E402
from tests.gpu import harness  # noqa: E402

pytestmark = pytest.mark.skipif(
    harness.device() is None, reason="no GPU, and TRITON_INTERPRET=1 is not set"
)
NODES, EDGES, F, H = 20, 700, 24, 40
nn = torch.nn


class Network(tg.MessagePassing, nn.Module):
    def __init__(self, reducer, *network):
        super().__init__()
        self.reducer, self.network = reducer, nn.Sequential(*network)

    def edge(self, src, dst, edge):
        return self.network(src.x - 2 * dst.x)


def expected(kernel, x, src, dst, kind):
    messages = kernel.network(x[src] - 2 * x[dst])
    zeros = messages.new_zeros(NODES, messages.shape[1])
    rows = dst[:, None].expand_as(messages)
    return zeros.scatter_reduce(0, rows, messages, kind, include_self=False)


@pytest.mark.parametrize(
    ("reducer", "kind", "network"),
    [
        (tg.sum, "sum", (nn.ReLU(), nn.Linear(F, H), nn.LeakyReLU(0.1))),
        (tg.max, "amax", (nn.Tanh(), nn.Linear(F, H))),
        (tg.sum, "sum", (nn.ReLU(),)),
    ],
)
def test_gradients_on_rows_that_are_split(where, reducer, kind, network):
    torch.manual_seed(0)
    src, dst = torch.randint(0, NODES, (2, EDGES))
    dst[: EDGES // 2], src[: EDGES // 3] = 3, 5
    kernel = Network(reducer(), *network).to(where)
    graph = tg.Graph.from_coo(src.to(where), dst.to(where), num_src=NODES, num_dst=NODES)
    x = torch.randn(NODES, F, requires_grad=True)
    out = kernel(graph=graph, ndata={"x": x.to(where)})
    found = torch.autograd.grad(out.square().sum(), [x, *kernel.parameters()])
    exact = kernel.cpu().double()
    leaf = x.detach().double().requires_grad_()
    want = expected(exact, leaf, src, dst, kind)
    wanted = torch.autograd.grad(want.square().sum(), [leaf, *exact.parameters()])
    for a, b in zip((out, *found), (want, *wanted), strict=True):
        assert (a.cpu().double() - b).norm() <= 1e-5 * b.norm()
