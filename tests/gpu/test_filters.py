"""Networks of distances, whose gradients multiply with four matrices at every edge."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_mlir")

import tiga as tg  # noqa: E402
from tests.gpu import harness  # noqa: E402

pytestmark = pytest.mark.skipif(
    harness.device() is None, reason="no GPU, and TRITON_INTERPRET=1 is not set"
)
NODES, EDGES, BASIS, WIDTH = 40, 200, 20, 64
nn = torch.nn


class Filter(tg.MessagePassing, nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(BASIS, WIDTH), nn.SiLU(), nn.Linear(WIDTH, WIDTH))
        self.register_buffer("centres", torch.linspace(0, 5, BASIS))

    def weights(self, r):
        d = torch.linalg.vector_norm(r, dim=-1, keepdim=True)
        return self.net(torch.exp(-((d - self.centres) ** 2))) * torch.sin(d)

    def edge(self, src, dst, edge):
        return src.h * self.weights(src.r - dst.r + edge.shift)


def test_gradients_reach_positions_and_shifts(where):
    torch.manual_seed(0)
    kernel = Filter().to(where)
    src, dst = torch.randint(0, NODES, (2, EDGES))
    fields = torch.randn(NODES, WIDTH), torch.randn(NODES, 3), torch.rand(EDGES, 3)
    h, r, shift = (t.to(where).requires_grad_() for t in fields)
    graph = tg.Graph.from_coo(src.to(where), dst.to(where), num_src=NODES, num_dst=NODES)
    out = kernel(graph=graph, ndata={"h": h, "r": r}, edge={"shift": shift})
    found = torch.autograd.grad(out.square().sum(), [h, r, shift, *kernel.parameters()])
    exact = kernel.cpu().double()
    h, r, shift = (t.double().requires_grad_() for t in fields)
    messages = h[src] * exact.weights(r[src] - r[dst] + shift)
    want = torch.zeros(NODES, WIDTH, dtype=torch.float64).index_add(0, dst, messages)
    wanted = torch.autograd.grad(want.square().sum(), [h, r, shift, *exact.parameters()])
    for a, b in zip((out, *found), (want, *wanted), strict=True):
        assert (a.cpu().double() - b).norm() <= 1e-5 * b.norm()
