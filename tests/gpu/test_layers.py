"""Layers of PyTorch Geometric as whole programs on a GPU, against the layers themselves."""

import copy

import pytest
import torch

gnn = pytest.importorskip("torch_geometric.nn")

from tiga.interop import pyg  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # of PyG, about speed and what it deprecates
NODES, EDGES, F, D = 20, 60, 4, 3
SOURCES = 14


def edges(where):
    """Edges with three loops, at most one a node."""
    src, dst = torch.randint(0, NODES - 2, (2, EDGES))
    kept = src != dst
    loops = torch.tensor([0, 3, 8])
    return torch.stack([torch.cat([src[kept], loops]), torch.cat([dst[kept], loops])]).to(where)


def between(where):
    ends = torch.randint(0, SOURCES, (EDGES,)), torch.randint(0, NODES - 2, (EDGES,))
    return torch.stack(ends).to(where)


def compare(layer, fields, edge_index, attribute, second):
    """Values, first derivatives and one second derivative, with those of the layer in float64."""
    where = edge_index.device
    leaves = [torch.randn(shape, device=where, requires_grad=True) for shape in fields]
    if attribute is not None:
        shape = (edge_index.shape[1], *attribute)
        leaves.append(torch.rand(shape, device=where, requires_grad=True))
    count = len(fields)
    exact = copy.deepcopy(layer).double()
    fused = pyg.compile(layer)
    found = []
    for call, cast in ((fused, torch.Tensor.float), (exact, torch.Tensor.double)):
        given = [cast(leaf.detach()).requires_grad_() for leaf in leaves]
        x = given[0] if count == 1 else tuple(given[:count])
        out = call(x, edge_index, *given[count:])
        wanted = [*given, *call.parameters()]
        first = torch.autograd.grad(out.square().sum(), wanted, create_graph=second)
        more = torch.autograd.grad(first[0].square().sum(), given) if second else ()
        found.append([out, *first, *more])
    scale = max(float(t.detach().abs().max()) for t in found[1])
    for ours, theirs in zip(*found, strict=True):
        off = float((ours.detach().double() - theirs.detach()).abs().max())
        size = max(float(theirs.detach().abs().max()), 1e-2 * scale)
        assert off <= 2e-4 * size
    for ours, theirs in zip(layer.buffers(), exact.buffers(), strict=True):
        torch.testing.assert_close(ours.double(), theirs.double(), rtol=1e-4, atol=1e-5)
    assert fused.propagate.layer_programs, fused.propagate.refusals
    assert not fused.propagate.kernels


def normalised(inputs=F):
    hidden = torch.nn.BatchNorm1d(6)
    return torch.nn.Sequential(torch.nn.Linear(inputs, 6), hidden, torch.nn.Tanh())


ONE_SET = {
    "GCN": (lambda: gnn.GCNConv(F, 5), None, True),
    "GCN, weights": (lambda: gnn.GCNConv(F, 5), (), True),
    "GAT": (lambda: gnn.GATConv(F, 4, heads=2), None, True),
    "GAT, mean": (lambda: gnn.GATConv(F, 4, heads=2, edge_dim=D), (D,), False),
    "GATv2, number": (lambda: gnn.GATv2Conv(F, 4, edge_dim=D, fill_value=0.5), (D,), False),
    "GIN, BatchNorm": (lambda: gnn.GINConv(normalised()), None, True),
    "over edges": (lambda: gnn.EdgeConv(normalised(2 * F)), None, False),
    "ClusterGCN": (lambda: gnn.ClusterGCNConv(F, 4, diag_lambda=0.3), None, False),
}  # fmt: skip
TWO_SETS = {
    "GATv2": (lambda: gnn.GATv2Conv((F, D), 4, heads=2), True),
    "SAGE, max": (lambda: gnn.SAGEConv((F, D), 4, aggr="max"), False),
    "Transformer": (lambda: gnn.TransformerConv((F, D), 4, heads=2), False),
}  # fmt: skip


@pytest.mark.parametrize("name", ONE_SET)
def test_layers_that_add_loops(where, name):
    torch.manual_seed(5)
    make, attribute, second = ONE_SET[name]
    compare(make().to(where), [(NODES, F)], edges(where), attribute, second)


@pytest.mark.parametrize("name", TWO_SETS)
def test_layers_between_two_node_sets(where, name):
    torch.manual_seed(5)
    make, second = TWO_SETS[name]
    compare(make().to(where), [(SOURCES, F), (NODES, D)], between(where), None, second)
