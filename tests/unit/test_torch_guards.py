"""Whatever `edge` reads may change between calls: the next call sees it."""

import math

import pytest
import torch

from tests.guarded import GRAPH, Attribute, Base, Flag, Layer, X
from tests.oracle import OracleExecutable
from tiga.frontends.torch import unit


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


class Integer(Base):
    count = 3

    def edge(self, src, dst, edge):
        return src.x + self.count


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
