"""Whatever `edge` reads may change between calls: the next call sees it."""

import copy
import functools
import math
import pickle
import types

import pytest
import torch

import tiga as tg
from tests.oracle import OracleExecutable
from tiga.frontends.torch import unit

SOURCES, TARGETS = torch.tensor([0, 1, 2, 2, 0]), torch.tensor([1, 1, 0, 2, 2])
X = torch.tensor([[0.5, -1.0], [2.0, 0.25], [-0.75, 1.5]])
GRAPH = tg.Graph.from_coo(SOURCES, TARGETS)


@pytest.fixture(autouse=True)
def oracle(monkeypatch):
    """What is read does not depend on how programs run."""
    monkeypatch.setattr(unit, "executable", OracleExecutable)


SCALE = 2.0
TABLE = torch.tensor([1.0, 2.0])
CONFIG = {"power": 2, "names": ["sin"]}
FLAG = True


def helper(x):
    return x * SCALE


def switch(x):
    return x.sin() if FLAG else x.cos()


class Options:
    slope = 0.1
    mode = "relu"


class Base(tg.MessagePassing):
    """A kernel that is also checked by hand: sums of `edge` on plain tensors."""

    def expected(self, **params):
        class View:
            x = X[SOURCES]

        class Target:
            x = X[TARGETS]

        sent = type(self).edge(self, View, Target, None, **params)
        return torch.zeros(3, *sent.shape[1:]).index_add(0, TARGETS, sent)

    def check(self, **params):
        got = self(graph=GRAPH, src={"x": X}, dst={"x": X}, **params)
        torch.testing.assert_close(got, self.expected(**params))


class Attribute(Base):
    alpha = 2.0

    def edge(self, src, dst, edge):
        return src.x * self.alpha


class Integer(Base):
    count = 3

    def edge(self, src, dst, edge):
        return src.x + self.count


class Flag(Base):
    on = True

    def edge(self, src, dst, edge):
        return src.x if self.on else dst.x


class Text(Base):
    act = "sin"

    def edge(self, src, dst, edge):
        return getattr(torch, self.act)(src.x)


class Global(Base):
    def edge(self, src, dst, edge):
        return src.x * SCALE


class Helper(Base):
    def edge(self, src, dst, edge):
        return helper(src.x)


class GlobalFlag(Base):
    def edge(self, src, dst, edge):
        return switch(src.x)


class GlobalTensor(Base):
    def edge(self, src, dst, edge):
        return src.x * TABLE


class GlobalDict(Base):
    def edge(self, src, dst, edge):
        return src.x ** CONFIG["power"] + (len(CONFIG["names"]))


class ClassAttribute(Base):
    def edge(self, src, dst, edge):
        y = src.x * Options.slope
        return y.relu() if Options.mode == "relu" else y


class Method(Base):
    def inner(self, x):
        return x * 2

    def edge(self, src, dst, edge):
        return self.inner(src.x)


class Width(Base):
    width = 1

    def edge(self, src, dst, edge):
        return src.x[:, : self.width]


class Threshold(Base):
    limit = 1.0

    def edge(self, src, dst, edge):
        return src.x * 2 if self.limit > 0.5 else src.x * 3


class MathFunction(Base):
    beta = 4.0

    def edge(self, src, dst, edge):
        return src.x * math.sqrt(self.beta)


class Listed(Base):
    def __init__(self):
        self.factors = [1.0, 2.0]

    def edge(self, src, dst, edge):
        return sum(src.x * f for f in self.factors)


class Named(Base):
    def __init__(self):
        self.w0, self.w1, self.which = 1.5, 2.5, 0

    def edge(self, src, dst, edge):
        return src.x * getattr(self, f"w{self.which}")


class Optional(Base):
    def edge(self, src, dst, edge):
        return src.x * 2 if hasattr(self, "bonus") else src.x


class Default(Base):
    def edge(self, src, dst, edge, gain=2.0):
        return src.x * gain


class Layer(Base, torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())
        self.norm = torch.nn.LayerNorm(2)
        self.register_buffer("shift", torch.ones(2))

    def edge(self, src, dst, edge):
        return self.norm(self.inner(src.x)) + self.shift


class Training(Base, torch.nn.Module):
    def edge(self, src, dst, edge):
        return src.x * 2 if self.training else src.x


class Adjusted(Base):
    def edge(self, src, dst, edge):
        return self.adjust(src.x)


def _set(name, value):
    return lambda kernel, patch: setattr(kernel, name, value)


def _global(name, value):
    return lambda kernel, patch: patch.setitem(globals(), name, value)


def _replace_layer(kernel, patch):
    kernel.inner[1] = torch.nn.Tanh()


def _hook(kernel, patch):
    kernel.inner.register_forward_hook(lambda module, args, out: out * 3)


def _write_parameter(kernel, patch):
    with torch.no_grad():
        kernel.inner[0].weight.mul_(3)


def _new_parameter(kernel, patch):
    kernel.inner[0].weight = torch.nn.Parameter(torch.eye(2))


def _buffer(kernel, patch):
    kernel.shift = torch.tensor([3.0, 4.0])


def _method(kernel, patch):
    patch.setattr(Method, "inner", lambda self, x: x * 5)


# kernel, change, and whether the program stays the same one.
CHANGES = {
    "attribute": (Attribute, _set("alpha", -3.0), True),
    "integer attribute": (Integer, _set("count", 7), True),
    "number of another kind": (Integer, _set("count", 7.5), False),
    "attribute becomes a tensor": (Attribute, _set("alpha", torch.tensor([1.0, 2.0])), False),
    "flag": (Flag, _set("on", False), False),
    "text": (Text, _set("act", "cos"), False),
    "global number": (Global, _global("SCALE", 5.0), True),
    "number in a helper": (Helper, _global("SCALE", 5.0), True),
    "replaced helper": (Helper, _global("helper", lambda x: x - 1), False),
    "flag in a helper": (GlobalFlag, _global("FLAG", False), False),
    "global tensor": (GlobalTensor, _global("TABLE", torch.tensor([3.0, -1.0])), True),
    "global tensor of another shape": (
        GlobalTensor, _global("TABLE", torch.tensor([[3.0], [-1.0]])[:1]), False,
    ),
    "dict": (GlobalDict, lambda k, p: p.setitem(CONFIG, "power", 3), False),
    "list in a dict": (GlobalDict, lambda k, p: p.setitem(CONFIG, "names", ["a", "b"]), False),
    "class attribute": (ClassAttribute, lambda k, p: p.setattr(Options, "slope", 3.0), False),
    "class text": (ClassAttribute, lambda k, p: p.setattr(Options, "mode", "none"), False),
    "replaced method": (Method, _method, False),
    "number as a width": (Width, _set("width", 2), False),
    "number compared": (Threshold, _set("limit", 0.25), False),
    "number in math": (MathFunction, _set("beta", 9.0), False),
    "list": (Listed, lambda k, p: k.factors.append(4.0), False),
    "computed name": (Named, _set("which", 1), False),
    "number of computed name": (Named, _set("w0", -1.0), False),
    "new attribute": (Optional, _set("bonus", 1), False),
    "default": (Default, lambda k, p: p.setattr(Default.edge, "__defaults__", (5.0,)), True),
    "parameter in place": (Layer, _write_parameter, True),
    "parameter replaced": (Layer, _new_parameter, True),
    "buffer replaced": (Layer, _buffer, True),
    "submodule replaced": (Layer, _replace_layer, False),
    "hook": (Layer, _hook, False),
    "module to double": (Layer, lambda k, p: k.double(), False),
    "train and eval": (Training, lambda k, p: k.eval(), False),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_seen(name, monkeypatch):
    kind, change, same_program = CHANGES[name]
    kernel = kind()
    if name == "module to double":
        kernel(graph=GRAPH, src={"x": X}, dst={"x": X})
        change(kernel, monkeypatch)
        got = kernel(graph=GRAPH, src={"x": X.double()}, dst={"x": X.double()})
        assert got.dtype == torch.float64
        return
    kernel.check()
    kernel.check()
    assert kernel.cache_info[:3] == (1, 1, 1)
    change(kernel, monkeypatch)
    kernel.check()
    kernel.check()
    assert kernel.cache_info.variants == (1 if same_program else 2)


def test_changing_back_finds_the_first_program_again():
    kernel = Flag()
    for on in (True, False, True, False):
        kernel.on = on
        kernel.check()
    assert kernel.cache_info.variants == 2


def test_a_closure_is_guarded_and_its_tensor_has_a_gradient():
    def make(w, factor):
        class Closed(tg.MessagePassing):
            def edge(self, src, dst, edge):
                return src.x * w * factor

            def update(self, value):
                nonlocal factor
                factor = value

        return Closed()

    w = torch.tensor([1.0, 2.0], requires_grad=True)
    kernel = make(w, 2.0)
    first = kernel(graph=GRAPH, src={"x": X})
    kernel.update(3.0)
    second = kernel(graph=GRAPH, src={"x": X})
    torch.testing.assert_close(second, first * 1.5)
    assert kernel.cache_info.variants == 1
    (gradient,) = torch.autograd.grad(second.sum(), w)
    torch.testing.assert_close(gradient, 3.0 * X[SOURCES].sum(0))


def test_call_parameters_are_operands_tensors_or_keys():
    class Parametrised(tg.MessagePassing):
        def edge(self, src, dst, edge, alpha, w=None, mode="plain"):
            y = src.x * alpha
            y = y if w is None else y * w
            return y.neg() if mode == "negative" else y

        def node(self, dst, aggregate, beta=0.0):
            return aggregate + beta

    kernel = Parametrised()
    total = torch.zeros(3, 2).index_add(0, TARGETS, X[SOURCES])

    def call(**params):
        return kernel(graph=GRAPH, src={"x": X}, **params)

    torch.testing.assert_close(call(alpha=2.0, beta=1.0), total * 2 + 1)
    torch.testing.assert_close(call(alpha=3.0, beta=2.0), total * 3 + 2)
    assert kernel.cache_info.variants == 1
    w = torch.tensor([1.0, -1.0], requires_grad=True)
    torch.testing.assert_close(call(alpha=3.0, w=w), total * 3 * w)
    (gradient,) = torch.autograd.grad(call(alpha=3.0, w=w).sum(), w)
    torch.testing.assert_close(gradient, 3 * total.sum(0))
    torch.testing.assert_close(call(alpha=1.0, mode="negative"), -total)
    torch.testing.assert_close(call(alpha=1.0, mode="plain"), total)
    with pytest.raises(tg.errors.InvalidType, match="takes a parameter `gamma`"):
        call(alpha=1.0, gamma=1)


def test_arithmetic_on_numbers_stays_variable():
    class Arithmetic(tg.MessagePassing):
        a, n = 2.0, 3

        def edge(self, src, dst, edge):
            return src.x * (1 - self.a / self.n + self.a**self.n - (-self.n)) / (2 * self.a)

    kernel = Arithmetic()
    for a, n in ((2.0, 3), (1.5, 4), (0.5, 2)):
        kernel.a, kernel.n = a, n
        factor = (1 - a / n + a**n + n) / (2 * a)
        want = torch.zeros(3, 2).index_add(0, TARGETS, X[SOURCES] * factor)
        torch.testing.assert_close(kernel(graph=GRAPH, src={"x": X}), want)
    assert kernel.cache_info.variants == 1


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_numbers_beside_16_bit_fields_are_not_rounded(dtype):
    kernel = Attribute()
    kernel.alpha = 1.001953125 + 2**-11
    x = X.to(dtype)
    kernel_result = kernel(graph=GRAPH, src={"x": x}, dst={"x": x})
    sent = (x[SOURCES] * kernel.alpha).float()
    want = torch.zeros(3, 2).index_add(0, TARGETS, sent).to(dtype)
    torch.testing.assert_close(kernel_result, want, rtol=0, atol=0)


def test_integer_fields_times_a_float_give_the_default_dtype():
    kernel = Attribute()
    x = torch.tensor([[1, 2], [3, 4], [5, 6]])
    assert kernel(graph=GRAPH, src={"x": x}, dst={"x": x}).dtype == torch.float32


def test_a_counter_outside_of_edge_is_not_a_guard():
    class Counting(tg.MessagePassing):
        calls = 0

        def forward(self, **call):
            self.calls += 1
            return super().forward(**call)

        def edge(self, src, dst, edge):
            return src.x

    kernel = Counting()
    for _ in range(3):
        kernel(graph=GRAPH, src={"x": X})
    assert kernel.calls == 3
    assert kernel.cache_info.variants == 1


def test_assigning_to_self_in_edge_is_refused():
    class Assigning(tg.MessagePassing):
        def edge(self, src, dst, edge):
            self.last = src.x
            return src.x

    with pytest.raises(tg.errors.InvalidValue, match=r"assigns `self\.last`"):
        Assigning()(graph=GRAPH, src={"x": X})


def test_the_reducer_is_guarded():
    kernel = Attribute()
    kernel(graph=GRAPH, src={"x": X})
    kernel.reducer = tg.max()
    got = kernel(graph=GRAPH, src={"x": X})
    sent = X[SOURCES] * 2
    want = torch.stack([sent[row == TARGETS].amax(0) for row in range(3)])
    torch.testing.assert_close(got, want)


def test_functions_behind_partial_super_and_decorators():
    def outer(function):
        @functools.wraps(function)
        def wrapped(self, src, dst, edge):
            return function(self, src, dst, edge) * SCALE

        return wrapped

    class Decorated(Attribute):
        power = functools.partial(torch.pow, exponent=2)

        @outer
        def edge(self, src, dst, edge):
            return super().edge(src, dst, edge) + self.power(dst.x)

    kernel = Decorated()
    kernel.check()
    kernel.alpha = 7.0
    kernel.check()
    assert kernel.cache_info.variants == 1


def test_an_edge_set_on_the_instance():
    kernel = Attribute()
    kernel.check()
    kernel.edge = types.MethodType(lambda self, src, dst, edge: src.x - dst.x, kernel)
    got = kernel(graph=GRAPH, src={"x": X}, dst={"x": X})
    want = torch.zeros(3, 2).index_add(0, TARGETS, X[SOURCES] - X[TARGETS])
    torch.testing.assert_close(got, want)


def test_copies_and_pickles_have_programs_of_their_own():
    layer = Layer()
    layer.check()
    for other in (copy.deepcopy(layer), copy.copy(layer), pickle.loads(pickle.dumps(layer))):
        assert other.cache_info == (0, 0, 0, 0)
        with torch.no_grad():
            if other.inner is not layer.inner:
                other.inner[0].weight.zero_()
        other.check()
        layer.check()


def test_a_tensor_that_no_name_leads_to_is_refused():
    class Generated(tg.MessagePassing):
        tensors = staticmethod(iter([torch.ones(2)]).__next__)

        def edge(self, src, dst, edge):
            return src.x * self.tensors()

    with pytest.raises(tg.errors.InvalidValue, match="no name leads to it"):
        Generated()(graph=GRAPH, src={"x": X})


def test_guards_cost_microseconds():
    layer = Layer()
    layer.check()
    (variant,) = vars(layer)["_tiga_state"].all()
    assert variant.guards.hold()
    guards = variant.guards
    total = sum(len(getattr(guards, f)) for f in ("items", "kinds", "cells", "attributes"))
    assert total < 60
