"""Every layer that docs/examples.md says is fused, beyond those of test_pyg.py."""

import pytest
import torch
import torch_geometric.nn as gnn

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
from tiga.errors import Unfusable
from tiga.interop import pyg

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


def attributes(width=D):
    return torch.randn(E, width, requires_grad=True)


def kinds():
    return torch.randint(0, 2, (E,))


def positions():
    return torch.randn(N, 3, requires_grad=True)


LAYERS = {
    "AntiSymmetric": (lambda: gnn.AntiSymmetricConv(F), lambda: ()),
    "ClusterGCN": (lambda: gnn.ClusterGCNConv(F, 6), lambda: ()),
    "DirGNN": (lambda: gnn.DirGNNConv(gnn.SAGEConv(F, 6)), lambda: ()),
    "EG": (lambda: gnn.EGConv(F, 8, num_heads=4), lambda: ()),
    "FeaSt": (lambda: gnn.FeaStConv(F, 6, heads=2), lambda: ()),
    "GatedGraph": (lambda: gnn.GatedGraphConv(F, 2), lambda: ()),
    "GPS": (lambda: gnn.GPSConv(F, gnn.GINConv(mlp(F, F)), heads=1, dropout=0.0).eval(),
            lambda: ()),
    "HEAT": (lambda: gnn.HEATConv(F, 6, 2, 2, 4, D, 4),
             lambda: (torch.randint(0, 2, (N,)), kinds(), attributes())),
    "LG": (gnn.LGConv, lambda: ()),
    "MF": (lambda: gnn.MFConv(F, 6), lambda: ()),
    "MixHop": (lambda: gnn.MixHopConv(F, 6), lambda: ()),
    "PDN": (lambda: gnn.PDNConv(F, 6, D, 8), lambda: (attributes(),)),
    "RGAT": (lambda: gnn.RGATConv(F, 6, 2), lambda: (kinds(),)),
    "RGCN": (lambda: gnn.RGCNConv(F, 6, 2), lambda: (kinds(),)),
    "SG": (lambda: gnn.SGConv(F, 6, K=2), lambda: ()),
    "Simple": (gnn.SimpleConv, lambda: ()),
    "SSG": (lambda: gnn.SSGConv(F, 6, alpha=0.1), lambda: ()),
    "WLContinuous": (gnn.WLConvContinuous, lambda: ()),
}  # fmt: skip
ON_POSITIONS = {
    "PointNet": lambda: gnn.PointNetConv(mlp(F + 3, 6)),
    "PointTransformer": lambda: gnn.PointTransformerConv(F, 6),
    "PointGNN": lambda: gnn.PointGNNConv(mlp(F, 3), mlp(F + 3, 6), mlp(6, F)),
}
REFUSED = {
    "ARMA": (lambda: gnn.ARMAConv(F, 6, num_stacks=2), lambda: (), "nodes on axis"),
    "FastRGCN": (lambda: gnn.FastRGCNConv(F, 6, 2), lambda: (kinds(),), "scatter"),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layers(name):
    make, rest = LAYERS[name]
    check(make(), nodes(), edges(), *rest())


@pytest.mark.parametrize("name", ON_POSITIONS)
def test_layers_on_positions(name):
    check(ON_POSITIONS[name](), nodes(), positions(), edges())


def test_layers_of_two_features_and_of_hyperedges():
    check(gnn.GCN2Conv(F, 0.1, 0.5, 1), nodes(), nodes(), edges())
    check(gnn.FAConv(F), nodes(), nodes(), edges())
    check(gnn.SignedConv(F, 6, first_aggr=True), nodes(), edges(), edges())
    check(gnn.HypergraphConv(F, 6), nodes(), torch.stack([edges()[0], edges()[1] % 4]))


def test_layers_of_several_node_sets():
    kind = [("a", "to", "a")]
    layers = (
        gnn.HGTConv({"a": F}, 8, (["a"], kind), 2),
        gnn.HANConv(F, 6, (["a"], kind)),
        gnn.HeteroConv({kind[0]: gnn.SAGEConv(F, 6)}),
    )
    for layer in layers:
        x, edge_index = {"a": nodes()}, {kind[0]: edges()}
        ours, theirs = (f(x, edge_index)["a"] for f in (pyg.compile(layer), layer))
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("name", REFUSED)
def test_refused_with_the_reason(name):
    make, rest, reason = REFUSED[name]
    with pytest.raises(Unfusable, match=reason):
        pyg.compile(make())(nodes(), edges(), *rest())


def test_angles_with_zero_vectors_are_those_of_the_layer():
    """A node's edge to itself, and nodes at one place: atan2 of a zero square is 0, not pi."""
    conv = gnn.PPFConv(mlp(F + 4, 5), mlp(5, 3))
    x, at = nodes().detach(), positions().detach()
    at[3:8] = at[3]
    normal = torch.nn.functional.normalize(positions().detach(), dim=1)
    args = (x, at, normal, edges())
    torch.testing.assert_close(pyg.compile(conv)(*args), conv(*args), rtol=1e-9, atol=1e-9)
