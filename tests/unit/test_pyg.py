"""Layers of PyTorch Geometric on Tiga give what they give by themselves."""

import copy
import pickle

import pytest
import torch
import torch_geometric.nn as gnn
from torch import nn
from torch._dynamo.testing import CompileCounterWithBackend

from tests.unit.pyg_checks import TIGHT, D, E, F, N, check, edges, mlp, nodes
from tiga.errors import Unfusable
from tiga.interop import pyg

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


@pytest.fixture(autouse=True)
def in_double():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


AGGREGATORS = ["sum", "mean", "max", "min", "std"]
SCALERS = ["identity", "amplification", "attenuation"]
LAYERS = {
    "GCN": (lambda: gnn.GCNConv(F, 6), "weight"),
    "GraphConv": (lambda: gnn.GraphConv(F, 6), "weight"),
    "SAGE": (lambda: gnn.SAGEConv(F, 6), None),
    "SAGE, max": (lambda: gnn.SAGEConv(F, 6, aggr="max"), None),
    "SAGE, min": (lambda: gnn.SAGEConv(F, 6, aggr="min"), None),
    "SAGE, mul": (lambda: gnn.SAGEConv(F, 6, aggr="mul"), None),
    "SAGE, softmax": (lambda: gnn.SAGEConv(F, 6, aggr=gnn.SoftmaxAggregation(learn=True)), None),
    "SAGE, powermean": (lambda: gnn.SAGEConv(F, 6, aggr=gnn.PowerMeanAggregation(2.0)), None),
    "SAGE, five": (lambda: gnn.SAGEConv(F, 6, aggr=AGGREGATORS), None),
    "GIN": (lambda: gnn.GINConv(mlp(F, 6), train_eps=True), None),
    "GINE": (lambda: gnn.GINEConv(mlp(F, 6), edge_dim=D), "attr"),
    "GAT": (lambda: gnn.GATConv(F, 6, heads=3, edge_dim=D), "attr"),
    "GATv2": (lambda: gnn.GATv2Conv(F, 6, heads=3, edge_dim=D), "attr"),
    "SuperGAT": (lambda: gnn.SuperGATConv(F, 6, heads=2).eval(), None),
    "Transformer": (lambda: gnn.TransformerConv(F, 6, heads=3, edge_dim=D, beta=True), "attr"),
    "EdgeConv": (lambda: gnn.EdgeConv(mlp(2 * F, 6)), None),
    "PNA": (lambda: gnn.PNAConv(F, 6, AGGREGATORS[1:], SCALERS, torch.tensor([3, 2, 5, 6, 4]),
                                edge_dim=D, towers=2), "attr"),
    "CG": (lambda: gnn.CGConv(F, dim=D), "attr"),
    "NN": (lambda: gnn.NNConv(F, 6, nn.Linear(D, F * 6)), "attr"),
    "GEN": (lambda: gnn.GENConv(F, 6, edge_dim=D), "attr"),
    "ResGated": (lambda: gnn.ResGatedGraphConv(F, 6, edge_dim=D), "attr"),
    "AGNN": (gnn.AGNNConv, None),
    "APPNP": (lambda: gnn.APPNP(3, 0.1), None),
    "TAG": (lambda: gnn.TAGConv(F, 6), None),
    "Cheb": (lambda: gnn.ChebConv(F, 6, K=3), None),
    "FiLM": (lambda: gnn.FiLMConv(F, 6), None),
    "LE": (lambda: gnn.LEConv(F, 6), None),
    "GMM": (lambda: gnn.GMMConv(F, 6, D, 3), "attr"),
    "General": (lambda: gnn.GeneralConv(F, 6, in_edge_channels=D, attention=True), "attr"),
}  # fmt: skip
EDGE_FIELDS = {
    "weight": lambda: torch.rand(E, requires_grad=True),
    "attr": lambda: torch.randn(E, D, requires_grad=True),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layers(name):
    make, per_edge = LAYERS[name]
    given = [] if per_edge is None else [EDGE_FIELDS[per_edge]()]
    fused = check(make(), nodes(), edges(), *given)
    assert "1 kernel" in fused.propagate.explain() or "kernels" in fused.propagate.explain()


def test_two_more_arguments():
    check(gnn.FAConv(F), nodes(), nodes(), edges())
    check(gnn.PointNetConv(mlp(F + 3, 6)), nodes(), torch.randn(N, 3), edges())
    check(gnn.PointTransformerConv(F, 6), nodes(), torch.randn(N, 3), edges())
    check(gnn.RGCNConv(F, 6, num_relations=3), nodes(), edges(), torch.randint(0, 3, (E,)))
    check(gnn.RGATConv(F, 6, num_relations=3), nodes(), edges(), torch.randint(0, 3, (E,)))


# graphs


def test_two_node_sets_and_a_size():
    source, target = nodes(12), nodes(9, 4)
    edge_index = torch.stack([torch.randint(0, 12, (30,)), torch.randint(0, 7, (30,))])
    check(gnn.SAGEConv((F, 4), 6), (source, target), edge_index)
    check(gnn.SAGEConv((F, 4), 6, root_weight=False), (source, None), edge_index, size=(12, 9))
    check(gnn.GATv2Conv((F, 4), 6, heads=2, add_self_loops=False), (source, target), edge_index)


def test_a_size_that_contradicts_a_field_is_refused_as_by_the_layer():
    conv = pyg.compile(gnn.SAGEConv(F, 6))
    with pytest.raises(ValueError, match="expected size 12"):
        conv((nodes(), None), edges(), size=(12, 9))


def test_messages_against_the_direction_of_edges():
    conv = gnn.SAGEConv(F, 6, flow="target_to_source")
    edge_index = edges()
    fused = check(conv, nodes(), edge_index)
    turned = gnn.SAGEConv(F, 6)
    turned.load_state_dict(conv.state_dict())
    x = nodes()
    torch.testing.assert_close(fused(x, edge_index), turned(x, edge_index.flip(0)), **TIGHT)


@pytest.mark.parametrize("count", [0, 1, N])
@pytest.mark.parametrize("name", ["GCN", "SAGE, five", "GATv2", "GAT"])
def test_no_edge_one_edge_and_as_many_as_nodes(name, count):
    make, per_edge = LAYERS[name]
    given = [] if per_edge is None else [EDGE_FIELDS[per_edge]()[:count].detach()]
    check(make(), nodes(), edges(count), *given)


def test_loops_are_added_and_replaced_as_by_the_layer():
    loops = torch.arange(4).expand(2, -1)
    edge_index = torch.cat([edges(), loops], dim=1)
    weight = torch.rand(E + 4, requires_grad=True)
    check(gnn.GCNConv(F, 6, improved=True), nodes(), edge_index, weight)
    check(gnn.GCNConv(F, 6, add_self_loops=False, normalize=False), nodes(), edge_index, weight)
    attr = torch.randn(E + 4, D, requires_grad=True)
    check(gnn.GATConv(F, 6, edge_dim=D, fill_value="mean"), nodes(), edge_index, attr)


def test_other_edges_in_a_later_call():
    conv = gnn.SAGEConv(F, 6)
    fused = check(conv, nodes(), edges())
    check(conv, nodes(), edges(41), fused=fused)
    check(conv, nodes(25), edges(55), fused=fused)
    edge_index = edges()
    check(conv, nodes(), edge_index, fused=fused)
    edge_index[0, :5] = torch.tensor([4, 3, 2, 1, 0])
    check(conv, nodes(), edge_index, fused=fused)


def test_equal_edges_share_a_graph():
    fused = pyg.compile(gnn.GCNConv(F, 6))  # makes new indices, with loops, at every call
    edge_index, x = edges(), nodes()
    for _ in range(3):
        fused(x, edge_index)
    assert len(fused.propagate.graphs.known) == 1
    fused(x, edges())
    assert len(fused.propagate.graphs.known) == 2


def test_graphs_are_kept_for_every_kind_of_edges():
    conv = gnn.RGCNConv(F, 6, num_relations=12)
    kinds = torch.arange(E) % 12
    fused = check(conv, nodes(), edge_index := edges(), kinds)
    known = fused.propagate.graphs.known
    assert len(known) == 12
    fused(nodes(), edge_index, kinds)
    assert fused.propagate.graphs.known == known


def test_graphs_are_forgotten_when_there_are_many():
    fused = pyg.compile(gnn.SAGEConv(F, 6))
    for _ in range(6):
        fused(nodes(), edges())
    assert len(fused.propagate.graphs.known) == 4


def test_an_index_out_of_range():
    fused = pyg.compile(gnn.SAGEConv(F, 6))
    with pytest.raises(IndexError, match="25"):
        fused(nodes(), torch.tensor([[25], [0]]))


def test_indices_of_32_bits():
    conv, x, edge_index = gnn.SAGEConv(F, 6), nodes(), edges()
    torch.testing.assert_close(pyg.compile(conv)(x, edge_index.int()), conv(x, edge_index))


# layers as modules


def test_parameters_are_shared_and_changes_are_seen():
    conv = gnn.GATConv(F, 6, heads=2)
    x, edge_index = nodes(), edges()
    fused = check(conv, x, edge_index)
    assert dict(fused.named_parameters()).keys() == dict(conv.named_parameters()).keys()
    with torch.no_grad():
        conv.att_src.mul_(3)
    check(conv, x, edge_index, fused=fused)
    before = fused(x, edge_index)
    fused.negative_slope = conv.negative_slope = 0.9
    check(conv, x, edge_index, fused=fused)
    assert not torch.allclose(before, fused(x, edge_index))


def test_a_module_within_a_message_that_is_exchanged():
    conv = gnn.EdgeConv(nn.Linear(2 * F, 6))
    x, edge_index = nodes(), edges()
    fused = check(conv, x, edge_index)
    conv.nn = fused.nn = mlp(2 * F, 6)
    check(conv, x, edge_index, fused=fused)


def test_copies_and_pickles():
    fused = pyg.compile(gnn.GATv2Conv(F, 6, heads=2))
    x, edge_index = nodes(), edges()
    out = fused(x, edge_index)
    for twin in (copy.deepcopy(fused), pickle.loads(pickle.dumps(fused))):
        torch.testing.assert_close(twin(x, edge_index), out)
        with torch.no_grad():
            twin.att.zero_()
        assert twin.propagate.conv is twin
    torch.testing.assert_close(fused(x, edge_index), out)


def test_a_model_of_layers():
    model = gnn.GAT(F, 16, num_layers=3, out_channels=4, v2=True, heads=2)
    x, edge_index = nodes(), edges()
    fused = check(model, x, edge_index)
    convs = list(fused.convs)
    assert all(isinstance(conv.propagate, pyg.Propagate) for conv in convs)
    assert not any(isinstance(conv.propagate, pyg.Propagate) for conv in model.convs)
    assert len({id(conv.propagate.graphs) for conv in convs}) == 1
    assert len(convs[0].propagate.graphs.known) == 1


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("layer", [gnn.GATv2Conv, gnn.TransformerConv, gnn.RGATConv])
def test_attention_weights_are_there_when_asked_for(layer, compiled):
    """Those of an edge update, and those that `message` assigns to an attribute of the layer."""
    kinds = [torch.randint(0, 2, (E,))] if layer is gnn.RGATConv else []
    conv = layer(F, 6, *(2 for _ in kinds), heads=2)
    x, edge_index, fused = nodes(), edges(), pyg.compile(conv)
    if compiled:
        torch._dynamo.reset()
        fused = torch.compile(fused, backend="aot_eager", fullgraph=True)
    for _ in range(2):
        out, (index, alpha) = fused(x, edge_index, *kinds, return_attention_weights=True)
        expected, (wanted, weights) = conv(x, edge_index, *kinds, return_attention_weights=True)
        torch.testing.assert_close(out, expected, **TIGHT)
        assert torch.equal(index, wanted)
        torch.testing.assert_close(alpha, weights, **TIGHT)
        got, want = (torch.autograd.grad(a.sin().sum(), x)[0] for a in (alpha, weights))
        torch.testing.assert_close(got, want, **TIGHT)


# torch's compiler itself looks at the gradients of what it finds on the stack.
@pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning")
@pytest.mark.parametrize("name", LAYERS)
def test_layers_inside_a_compiled_region(name):
    torch._dynamo.reset()
    make, per_edge = LAYERS[name]
    given = [] if per_edge is None else [EDGE_FIELDS[per_edge]()]
    layer = make()
    fused = torch.compile(pyg.compile(layer), backend="aot_eager", fullgraph=True)
    check(layer, nodes(), edges(), *given, fused=fused)


@pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning")
def test_a_compiled_model_is_one_graph_for_any_sizes():
    torch._dynamo.reset()
    model = gnn.GraphSAGE(F, 16, num_layers=2, out_channels=4)
    counter = CompileCounterWithBackend("aot_eager")
    fused = torch.compile(pyg.compile(model), backend=counter, fullgraph=True)
    for n, e in ((5, 9), (7, 20), (11, 40)):
        x, edge_index = torch.randn(n, F), torch.randint(0, n, (2, e))
        torch.testing.assert_close(fused(x, edge_index), model(x, edge_index), **TIGHT)
    assert counter.frame_count <= 2


@pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning")
def test_parameters_that_change_are_seen_in_a_compiled_region():
    torch._dynamo.reset()
    conv = gnn.GATv2Conv(F, 6, heads=2)
    fused = torch.compile(pyg.compile(conv), backend="aot_eager", fullgraph=True)
    x, edge_index = nodes(), edges()
    torch.testing.assert_close(fused(x, edge_index), conv(x, edge_index), **TIGHT)
    with torch.no_grad():
        conv.att.mul_(-2)
    torch.testing.assert_close(fused(x, edge_index), conv(x, edge_index), **TIGHT)
    conv.negative_slope = 0.5
    torch.testing.assert_close(pyg.compile(conv)(x, edge_index), conv(x, edge_index), **TIGHT)


@pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning")
def test_attention_weights_in_a_compiled_region():
    torch._dynamo.reset()
    conv = gnn.GATConv(F, 6, heads=2)
    fused = torch.compile(pyg.compile(conv), backend="aot_eager", fullgraph=True)
    x, edge_index = nodes(), edges()
    out, (index, alpha) = fused(x, edge_index, return_attention_weights=True)
    want, (indices, weights) = conv(x, edge_index, return_attention_weights=True)
    torch.testing.assert_close(out, want, **TIGHT)
    assert torch.equal(index, indices)
    torch.testing.assert_close(alpha, weights, **TIGHT)


def test_dropout_of_attention():
    conv = gnn.GATConv(F, 6, heads=2, dropout=0.5)
    fused, x, edge_index = pyg.compile(conv), nodes(), edges()
    torch.manual_seed(7)
    first, second = fused(x, edge_index), fused(x, edge_index)
    assert not torch.equal(first, second)
    torch.manual_seed(7)
    assert torch.equal(fused(x, edge_index), first)
    with pytest.raises(Unfusable, match="at random"):
        fused(x, edge_index, return_attention_weights=True)
    conv.eval()
    check(conv, x, edge_index, fused=fused.eval())


def test_dropout_on_average():
    """The mean of many draws comes near the result without dropout, within 5 deviations."""
    conv = gnn.GATConv(F, 2, dropout=0.5)
    fused, x, edge_index = pyg.compile(conv), nodes().detach(), edges()
    draws = torch.stack([fused(x, edge_index) for _ in range(200)])
    error = (draws.mean(0) - conv.eval()(x, edge_index)).abs()
    assert (error <= 5 * draws.std(0) / 200**0.5 + 1e-12).all()


def test_second_derivatives():
    conv = gnn.TransformerConv(3, 2, heads=2, concat=False)
    fused, edge_index = pyg.compile(conv), edges(12, 5)
    x = torch.randn(6, 3, requires_grad=True)
    assert torch.autograd.gradgradcheck(lambda value: fused(value, edge_index), (x,))
