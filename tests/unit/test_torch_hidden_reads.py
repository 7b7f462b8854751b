"""What `edge` reads without naming it, or by names that lead elsewhere, may change."""

import collections
import contextvars
import functools
import importlib
import operator
import os
import random
import sys
import types
import weakref

import numpy as np
import pytest
import torch

import tiga as tg
from tests.guarded import GRAPH, Base, X
from tests.oracle import OracleExecutable
from tiga import errors
from tiga.frontends.torch import unit

GAIN = 2.0


@pytest.fixture(autouse=True)
def oracle(monkeypatch):
    """What is read does not depend on how programs run."""
    monkeypatch.setattr(unit, "executable", OracleExecutable)


def kernel(edge, **attributes):
    made = type("Kernel", (Base,), {"edge": edge})()
    vars(made).update(attributes)
    return made


def reading(tell, **attributes):
    """A kernel whose messages are scaled by what `tell` reads of it."""
    return kernel(lambda self, src, dst, edge: src.x * tell(self), **attributes)


class Held:
    """An object with a number, and all the ways in which Python asks one without naming it."""

    def __init__(self, number=2.0):
        self.number = number
        self.numbers = [number]

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        return self.numbers[0]

    def __call__(self, x):
        return x * self.number

    def __mul__(self, x):
        return x * self.number

    def __getitem__(self, key):
        return self.numbers[key]

    def __iter__(self):
        return iter(self.numbers)

    def __len__(self):
        return len(self.numbers)

    def __bool__(self):
        return self.number > 0

    def __float__(self):
        return self.number

    def change(self):
        self.number, self.numbers = -3.0, [-3.0, 5.0]


class Other(Held):
    """Another class of the same."""


ASKED = {
    "call": lambda h, x: h(x),
    "operator": lambda h, x: h * x,
    "item": lambda h, x: x * h[0],
    "iteration": lambda h, x: sum(x * n for n in h),
    "length": lambda h, x: x * len(h),
    "truth": lambda h, x: x if h else -x,
    "float": lambda h, x: x * float(h),
    "missing attribute": lambda h, x: x * h.anything,
    "computed name": lambda h, x: x * getattr(h, "num" + "ber"),
    "all attributes": lambda h, x: x * vars(h)["num" + "ber"],
}


@pytest.mark.parametrize("name", ASKED)
def test_what_an_object_answers(name):
    held, ask = Held(), ASKED[name]
    made = kernel(lambda self, src, dst, edge: ask(held, src.x))
    made.check()
    held.change()
    made.check()


class Slotted:
    __slots__ = ("number",)

    def __init__(self, number):
        self.number = number


class Described:
    number = 2.0

    def __get__(self, instance, owner):
        return self.number


class Meta(type):
    number = 2.0


class Owner(metaclass=Meta):
    described = Described()


class Table(dict):
    gain = 1.0


def wrapper(function, gain):
    @functools.wraps(function)
    def scaled(x):
        return function(x) * gain[0]

    return scaled


def nameless():
    """What code made without a module name defines."""
    scope = {"GAIN": 2.0}
    exec(
        "class Nameless:\n    gain = 2.0\n    def scale(self, x): return x * GAIN * self.gain",
        scope,
    )
    return scope


@functools.lru_cache
def remembered():
    return GAIN


def _attribute_of_function(x):
    return x * _attribute_of_function.gain


def _set(holder, name, value):
    return lambda: setattr(holder, name, value)


def _holders():
    """By name: a kernel that reads a holder, and a change of what it reads."""
    slotted, table, gain = Slotted(2.0), Table(a=2.0), [2.0]
    context = contextvars.ContextVar("gain", default=2.0)
    inner, held, scope, pair = {"a": 2.0}, Held(), nameless(), torch.tensor([2.0])
    one = scope["Nameless"]()
    relu = wrapper(torch.relu, gain)
    bag, queue, data = collections.UserDict(a=2.0), collections.deque([2.0]), bytearray(b"\x02")
    array, chain = np.array([2.0]), collections.ChainMap({}, inner)
    tagged = torch.ones(2)
    tagged.gain = 2.0
    _attribute_of_function.gain = 2.0
    options = types.SimpleNamespace(inner=types.SimpleNamespace(gain=2.0))
    both = reading(lambda self: self.a + self.b, a=pair, b=pair)
    listed = [pair, pair]
    optional = types.SimpleNamespace()
    return {
        "slots": (reading(lambda self: slotted.number), _set(slotted, "number", 3.0)),
        "descriptor": (reading(lambda self: Owner.described), _set(Described, "number", 3.0)),
        "metaclass": (reading(lambda self: Owner.number), _set(Meta, "number", 3.0)),
        "attribute of a dict": (reading(lambda self: table.gain), _set(table, "gain", 3.0)),
        "wrapped library function": (
            kernel(lambda self, src, dst, edge: relu(src.x)), lambda: gain.__setitem__(0, 3.0),
        ),
        "global of nameless code": (
            kernel(lambda self, src, dst, edge: one.scale(src.x)), lambda: scope.update(GAIN=3.0),
        ),
        "class of nameless code": (
            reading(lambda self: one.gain), _set(scope["Nameless"], "gain", 3.0),
        ),
        "UserDict": (reading(lambda self: bag["a"]), lambda: bag.update(a=3.0)),
        "deque": (reading(lambda self: queue[0]), lambda: queue.append(queue.popleft() + 1)),
        "ChainMap": (reading(lambda self: chain["a"]), lambda: inner.update(a=3.0)),
        "mappingproxy": (
            reading(lambda self: self.view["a"], view=types.MappingProxyType(inner)),
            lambda: inner.update(a=4.0),
        ),
        "bytearray": (reading(lambda self: data[0]), lambda: data.__setitem__(0, 3)),
        "numpy": (reading(lambda self: float(array.sum())), lambda: array.fill(3.0)),
        "context variable": (reading(lambda self: context.get()), lambda: context.set(3.0)),
        "weak reference": (
            reading(lambda self: self.at().number, at=weakref.ref(held), held=held),
            _set(held, "number", 3.0),
        ),
        "attribute of a tensor": (reading(lambda self: tagged.gain), _set(tagged, "gain", 3.0)),
        "attribute of a function": (
            kernel(lambda self, src, dst, edge: _attribute_of_function(src.x)),
            _set(_attribute_of_function, "gain", 3.0),
        ),
        "attrgetter": (
            reading(lambda self: operator.attrgetter("number")(held)), _set(held, "number", 4.0),
        ),
        "nested": (reading(lambda self: options.inner.gain), _set(options.inner, "gain", 3.0)),
        "environment": (
            reading(lambda self: float(os.environ.get("TIGA_TEST_GAIN", "2"))),
            lambda: os.environ.__setitem__("TIGA_TEST_GAIN", "3"),
        ),
        "two names of a tensor": (both, lambda: setattr(both, "b", torch.tensor([5.0]))),
        "a tensor twice in a list": (
            reading(lambda self: listed[0] + listed[1]),
            lambda: listed.__setitem__(1, torch.tensor([5.0])),
        ),
        "an attribute that is not there": (
            reading(lambda self: getattr(optional, "gain", 2.0)), _set(optional, "gain", 3.0),
        ),
        "another class": (
            reading(lambda self: 2.0 if isinstance(held, Other) else 3.0),
            _set(held, "__class__", Other),
        ),
        "the sign of zero": (
            (signed := reading(lambda self: np.copysign(1.0, float(self.zero)), zero=0.0)),
            lambda: setattr(signed, "zero", -0.0),
        ),
    }  # fmt: skip


@pytest.mark.parametrize("name", _holders())
def test_what_is_read_through_a_holder(name, monkeypatch):
    monkeypatch.setenv("TIGA_TEST_GAIN", "2")
    made, change = _holders()[name]
    made.check()
    change()
    made.check()


METADATA = {
    "shape": lambda t: t.shape[0],
    "length": len,
    "elements": torch.Tensor.numel,
    "dtype": lambda t: 2.0 if t.dtype == torch.float32 else 3.0,
    "stride": lambda t: t.stride(0),
    "gradient": lambda t: 2.0 if t.requires_grad else 3.0,
}


@pytest.mark.parametrize("name", METADATA)
def test_the_metadata_of_a_tensor_whose_data_are_not_read(name):
    tell = METADATA[name]
    made = reading(lambda self: tell(self.t), t=torch.zeros(2, 3))
    made.check()
    made.t = torch.zeros(3, 4, dtype=torch.float64, requires_grad=True)
    made.check()


@pytest.mark.parametrize("how", ["import", "by name", "sys"])
def test_a_module_that_a_message_imports(how, monkeypatch):
    module = types.ModuleType("hidden_gain")
    module.gain = 2.0
    monkeypatch.setitem(sys.modules, "hidden_gain", module)

    def imports(self, src, dst, edge):
        from hidden_gain import gain

        return src.x * gain

    made = {
        "import": kernel(imports),
        "by name": reading(lambda self: importlib.import_module("hidden_gain").gain),
        "sys": reading(lambda self: sys.modules["hidden_gain"].gain),
    }[how]
    made.check()
    module.gain = 3.0
    made.check()


@pytest.mark.parametrize("kind", [float, torch.tensor])
def test_globals_of_one_name_in_two_modules(kind, monkeypatch):
    module = types.ModuleType("hidden_gain")
    exec("def scale(x): return x * GAIN", vars(module))
    module.GAIN = kind(7.0)
    monkeypatch.setitem(globals(), "GAIN", kind(2.0))
    made = kernel(lambda self, src, dst, edge: module.scale(src.x) + src.x * GAIN)
    made.check()
    module.GAIN = kind(5.0)
    made.check()


def test_a_hook_of_all_modules():
    class Layer(Base, torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = torch.nn.Linear(2, 2)

        def edge(self, src, dst, edge):
            return self.inner(src.x)

    made = Layer()
    made.check()

    def triple(module, given, out):
        return out * 3 if isinstance(module, torch.nn.Linear) else None

    with torch.nn.modules.module.register_module_forward_hook(triple):
        made.check()
    made.check()


def test_what_is_remembered_by_a_function(monkeypatch):
    made = reading(lambda self: remembered())
    made.check()
    monkeypatch.setitem(globals(), "GAIN", 3.0)
    remembered.cache_clear()
    made.check()
    monkeypatch.undo()
    remembered.cache_clear()


def test_unrelated_changes_need_no_other_program():
    held = Held()
    made = kernel(lambda self, src, dst, edge: held(src.x))
    made.check()
    held.unasked = 0  # a name that may be asked for: seen once
    made.check()
    for count in range(5):
        held.unasked = count
        made.check()
    assert made.cache_info.misses == 2


def _counts():
    count = 0

    def edge(self, src, dst, edge):
        nonlocal count
        count += 1
        return src.x * count

    return edge


REFUSED = {
    "a variable outside": (_counts(), "assigns `count`"),
    "a draw of Python's": (lambda self, src, dst, edge: src.x * random.random(), "draws numbers"),
    "a draw of numpy's": (lambda self, src, dst, edge: src.x * np.random.rand(), "draws numbers"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_be_the_same_in_every_call_is_refused(name):
    edge, text = REFUSED[name]
    with pytest.raises(errors.InvalidValue, match=text) as raised:
        type("Kernel", (tg.MessagePassing,), {"edge": edge})()(graph=GRAPH, ndata={"x": X})
    assert "test_torch_hidden_reads.py:" in str(raised.value)
