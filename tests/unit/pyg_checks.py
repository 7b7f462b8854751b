"""What the tests of PyG layers share: graphs, fields, and the comparison with the layer itself."""

import pytest
import torch
from torch import nn

from tiga.interop import pyg

N, E, F, D = 20, 70, 8, 5
TIGHT = {"rtol": 1e-9, "atol": 1e-9}


@pytest.fixture(autouse=True)
def in_double():
    torch.manual_seed(3)
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def edges(count=E, nodes=N - 3):
    """Edges among the first nodes; the last three have none. Some are parallel or loops."""
    return torch.randint(0, nodes, (2, count))


def nodes(count=N, width=F):
    return torch.randn(count, width, requires_grad=True)


def check(conv, *args, fused=None, **kwargs):
    """Values agree, and so do the gradients of every parameter and argument."""
    fused = pyg.compile(conv) if fused is None else fused
    ours, theirs = fused(*args, **kwargs), conv(*args, **kwargs)
    torch.testing.assert_close(ours, theirs, **TIGHT)
    leaves = [*conv.parameters(), *flat(args), *flat(kwargs.values())]
    wanted = [t for t in leaves if t.requires_grad]
    weights = torch.randn_like(theirs)
    found = torch.autograd.grad((ours * weights).sum(), wanted, allow_unused=True)
    expected = torch.autograd.grad((theirs * weights).sum(), wanted, allow_unused=True)
    for one, other in zip(found, expected, strict=True):
        # A parameter that a call doesn't use may get none, or zeros.
        if other is None:
            assert one is None or not one.any()
        else:
            torch.testing.assert_close(one, other, **TIGHT)
    return fused


def flat(values):
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (tuple, list)):
            yield from flat(value)


def mlp(inputs, outputs):
    return nn.Sequential(nn.Linear(inputs, 8), nn.ReLU(), nn.Linear(8, outputs))
