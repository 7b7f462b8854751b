"""The example on spherical harmonics: as in plain torch, and what turns with the molecule."""

import equivariant
import forces
import pytest
import torch
from graphs import benzene

from tests.examples import plain


class PlainProduct(equivariant.Product):
    """The layer with its edges in plain torch."""

    def forward(self, graph, ndata):
        source, target = graph.coo()

        class Ends:
            def __init__(self, end):
                self.r, self.h = ndata["r"][end], ndata["h"][end]

        sent = self.edge(Ends(source), Ends(target), None)
        return ndata["h"] + plain.total(sent, target, len(ndata["h"]))


def turn(seed):
    generator = torch.Generator().manual_seed(seed)
    matrix, _ = torch.linalg.qr(torch.randn(3, 3, dtype=torch.float64, generator=generator))
    return matrix


def test_products_of_harmonics_are_harmonics():
    """Functions of degree 1, multiplied at any point, are the function that the table gives."""
    couple, generator = equivariant.products(), torch.Generator().manual_seed(0)
    torch.testing.assert_close(couple[0], couple[0, 0, 0] * torch.eye(9).double())
    one, other = torch.randn(2, 4, dtype=torch.float64, generator=generator)
    points = torch.randn(5, 3, dtype=torch.float64, generator=generator)
    y = equivariant.harmonics(points / points.norm(dim=1, keepdim=True))
    product = torch.einsum("ijk,i,j->k", couple[:4, :4], one, other)
    torch.testing.assert_close(y @ product, (y[:, :4] @ one) * (y[:, :4] @ other))


@pytest.mark.slow
def test_forces_and_the_gradient_of_their_loss():
    batch = benzene(2)
    energy, force = forces.lennard_jones(batch)
    model, reference = equivariant.Model(4).double(), equivariant.Model(4).double()
    reference.products = torch.nn.ModuleList(PlainProduct(4) for _ in range(2)).double()
    reference.load_state_dict(model.state_dict())
    given = (batch, batch.graph, batch.membership)
    for one in (model, reference):
        forces.force_loss(one, *given, energy, force).backward()
    for name, parameter in model.named_parameters():
        expected = reference.get_parameter(name).grad
        torch.testing.assert_close(parameter.grad, expected, rtol=1e-8, atol=1e-8)
    assert not any(product.diagnostics for product in model.products)
    rotation = turn(3)
    energies, pushes = model(*given, batch.position)
    same, turned = model(*given, batch.position @ rotation)
    torch.testing.assert_close(same, energies)
    torch.testing.assert_close(turned, pushes @ rotation)
