"""Conditions of edges that a run keeps for its gradient as bits."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_mlir")

import tiga as tg  # noqa: E402
from tiga.frontends.torch.unit import Trained  # noqa: E402
from tiga.frontends.torch.variants import state_of  # noqa: E402

NODES, EDGES, F, H = 30, 200, 16, 40
nn = torch.nn
torch.manual_seed(0)  # for networks that are parameters of tests


class Network(tg.MessagePassing, nn.Module):
    """A network of the difference of both ends, before which comes `first`."""

    def __init__(self, network, first=None, reducer=None):
        super().__init__()
        self.network, self.first = network, first or nn.Identity()
        self.reducer = reducer or tg.sum()

    def edge(self, src, dst, edge):
        return self.network(self.first(src.x - dst.x))


def linear(*after):
    return nn.Sequential(nn.Linear(F, H), *after)


def graph():
    generator = torch.Generator().manual_seed(0)
    return tg.Graph.from_coo(
        *torch.randint(0, NODES, (2, EDGES), generator=generator), num_src=NODES, num_dst=NODES
    )


def trained(kernel, bits=True):
    """The training form for gradients of every float, and a point in it."""
    torch.manual_seed(1)
    x = torch.randn(NODES, F)
    kernel(graph=graph(), ndata={"x": x})
    (variant,) = state_of(kernel).all()
    values = [x, *(p.detach() for p in kernel.parameters())]
    return Trained(variant.unit.program, tuple(range(len(values))), bits), values


def kept(kernel):
    """The conditions that are kept, by the names of their ops."""
    made, _ = trained(kernel)
    return [n.inputs[0].op.name for n in made.runnable.program.outputs if n.op.packs]


@pytest.mark.parametrize(
    ("network", "first", "names"),
    [
        (linear(nn.ReLU()), nn.Tanh(), ["le"]),
        (linear(nn.ReLU()), nn.ReLU(), ["le", "le"]),
        (linear(nn.ReLU(), nn.Linear(H, H)), nn.Tanh(), ["le"]),
        (nn.ReLU(), None, ["le"]),
    ],
)
def test_signs_of_products_and_of_what_is_gathered_are_kept(network, first, names) -> None:
    assert kept(Network(network, first)) == names


@pytest.mark.parametrize(
    ("network", "first"),
    [
        (linear(nn.SiLU()), nn.Tanh()),  # the derivative needs the product itself
        (linear(nn.ReLU(), nn.LayerNorm(H)), nn.Tanh()),  # so does that of what comes after
    ],
)
def test_what_a_gradient_has_to_make_again_is_not_kept(network, first) -> None:
    assert not kept(Network(network, first))


def test_winners_are_kept_where_they_are_of_products_alone() -> None:
    """Another pass over the edges is worth a product, not a gather."""
    assert kept(Network(linear(), nn.Tanh(), tg.max())) == ["is_max"]
    assert not kept(Network(nn.Identity(), nn.Tanh(), tg.max()))


def test_nothing_is_kept_unless_it_is_asked_for() -> None:
    made, _ = trained(Network(linear(nn.ReLU()), nn.ReLU()), bits=False)
    assert not any(n.op.packs for n in made.runnable.program.outputs)


@pytest.mark.parametrize(
    "kernel",
    [
        Network(linear(nn.LeakyReLU(0.1), nn.Linear(H, H), nn.Hardtanh(-0.5, 0.5)), nn.ReLU()),
        Network(linear(nn.ReLU(), nn.Linear(H, F)), nn.Tanh(), tg.min()),
    ],
)
def test_gradients_from_bits_are_those_from_values(kernel) -> None:
    found = []
    for bits in (True, False):
        made, values = trained(kernel, bits)
        outputs = made.runnable.run(graph(), values)
        derivative = made.derivative((0,))
        known = {"input": values, "output": outputs, "cotangent": [torch.sin(outputs[0])]}
        given = [known[kind][i] for kind, i in derivative.arguments]
        found.append(derivative.unit.plain().run(graph(), given))
    for one, other in zip(*found, strict=True):
        assert torch.equal(one, other)
