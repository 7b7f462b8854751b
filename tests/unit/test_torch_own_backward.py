"""Derivatives that a user wrote: backward passes, hooks of modules, gradients inside `edge`."""

import pytest
import torch
from torch import nn

import tiga as tg
from tests.calls import GRAPH, SOURCES, TARGETS, field, summed
from tiga import errors


class Reverse(torch.autograd.Function):
    """Hands values on, and gradients turned around."""

    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, cotangent):
        return -3 * cotangent


class Square(torch.autograd.Function):
    """A square whose gradient is another function's, with a context of its own."""

    @staticmethod
    def forward(x):
        with torch.enable_grad():
            return x * x

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, cotangent):
        (x,) = ctx.saved_tensors
        return cotangent * x.sin()


def _turned(module, received, sent):
    return tuple(None if g is None else -2 * g for g in received)


class Hooked(nn.Module):
    def __init__(self, full=True):
        super().__init__()
        self.linear = nn.Linear(2, 2).double()
        register = "register_full_backward_hook" if full else "register_full_backward_pre_hook"
        getattr(self.linear, register)(_turned if full else lambda module, sent: (-2 * sent[0],))

    def forward(self, x):
        return self.linear(x)


def _slope(x, z):
    energy = (x.sin() * z.detach()).sum(-1)
    (slope,) = torch.autograd.grad(energy, x, torch.ones_like(energy), create_graph=True)
    return slope


OWN = {
    "handed on": lambda x, z: Reverse.apply(x * 2) * z,
    "with a context": lambda x, z: Square.apply(x) + z,
    "of a module's hook": None,
    "of a hook before it": None,
    "gradients inside": _slope,
    "torch.func inside": lambda x, z: torch.func.grad(lambda r: (r.sin() * z).sum())(x),
    "a map over edges": lambda x, z: torch.vmap(lambda one, other: one.sum() * other)(x, z),
    "derivatives of each edge": lambda x, z: torch.vmap(
        torch.func.grad(lambda one, other: (one.sin() * other).sum())
    )(x, z),
}


@pytest.mark.parametrize("name", OWN)
def test_what_torch_alone_differentiates(name):
    module = Hooked(name == "of a module's hook") if OWN[name] is None else None
    function = OWN[name] or (lambda x, z: module(x) * z)

    class Own(tg.MessagePassing):
        def edge(self, src, dst, edge):
            return function(src.x, dst.z)

    x, z = field(4, 2).requires_grad_(), field(5, 2, seed=1).requires_grad_()
    wrt = [x, z, *(module.parameters() if module is not None else ())]
    kernel = Own()
    found = kernel(graph=GRAPH, src={"x": x}, dst={"z": z})
    wanted = summed(function(x[SOURCES], z[TARGETS]))
    torch.testing.assert_close(found, wanted)
    given = torch.linspace(-1, 1, 10, dtype=torch.float64).reshape(5, 2)
    for one, other in zip(
        torch.autograd.grad(found, wrt, given, materialize_grads=True),
        torch.autograd.grad(wanted, wrt, given, materialize_grads=True),
        strict=True,
    ):
        torch.testing.assert_close(one, other)
    assert "test_torch_own_backward.py:" in kernel.explain()


def test_a_strict_kernel_names_the_function():
    class Own(tg.MessagePassing):
        strict = True

        def edge(self, src, dst, edge):
            return Reverse.apply(src.x)

    with pytest.raises(
        errors.Unfusable, match="`Reverse` has a backward pass of its own"
    ) as raised:
        Own()(graph=GRAPH, src={"x": field(4, 2)})
    assert "test_torch_own_backward.py:" in str(raised.value)


@pytest.mark.parametrize("how", ["register_hook", "retain_grad"])
def test_hooks_on_values_are_refused(how):
    class Hooks(tg.MessagePassing):
        def edge(self, src, dst, edge):
            double = src.x * 2
            double.register_hook(torch.neg) if how == "register_hook" else double.retain_grad()
            return double

    with pytest.raises(errors.InvalidValue, match=f"`{how}` asks for a gradient"):
        Hooks()(graph=GRAPH, src={"x": field(4, 2)})


def test_scripted_modules():
    class Gain(nn.Module):
        def __init__(self):
            super().__init__()
            self.gain = nn.Parameter(torch.tensor([2.0, 3.0], dtype=torch.float64))

        def forward(self, x):
            return (x * self.gain).sin()

    class Scripted(tg.MessagePassing, nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = torch.jit.script(Gain())

        def edge(self, src, dst, edge):
            return self.inner(src.x)

    kernel, x = Scripted(), field(4, 2).requires_grad_()
    for _ in range(2):
        found = kernel(graph=GRAPH, src={"x": x})
        wanted = summed(kernel.inner(x[SOURCES]))
        wrt = [x, *kernel.parameters()]
        torch.testing.assert_close(found, wanted)
        torch.testing.assert_close(
            torch.autograd.grad(found.sum(), wrt), torch.autograd.grad(wanted.sum(), wrt)
        )
        with torch.no_grad():
            kernel.inner.gain.mul_(2)
