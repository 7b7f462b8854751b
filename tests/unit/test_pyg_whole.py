"""Layers that change the edges, or have two node sets, are one program too."""

import copy

import pytest
import torch
import torch_geometric.nn as gnn
from torch_geometric.utils import add_self_loops, remove_self_loops, scatter

from tests.unit.pyg_checks import (  # noqa: F401
    D,
    E,
    F,
    N,
    check,
    edges,
    in_double,
    mlp,
    nodes,
)
from tiga.interop import pyg

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


def weights(count=E):
    return torch.rand(count, requires_grad=True)


def attributes(count=E):
    return torch.randn(count, D, requires_grad=True)


def check_whole(conv, *args, **kwargs):
    fused = check(conv, *args, **kwargs)
    assert len(fused.propagate.layer_programs) == 1, fused.propagate.refusals
    assert not fused.propagate.kernels
    return fused


def one_loop_a_node():
    """Edges with at most one loop at a node: what is kept of several is not said."""
    index, _ = remove_self_loops(edges())
    loops = torch.tensor([[0, 4, 7], [0, 4, 7]])
    return torch.cat([index[:, : E - 10], loops], dim=1)


# loops

WITH_LOOPS = {
    "AGNN": (gnn.AGNNConv, None),
    "AntiSymmetric": (lambda: gnn.GCNConv(F, 6, improved=True), None),
    "APPNP": (lambda: gnn.APPNP(2, 0.1), None),
    "ClusterGCN": (lambda: gnn.ClusterGCNConv(F, 6, diag_lambda=0.3), None),
    "EG": (lambda: gnn.EGConv(F, 8, num_heads=4), None),
    "FeaSt": (lambda: gnn.FeaStConv(F, 6, heads=2), None),
    "GatedGraph": (lambda: gnn.GatedGraphConv(F, 2), None),
    "GAT": (lambda: gnn.GATConv(F, 6, heads=2), None),
    "GAT, mean": (lambda: gnn.GATConv(F, 6, heads=2, edge_dim=D), attributes),
    "GAT, max": (lambda: gnn.GATConv(F, 6, edge_dim=D, fill_value="max"), attributes),
    "GATv2, number": (lambda: gnn.GATv2Conv(F, 6, edge_dim=D, fill_value=0.5), attributes),
    "GCN": (lambda: gnn.GCNConv(F, 6), None),
    "GCN, weights": (lambda: gnn.GCNConv(F, 6, improved=True), weights),
    "PDN": (lambda: gnn.PDNConv(F, 6, D, 8), attributes),
    "SG": (lambda: gnn.SGConv(F, 6, K=2), weights),
    "SuperGAT": (lambda: gnn.SuperGATConv(F, 6, heads=2).eval(), None),
}  # fmt: skip


@pytest.mark.parametrize("name", WITH_LOOPS)
def test_layers_that_add_loops(name):
    make, per_edge = WITH_LOOPS[name]
    edge_index = one_loop_a_node()
    given = [] if per_edge is None else [per_edge(edge_index.shape[1])]
    check_whole(make(), nodes(), edge_index, *given)


def test_several_loops_of_a_node_of_which_one_is_kept():
    """torch gives the derivative of what is written to all that were written there."""
    edge_index = torch.cat([one_loop_a_node(), torch.tensor([[4], [4]])], dim=1)
    conv, weight = gnn.GCNConv(F, 6), weights(edge_index.shape[1])
    fused = check(conv, nodes(), edge_index, weight)
    assert fused.propagate.kernels
    check(conv, nodes(), one_loop_a_node(), weights(one_loop_a_node().shape[1]), fused=fused)
    assert fused.propagate.layer_programs
    check_whole(gnn.GATConv(F, 6, edge_dim=D), nodes(), edge_index, attributes(weight.shape[0]))


def test_edges_that_are_written_to():
    conv, edge_index = gnn.GATConv(F, 6), edges()
    fused = check_whole(conv, nodes(), edge_index)
    edge_index[0, :5] = torch.tensor([4, 3, 2, 1, 0])
    check(conv, nodes(), edge_index, fused=fused)
    with torch.inference_mode():
        twin = edge_index.clone()
        x = nodes().detach()
        torch.testing.assert_close(fused(x, twin), conv(x, twin))
        twin[0, :5] = 6
        torch.testing.assert_close(fused(x, twin), conv(x, twin))


def test_edges_derived_in_inference_mode_serve_training():
    conv, edge_index = gnn.GATConv(F, 6, edge_dim=D), edges()
    attr = attributes(edge_index.shape[1])
    fused = pyg.compile(conv)
    with torch.inference_mode():
        fused(nodes(), edge_index, attr)
    check(conv, nodes(), edge_index, attr, fused=fused)


def test_an_index_out_of_range_among_other_edges():
    fused = pyg.compile(gnn.GCNConv(F, 6))
    fused(nodes(), edges())
    for wrong in (torch.tensor([[0, N + 4], [1, N + 4]]), torch.tensor([[0, -3], [1, -3]])):
        with pytest.raises(IndexError, match=str(int(wrong[0, 1]))):
            fused(nodes(), wrong)


def test_a_graph_serves_calls_with_and_without_fields_of_edges():
    conv, edge_index = gnn.GCNConv(F, 6), one_loop_a_node()
    fused = check(conv, nodes(), edge_index)
    check(conv, nodes(), edge_index, weights(edge_index.shape[1]), fused=fused)
    known = fused.propagate.graphs.known
    check(conv, nodes(), edge_index, fused=fused)
    assert fused.propagate.graphs.known == known


def test_loops_alone_and_no_edges():
    conv = gnn.GCNConv(F, 6)
    loops = torch.arange(4).expand(2, -1)
    fused = check(conv, nodes(), loops, weights(4))
    for count in (0, 1):
        check(conv, nodes(), edges(count), weights(count).detach(), fused=fused)


class Own(gnn.MessagePassing):
    """Messages without loops first, then with added ones, whose values are computed."""

    def __init__(self):
        super().__init__(aggr="max")
        self.lin = torch.nn.Linear(1, 1)

    def forward(self, x, edge_index, weight):
        plain, kept = remove_self_loops(edge_index, weight)
        distance = (x[plain[0]] - x[plain[1]]).norm(dim=-1)
        most = scatter(kept, plain[1], 0, x.size(0), reduce="max")
        edge_index, weight = add_self_loops(plain, distance * kept, 0.3, num_nodes=x.size(0))
        loop = edge_index[0] == edge_index[1]
        weight[loop] *= 2
        weight[loop] += most
        return self.propagate(edge_index, x=x, weight=weight) + self.propagate(
            plain, x=x, weight=kept
        )

    def message(self, x_j, weight):
        return x_j * self.lin(weight.view(-1, 1))


def test_a_layer_of_ones_own_that_sends_along_parts_of_the_edges():
    """The norm of a difference at a loop has no derivative, and none may reach anything."""
    check_whole(Own(), nodes(), one_loop_a_node(), weights(one_loop_a_node().shape[1]))


def test_second_derivatives_of_a_layer_that_adds_loops():
    conv, edge_index = gnn.GATConv(3, 2, heads=2), edges(12, 5)
    fused = pyg.compile(conv)
    x = torch.randn(6, 3, requires_grad=True)
    assert torch.autograd.gradgradcheck(lambda value: fused(value, edge_index), (x,))
    assert fused.propagate.layer_programs


# BatchNorm in train mode


def normalised(inputs, outputs, **options):
    hidden = torch.nn.BatchNorm1d(8, **options)
    layers = torch.nn.Linear(inputs, 8), hidden, torch.nn.ReLU(), torch.nn.Linear(8, outputs)
    return torch.nn.Sequential(*layers)


NORMALISED = {
    "GEN": (lambda: gnn.GENConv(F, 6), ()),
    "GIN": (lambda: gnn.GINConv(normalised(F, 6, affine=False)), ()),
    "GIN, no running statistics": (
        lambda: gnn.GINConv(normalised(F, 6, track_running_stats=False)), ()),
    "over edges": (lambda: gnn.EdgeConv(normalised(2 * F, 6)), ()),
    "over edges and nodes": (
        lambda: gnn.PointNetConv(normalised(F + 3, 6), normalised(6, 5, momentum=0.5)),
        (torch.randn(N, 3, generator=torch.Generator().manual_seed(0)),)),
}  # fmt: skip


@pytest.mark.parametrize("name", NORMALISED)
def test_batch_norm_in_train_mode_and_its_running_statistics(name):
    make, rest = NORMALISED[name]
    conv, edge_index = make(), edges()
    rest = [value.double() for value in rest]
    twin = copy.deepcopy(conv)
    fused = pyg.compile(twin)
    for step in range(3):
        x = nodes()
        wanted = [(x, *module.parameters()) for module in (twin, conv)]
        ours, theirs = (call(x, *rest, edge_index) for call in (fused, conv))
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)
        weight = torch.randn_like(theirs)
        found, expected = (
            torch.autograd.grad(out, leaves, weight)
            for out, leaves in zip((ours, theirs), wanted, strict=True)
        )
        torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-8)
        if step == 1:
            twin.eval(), conv.eval(), fused.eval()
    for ours, theirs in zip(twin.buffers(), conv.buffers(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)
    assert fused.propagate.layer_programs, fused.propagate.refusals
    assert not fused.propagate.kernels


class NormalisesFirst(gnn.MessagePassing):
    """Takes statistics of its edges before it adds loops to them."""

    def __init__(self):
        super().__init__(aggr="sum")
        self.norm = torch.nn.BatchNorm1d(1)

    def forward(self, x, edge_index, weight):
        weight = self.norm(weight.view(-1, 1)).view(-1)
        edge_index, weight = add_self_loops(edge_index, weight, 1.0, num_nodes=x.size(0))
        return self.propagate(edge_index, x=x, weight=weight)

    def message(self, x_j, weight):
        return x_j * weight.view(-1, 1)


def test_a_batch_norm_over_a_part_of_the_edges():
    fused = check(NormalisesFirst(), nodes(), edges(), weights())
    assert fused.propagate.kernels  # a program ranges over the loops as well


def test_second_derivatives_of_a_batch_norm():
    hidden = torch.nn.BatchNorm1d(4)
    conv = gnn.GINConv(torch.nn.Sequential(torch.nn.Linear(3, 4), hidden, torch.nn.Tanh()))
    fused, edge_index = pyg.compile(conv), edges(12, 5)
    x = torch.randn(6, 3, requires_grad=True)
    assert torch.autograd.gradgradcheck(lambda value: fused(value, edge_index), (x,))
    assert fused.propagate.layer_programs


def test_a_batch_norm_of_one_node_and_an_average_over_all_batches():
    conv = gnn.GINConv(normalised(F, 6))
    fused, loop = pyg.compile(conv), torch.zeros(2, 2, dtype=torch.int64)
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        fused(nodes(1), loop)
    fused = check(gnn.GINConv(normalised(F, 6, momentum=None)), nodes(), edges())
    assert fused.propagate.kernels  # the average takes the number of batches, which is data


# two node sets

SOURCES, TARGETS, COUNT = 12, 9, 30


def between():
    return torch.stack(
        [torch.randint(0, SOURCES, (COUNT,)), torch.randint(0, TARGETS - 2, (COUNT,))]
    )


def pair(width=4):
    return nodes(SOURCES), nodes(TARGETS, width)


BETWEEN = {
    "CG": (lambda: gnn.CGConv((F, 4), dim=D), pair, attributes),
    "EdgeConv": (lambda: gnn.EdgeConv(mlp(2 * F, 6)), lambda: pair(F), None),
    "FeaSt": (lambda: gnn.FeaStConv(F, 6, heads=2), lambda: pair(F), None),
    "GAT": (lambda: gnn.GATConv((F, 4), 6, heads=2, edge_dim=D), pair, attributes),
    "GATv2": (lambda: gnn.GATv2Conv((F, 4), 6, add_self_loops=False), pair, None),
    "GIN": (lambda: gnn.GINConv(mlp(F, 6)), lambda: pair(F), None),
    "SAGE, max": (lambda: gnn.SAGEConv((F, 4), 6, aggr="max"), pair, None),
    "Transformer": (lambda: gnn.TransformerConv((F, 4), 6, heads=2), pair, None),
    "WLContinuous": (gnn.WLConvContinuous, lambda: pair(F), weights),
}  # fmt: skip


@pytest.mark.parametrize("name", BETWEEN)
def test_layers_between_two_node_sets(name):
    make, fields, per_edge = BETWEEN[name]
    given = [] if per_edge is None else [per_edge(COUNT)]
    check_whole(make(), fields(), between(), *given)


def test_fewer_sources_than_destinations():
    conv = gnn.GATConv((4, F), 6, heads=2)
    check_whole(conv, pair()[::-1], between().flip(0))


def test_sources_alone_and_a_size():
    conv = gnn.SAGEConv((F, 4), 6, root_weight=False)
    fused = check_whole(conv, (nodes(SOURCES), None), between(), size=(SOURCES, TARGETS))
    check(conv, (nodes(SOURCES + 1), None), between(), size=(SOURCES + 1, 8), fused=fused)
    assert len(fused.propagate.layer_programs) == 1
    check(gnn.SimpleConv(), (nodes(), None), edges())  # as many destinations as there seem to be


def test_second_derivatives_between_two_node_sets():
    fused = pyg.compile(gnn.SAGEConv((3, 2), 2, aggr="std"))
    x, y = (torch.randn(n, w, requires_grad=True) for n, w in ((5, 3), (4, 2)))
    edge_index = torch.stack([torch.arange(12) % 5, torch.arange(12) * 7 // 5 % 4])
    assert torch.autograd.gradgradcheck(lambda x, y: fused((x, y), edge_index), (x, y))
    assert fused.propagate.layer_programs


def test_a_number_of_nodes_in_a_range():
    class Numbers(Own):
        def forward(self, x, edge_index, weight):
            return self.propagate(edge_index, x=x, weight=weight) + torch.arange(len(x)).view(-1, 1)

    fused = check(Numbers(), nodes(N), edges(), weights())
    assert fused.propagate.kernels  # which nodes have which number is no part of a program
