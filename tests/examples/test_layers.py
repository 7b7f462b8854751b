"""Every layer of the examples computes what plain torch computes, gradients included."""

import copy

import batches
import edgeconv
import forces
import gat
import gatv2
import gcn
import gin
import pna
import pytest
import sage
import schnet
import torch
from graphs import Sample, benzene, digits, iris
from torch import nn

from tests.examples import plain

TIGHT = {"rtol": 1e-9, "atol": 1e-9}


def isolated(sample: Sample) -> Sample:
    """The sample without the edges that lead to its first three nodes: rows without edges."""
    keep = sample.edge_index[1] >= 3
    return Sample(sample.x.double(), sample.labels, sample.train, sample.edge_index[:, keep])


def check(ours, theirs, wanted):
    """Values, and gradients of a random linear function of them, agree."""
    torch.testing.assert_close(ours, theirs, **TIGHT)
    weights = torch.randn_like(theirs)
    found = torch.autograd.grad((ours * weights).sum(), wanted)
    expected = torch.autograd.grad((theirs * weights).sum(), wanted)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, **TIGHT)


def degree_scale(sample):
    return {"scale": sample.in_degree.double().clamp(min=1).rsqrt()[:, None]}


def mlp(inputs):
    return nn.Sequential(nn.Linear(inputs, 8), nn.ReLU(), nn.Linear(8, 5))


NODE_LAYERS = {
    "gcn": (gcn.GCN, digits, (64, 8), degree_scale, plain.gcn),
    "sage": (sage.SAGE, digits, (64, 8), None, plain.sage),
    "gat": (gat.GAT, digits, (64, 8, 4), None, plain.gat),
    "gatv2": (gatv2.GATv2, iris, (4, 8, 4), None, plain.gatv2),
    "gin": (lambda: gin.GIN(mlp(4)), iris, (), None, plain.gin),
    "pna": (pna.PNA, iris, (4, 5),
            lambda sample: {"scales": pna.degree_scales(sample).double()}, plain.pna),
}  # fmt: skip


@pytest.mark.parametrize("name", NODE_LAYERS)
def test_layers_of_nodes(name):
    make, data, sizes, extra, reference = NODE_LAYERS[name]
    sample, layer = isolated(data()), make(*sizes).double()
    x = sample.x.clone().requires_grad_()
    more = {} if extra is None else extra(sample)
    ours = layer(graph=sample.graph, x=x, **more)
    check(ours, reference(layer, sample.edge_index, x, **more), [x, *layer.parameters()])
    assert not layer.diagnostics


def test_edge_convolution():
    sample, layer = isolated(iris()), edgeconv.EdgeConv(4, 8, 5).double()
    x = sample.x.clone().requires_grad_()
    ours = layer(graph=sample.graph, ndata={"x": x})
    check(ours, plain.edgeconv(layer, sample.edge_index, x), [x, *layer.parameters()])
    assert not layer.diagnostics


def test_continuous_filter():
    batch, layer = benzene(4), schnet.ContinuousFilter(8, basis=6).double()
    h = torch.randn(len(batch.kind), 8, dtype=torch.float64, requires_grad=True)
    r = batch.position.clone().requires_grad_()
    ours = layer(graph=batch.graph, ndata={"h": h, "r": r})
    theirs = plain.continuous_filter(layer, batch.edge_index, h, r)
    check(ours, theirs, [h, r, *layer.parameters()])
    assert not layer.diagnostics


def test_a_layer_alone_in_a_copy_and_through_its_state():
    """What users do with modules works with the layers."""
    sample, layer = iris(), gatv2.GATv2(4, 4, heads=2)
    out = layer(graph=sample.graph, x=sample.x)
    twin = copy.deepcopy(layer)
    assert torch.equal(twin(graph=sample.graph, x=sample.x), out)
    other = gatv2.GATv2(4, 4, heads=2)
    assert not torch.equal(other(graph=sample.graph, x=sample.x), out)
    other.load_state_dict(layer.state_dict())
    assert torch.equal(other(graph=sample.graph, x=sample.x), out)


class PlainModel(forces.Model):
    """The energy model with its edges in plain torch."""

    def forward(self, batch, graph, membership, position):
        position = position.detach().requires_grad_()
        atoms = plain.pair_energy(self.atoms, batch.edge_index, batch.kind, position)
        energy = plain.total(atoms[:, 0], batch.molecule, batch.count)
        (slope,) = torch.autograd.grad(energy.sum(), position, create_graph=True)
        return energy, -slope


def test_energies_forces_and_the_gradient_of_their_loss():
    batch = benzene(3)
    energy, force = forces.lennard_jones(batch)
    model = forces.Model().double()
    reference = PlainModel().double()
    reference.load_state_dict(model.state_dict())
    given = (batch, batch.graph, batch.membership)
    for ours, theirs in zip(
        model(*given, batch.position), reference(*given, batch.position), strict=True
    ):
        torch.testing.assert_close(ours, theirs, **TIGHT)
    forces.force_loss(model, *given, energy, force).backward()
    forces.force_loss(reference, *given, energy, force).backward()
    for name, parameter in model.named_parameters():
        expected = reference.get_parameter(name).grad
        torch.testing.assert_close(parameter.grad, expected, rtol=1e-8, atol=1e-8)
    assert not model.atoms.diagnostics


def test_forces_are_minus_the_slope_of_the_energy():
    """Against finite differences, which know nothing of autograd."""
    batch = benzene(1)
    model, step = forces.Model().double(), 1e-5
    given = (batch, batch.graph, batch.membership)
    _, force = model(*given, batch.position)
    for atom, axis in ((0, 0), (3, 1), (8, 2)):
        moved = torch.zeros_like(batch.position)
        moved[atom, axis] = step
        after, _ = model(*given, batch.position + moved)
        before, _ = model(*given, batch.position - moved)
        slope = (after - before).sum() / (2 * step)
        torch.testing.assert_close(-slope, force[atom, axis], rtol=1e-6, atol=1e-8)


class PlainPotential(batches.Potential):
    """The potential of batches in plain torch."""

    def energy(self, batch, position):
        edges, owner = batch.graph.coo(), batch.graph.membership().coo()[1]
        atoms = plain.pair_energy(self.atoms, edges, batch.kind, position)
        return plain.total(atoms[:, 0], owner, batch.graph.num_graphs)


def test_training_on_batches_is_that_of_plain_torch():
    """Losses and weights of some steps, each with a gradient of gradients of another batch."""
    parts = batches.clusters(14)
    model, reference = batches.Potential().double(), PlainPotential().double()
    reference.load_state_dict(model.state_dict())
    ours, theirs = (batches.train(one, parts, epochs=2, size=4) for one in (model, reference))
    torch.testing.assert_close(ours, theirs, rtol=1e-8, atol=1e-10)
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter, reference.get_parameter(name), rtol=1e-6, atol=1e-8)
    assert not model.atoms.diagnostics


def test_clusters_in_a_batch_are_what_they_are_alone():
    parts, model = batches.clusters(5), batches.Potential().double()
    batch = batches.Batch.of(parts)
    energy, force = model(batch)
    for place, own in enumerate(batch.graph.unbatch(force)):
        alone, wanted = model(batches.Batch.of(parts[place : place + 1]))
        torch.testing.assert_close(energy[place], alone[0], **TIGHT)
        torch.testing.assert_close(own, wanted, **TIGHT)
