"""Gradients of some inputs only: what nobody asked for is not computed, and the rest is right."""

from itertools import combinations

import pytest
import torch

import tiga as tg
from tests.calls import GRAPH, SOURCES, TARGETS, field
from tiga.frontends.torch.variants import state_of


class Attend(tg.MessagePassing, torch.nn.Module):
    reducer = tg.softmax()

    def __init__(self):
        super().__init__()
        self.mix = torch.nn.Linear(3, 3).double()

    def edge(self, src, dst, edge, slope):
        score = (src.x * dst.y).sum(-1) * slope
        return self.reducer(score, torch.tanh(self.mix(src.x)) * edge.w)


def plain(layer, x, y, w, slope):
    score = (x[SOURCES] * y[TARGETS]).sum(-1) * slope
    peak = torch.full((5,), -torch.inf).double().scatter_reduce(0, TARGETS, score, "amax")
    weight = torch.exp(score - peak.detach()[TARGETS])
    weight = weight / torch.zeros(5).double().index_add(0, TARGETS, weight)[TARGETS]
    sent = weight[:, None] * torch.tanh(layer.mix(x[SOURCES])) * w
    return torch.zeros(5, 3).double().index_add(0, TARGETS, sent)


def fused(layer, x, y, w, slope):
    return layer(graph=GRAPH, src={"x": x}, dst={"y": y}, edge={"w": w}, slope=slope)


def drawn():
    shapes = (4, 3), (5, 3), (8, 3)
    return [field(*s, seed=i).requires_grad_() for i, s in enumerate(shapes)]


LAYER = Attend()
NAMES = ("x", "y", "w", "weight", "bias")
SOME = [names for count in (1, 2, 4) for names in combinations(NAMES, count)]


@pytest.mark.parametrize("leaves", [True, False])
def test_gradients_of_some_are_those_of_all(leaves):
    """Of leaves, and of values that are computed themselves, which torch tells in another way."""
    given = drawn()
    values = given if leaves else [2 * v for v in given]
    known = dict(zip(NAMES, (*given, *LAYER.mix.parameters()), strict=True))
    ours, theirs = (run(LAYER, *values, 0.7).sin().sum() for run in (fused, plain))
    for names in SOME:
        asked = [known[name] for name in names]
        found = torch.autograd.grad(ours, asked, retain_graph=True)
        wanted = torch.autograd.grad(theirs, asked, retain_graph=True)
        torch.testing.assert_close(found, wanted, msg=str(names))
    ours.backward(inputs=[known["y"], known["bias"]], retain_graph=True)
    assert known["x"].grad is known["weight"].grad is None
    wanted = torch.autograd.grad(theirs, [known["y"], known["bias"]])
    torch.testing.assert_close([known["y"].grad, known["bias"].grad], list(wanted))
    known["bias"].grad = None


class Pairs(tg.MessagePassing, torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.mix = torch.nn.Linear(3, 1).double()

    def edge(self, src, dst, edge):
        return self.mix(torch.exp(-((src.r - dst.q) ** 2)))


def energy(layer, run, r, q):
    if run == "ours":
        return layer(graph=GRAPH, src={"r": r}, dst={"q": q}).square().sum()
    sent = layer.mix(torch.exp(-((r[SOURCES] - q[TARGETS]) ** 2)))
    return torch.zeros(5, 1).double().index_add(0, TARGETS, sent).square().sum()


def test_derivatives_of_derivatives():
    layer, found = Pairs(), []
    for run in ("ours", "theirs"):
        r, q = (field(n, 3, seed=n).requires_grad_() for n in (4, 5))
        (force,) = torch.autograd.grad(energy(layer, run, r, q), r, create_graph=True)
        (third,) = torch.autograd.grad(force.sin().sum(), q, create_graph=True)
        slopes = torch.autograd.grad(third.square().sum(), layer.mix.weight)
        found.append((force, third, *slopes))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other)


def gradients(layer):
    """How many inputs each gradient that ran is of."""
    (variant,) = state_of(layer).all()
    (trained,) = variant.unit.trained.values()
    made = trained.derivatives.items()
    return {len(wanted) for (_, wanted), found in made if found.unit.runnables()}, trained.wanted


def test_what_nobody_asked_for_is_not_computed():
    class Own(Pairs):  # with a program of its own: equal ones are shared
        def edge(self, src, dst, edge):
            return super().edge(src, dst, edge) * 0.625

    layer, r, q = Own(), field(4, 3).requires_grad_(), field(5, 3)
    parts = dict(layer.named_parameters())
    value = energy(layer, "ours", r, q)
    assert gradients(layer) == ({3}, (0, 2, 3))  # compiled with the call: of all
    torch.autograd.grad(value, r, retain_graph=True)
    assert gradients(layer)[0] == {3, 1}
    torch.autograd.grad(value, list(parts.values()), retain_graph=True)
    assert gradients(layer)[0] == {3, 1, 2}
    value.backward()
    assert gradients(layer)[0] == {3, 1, 2}
    assert all(part.grad is not None for part in parts.values())


def test_one_tensor_at_both_ends_and_many_cotangents_at_once():
    layer, r = Pairs(), field(4, 3).requires_grad_()
    graph = tg.Graph.from_coo(SOURCES, SOURCES.flip(0), num_src=4, num_dst=4)
    out = layer(graph=graph, src={"r": r}, dst={"q": r})
    sent = layer.mix(torch.exp(-((r[SOURCES] - r[SOURCES.flip(0)]) ** 2)))
    want = torch.zeros(4, 1).double().index_add(0, SOURCES.flip(0), sent)
    basis = torch.eye(4, dtype=torch.float64)[..., None]
    found, wanted = (
        torch.autograd.grad(o, (r, layer.mix.bias), basis, is_grads_batched=True)
        for o in (out, want)
    )
    torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("name", ["x", "w", "weight"])
def test_a_graph_in_a_file_gives_the_same_bits(tmp_path, name):
    paged = tg.Graph.open(GRAPH.save(tmp_path / "g"))
    found = []
    for graph in (paged, paged.in_memory()):
        x, y, w = drawn()
        known = dict(zip(NAMES, (x, y, w, *LAYER.mix.parameters()), strict=True))
        out = LAYER(graph=graph, src={"x": x}, dst={"y": y}, edge={"w": w}, slope=0.7)
        found += torch.autograd.grad(out.sin().sum(), known[name])
    assert torch.equal(*found)
