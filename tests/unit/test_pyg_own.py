"""PyG layers of one's own on Tiga, and which layers are refused."""

import pytest
import torch
import torch_geometric.nn as gnn
from torch import nn
from torch_geometric.utils import scatter, softmax

from tests.unit.pyg_checks import E, F, N, check, edges, nodes
from tiga.errors import InvalidType, InvalidValue, Unfusable
from tiga.interop import pyg

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


@pytest.fixture(autouse=True)
def in_double():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


class Own(gnn.MessagePassing):
    """Everything that messages may do with indices, and a number of the call."""

    def __init__(self):
        super().__init__(aggr=None)
        self.lin = nn.Linear(F, F)

    def forward(self, x, edge_index, power, weight=None):
        return self.propagate(edge_index, x=x, power=power, weight=weight)

    def message(self, x_i, x_j, power, weight, index, size_i):
        score = (self.lin(x_j) * x_i).sum(-1) * power
        alpha = softmax(score, index, num_nodes=size_i)
        most = scatter(x_j, index, 0, size_i, reduce="max").index_select(0, index)
        sent = alpha.view(-1, 1) * x_j + 0.1 * most
        return sent if weight is None else sent * weight

    def aggregate(self, inputs, index, dim_size):
        total = torch.zeros((dim_size, F)).index_add(0, index, inputs)
        return torch.cat([total, scatter(inputs, index, 0, dim_size, reduce="mean")], dim=-1)

    def update(self, aggr_out, x):
        return torch.cat([aggr_out, x], dim=-1)


def test_a_layer_of_ones_own():
    conv, x, edge_index = Own(), nodes(), edges()
    fused = check(conv, x, edge_index, 0.5)
    check(conv, x, edge_index, 2.5, fused=fused)
    (kernel,) = fused.propagate.kernels.values()
    assert kernel.cache_info.variants == 1, "a number is an operand of the program"
    check(conv, x, edge_index, 1.0, torch.rand(F, requires_grad=True), fused=fused)
    check(conv, x, edge_index, 1.0, torch.rand(E, F, requires_grad=True), fused=fused)
    assert len(fused.propagate.kernels) == 3


class UpdatesFirst(gnn.MessagePassing):
    """Uses what its edge update gives before it sends it, as tensors are used."""

    def __init__(self):
        super().__init__(aggr="sum")
        self.lin = nn.Linear(2 * F, 1)

    def forward(self, x, edge_index):
        alpha = self.edge_updater(edge_index, x=x)
        alpha = 2 * torch.sigmoid(alpha) + alpha.tanh() - alpha[:, :1]
        return self.propagate(edge_index, x=x, alpha=alpha)

    def edge_update(self, x_i, x_j):
        return self.lin(torch.cat([x_i, x_j], dim=-1))

    def message(self, x_j, alpha):
        return alpha * x_j


class SendsAsItIs(UpdatesFirst):
    """Leaves its edge update to the walk, in which it shares no name with the message."""

    def forward(self, x, edge_index):
        return self.propagate(edge_index, x=x, alpha=self.edge_updater(edge_index, x=2 * x))


@pytest.mark.parametrize("layer", [UpdatesFirst, SendsAsItIs])
def test_updates_of_edges(layer):
    fused = check(layer(), nodes(), edges())
    assert fused.propagate.layer_programs
    assert not fused.propagate.kernels


@pytest.mark.parametrize("layer", [UpdatesFirst, SendsAsItIs])
def test_updates_of_edges_of_a_layer_with_a_hook(layer):
    """What may run at every call of a module stays outside of programs."""
    conv, seen = layer(), []
    conv.lin.register_forward_hook(lambda *_: seen.append(1))
    fused = check(conv, nodes(), edges())
    assert not fused.propagate.layer_programs
    (plan,) = fused.propagate.kernels
    inside = [stage.function for stage in plan]
    updates = ["edge_update"] if layer is SendsAsItIs else []
    assert inside == [*updates, "message", "aggregate"]


def test_what_runs_at_every_call_of_any_module():
    conv, seen = gnn.SAGEConv(F, 6), []
    fused = check(conv, nodes(), edges())
    hook = nn.modules.module.register_module_forward_hook(lambda *call: seen.append(call[0]))
    try:
        fused(nodes(), edges())
    finally:
        hook.remove()
    assert conv.lin_l in seen


def test_a_module_whose_forward_is_exchanged():
    conv = gnn.GINConv(nn.Sequential(nn.Linear(F, 6), nn.ReLU()))
    fused = check(conv, nodes(), edges())
    conv.nn[1].forward = lambda x: 2 * x
    check(conv, nodes(), edges(), fused=fused)


def test_a_layer_is_one_program_or_says_why_not():
    fused = check(gnn.TransformerConv(F, 6, heads=2), nodes(), edges())
    assert len(fused.propagate.layer_programs) == 1
    assert not fused.propagate.kernels
    assert "not one program" not in fused.propagate.explain()
    fused = check(gnn.MFConv(F, 6), nodes(), edges())  # picks nodes by their degrees
    assert not fused.propagate.layer_programs
    assert len(fused.propagate.kernels) == 1
    assert "not one program: " in fused.propagate.explain()


def test_a_lazy_layer_is_one_program_once_its_sizes_are_known():
    fused = pyg.compile(gnn.SAGEConv(-1, 6))
    x, edge_index = nodes(), edges()
    first = fused(x, edge_index)
    assert not fused.propagate.layer_programs
    torch.testing.assert_close(fused(x, edge_index), first)
    assert fused.propagate.layer_programs
    assert not fused.propagate.refusals


def test_a_layer_that_keeps_state_is_run_as_it_is():
    class Counts(ReadsNothing):
        def forward(self, x, edge_index):
            self.calls = getattr(self, "calls", 0) + 1
            return super().forward(x, edge_index)

    conv = Counts()
    fused = check(conv, nodes(), edges())
    fused(nodes(), edges())
    assert fused.calls == 2


class ReadsNothing(gnn.MessagePassing):
    def forward(self, x, edge_index):
        return self.propagate(edge_index, x=x).relu() + x

    def message(self, x_j):
        return x_j


# what is refused


class ReadsIndices(gnn.MessagePassing):
    def forward(self, x, edge_index):
        return self.propagate(edge_index, x=x)

    def message(self, x_j, index):
        return x_j * (index % 2).view(-1, 1)


class CountsIndices(ReadsIndices):
    def message(self, x_j, index):
        return x_j / torch.bincount(index)[index].view(-1, 1)


class ReadsTheGraph(ReadsIndices):
    def message(self, x_j, edge_index):
        return x_j


class UpdatesEdges(ReadsIndices):
    def message(self, x_j):
        return x_j

    def update(self, inputs, x_j):
        return inputs


class Unreduced(UpdatesEdges):
    def aggregate(self, inputs):
        return inputs

    def update(self, inputs):
        return inputs


REFUSED = {
    "lstm": (lambda: gnn.SAGEConv(F, 6, aggr="lstm"), "indices of edges"),
    "reads indices": (ReadsIndices, "indices of edges"),
    "counts indices": (CountsIndices, "takes the indices of edges"),
    "sorts": (
        lambda: gnn.SAGEConv(F, 6, aggr=gnn.SortAggregation(2)),
        "SortAggregation of SAGEConv sorts",
    ),
    "median": (lambda: gnn.SAGEConv(F, 6, aggr="median"), "MedianAggregation.*layer itself"),
    "reads the graph": (ReadsTheGraph, "`message` takes `edge_index`"),
    "reduces nothing": (Unreduced, "a value per edge"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_with_the_reason(name):
    make, reason = REFUSED[name]
    with pytest.raises((Unfusable, InvalidValue), match=reason):
        pyg.compile(make())(nodes(), edges())


def test_an_update_that_takes_a_value_of_the_edges():
    check(UpdatesEdges(), nodes(), edges())
    with pytest.raises(Unfusable, match="`update` takes `x_j`"):
        pyg.compile(UpdatesEdges())(nodes(E), edges())  # which of both has `x`?


def test_nodes_on_another_axis():
    with pytest.raises(Unfusable, match="not the first"):
        pyg.compile(gnn.SAGEConv(F, 6))(torch.randn(2, N, F), edges())


def test_hooks_and_explanations():
    fused = pyg.compile(gnn.SAGEConv(F, 6))
    handle = fused.register_message_forward_hook(lambda *_: None)
    with pytest.raises(Unfusable, match="message_forward_hooks"):
        fused(nodes(), edges())
    handle.remove()
    fused(nodes(), edges())
    fused.explain = True
    with pytest.raises(Unfusable, match="single edges"):
        fused(nodes(), edges())


def test_a_forward_assigned_to_a_layer():
    conv = gnn.SAGEConv(F, 6)
    conv.forward = lambda x, edge_index: x
    with pytest.raises(InvalidType, match="Give a subclass"):
        pyg.compile(conv)
    twice = pyg.compile(pyg.compile(gnn.SAGEConv(F, 6)))
    assert twice(nodes(), edges()).shape == (N, 6)


def test_what_is_no_layer_and_no_edge_index():
    with pytest.raises(InvalidType, match="got int"):
        pyg.compile(3)
    with pytest.raises(InvalidType, match="Linear holds no"):
        pyg.compile(nn.Linear(2, 2))
    matrix = torch.eye(N).to_sparse()
    with pytest.raises(InvalidType, match="indices of the edges"):
        pyg.compile(gnn.SAGEConv(F, 6))(nodes(), matrix)
