"""Parameters of a call that hold others: lists, tuples, dicts, and objects that may change."""

import types
from typing import NamedTuple

import numpy as np
import pytest
import torch

import tiga as tg
from tests.calls import GRAPH, SOURCES, field, summed
from tests.oracle import OracleExecutable
from tiga.frontends.torch import unit


class Scales(NamedTuple):
    first: torch.Tensor
    rest: dict[str, object]


class Scaled(tg.MessagePassing):
    def edge(self, src, dst, edge, given):
        return src.x * self.tell(given)


@pytest.fixture
def oracle(monkeypatch):
    """What is read does not depend on how programs run."""
    monkeypatch.setattr(unit, "executable", OracleExecutable)


def kernel(tell):
    made = Scaled()
    made.tell = tell
    return made


X = field(4, 2)


def check(made, given):
    found = made(graph=GRAPH, src={"x": X}, given=given)
    torch.testing.assert_close(found, summed((X * made.tell(given))[SOURCES]))


def _closure():
    gain = [2.0]
    return (lambda: gain[0]), (lambda: gain.__setitem__(0, 3.0))


def _changing():
    """By name: what is told of a parameter, the parameter, and a change of it."""
    told, change = _closure()
    linear = torch.nn.Linear(2, 1).double()
    two = torch.tensor(2.0, dtype=torch.float64)
    return {
        "a number in a list": (lambda p: p[0], [2.0], lambda p: p.__setitem__(0, 3.0)),
        "one in a dict": (lambda p: p["a"], {"a": 2.0}, lambda p: p.update(a=3.0)),
        "nested": (lambda p: p[0]["a"], ({"a": 2.0},), lambda p: p[0].update(a=3.0)),
        "a branch": (lambda p: 2.0 if p[0] else 3.0, [True], lambda p: p.__setitem__(0, False)),
        "another length": (lambda p: float(sum(p)), [2.0], lambda p: p.append(1.0)),
        "a tensor in a list": (lambda p: p[0], [two], lambda p: p.__setitem__(0, two + 1)),
        "one written in place": (lambda p: p[0], [two.clone()], lambda p: p[0].fill_(3.0)),
        "an attribute": (
            lambda p: p.a, types.SimpleNamespace(a=2.0), lambda p: setattr(p, "a", 3.0),
        ),
        "an array": (lambda p: float(p[0]), np.array([2.0]), lambda p: p.fill(3.0)),
        "a set": (lambda p: 2.0 if "b" in p else 3.0, {"a"}, lambda p: p.add("b")),
        "a function": (lambda p: p(), told, lambda p: change()),
        "a module": (lambda p: p.weight[0], linear, lambda p: p.weight.data.fill_(3.0)),
    }  # fmt: skip


@pytest.mark.parametrize("name", _changing())
def test_what_changes_within_a_parameter_is_seen(name, oracle):
    tell, given, change = _changing()[name]
    made = kernel(tell)
    for _ in range(2):
        check(made, given)
    change(given)
    check(made, given)


def test_new_containers_need_no_other_program():
    made = kernel(lambda p: p["gains"][0] * p["gains"][1] + p["shift"])
    for step in range(4):
        check(made, {"gains": [float(step + 2), torch.tensor(0.5 + step)], "shift": 1.0 * step})
    assert made.cache_info.misses == 1


def test_gradients_of_tensors_within():
    made = kernel(lambda p: p.first + p.rest["second"] * p.rest["gain"])
    first, second = (field(2, seed=i).requires_grad_() for i in (1, 2))
    given = Scales(first, {"second": second, "gain": 3.0})
    found = made(graph=GRAPH, src={"x": X}, given=given)
    wanted = summed((X * made.tell(given))[SOURCES])
    torch.testing.assert_close(found, wanted)
    for one, other in zip(
        torch.autograd.grad(found.square().sum(), (first, second)),
        torch.autograd.grad(wanted.square().sum(), (first, second)),
        strict=True,
    ):
        torch.testing.assert_close(one, other)


def test_gradients_of_tensors_within_through_blocks():
    """A sort is no op of a program."""
    made = kernel(lambda p: p[0].sort().values * p[1])
    weight = field(2, seed=3).requires_grad_()
    found = made(graph=GRAPH, src={"x": X}, given=[weight, 2.0])
    wanted = summed((X * made.tell([weight, 2.0]))[SOURCES])
    torch.testing.assert_close(found, wanted)
    slopes = (torch.autograd.grad(y.sum(), weight) for y in (found, wanted))
    torch.testing.assert_close(*slopes)


def test_inside_a_compiled_function():
    class Affine(tg.MessagePassing):
        def edge(self, src, dst, edge, weights, shift):
            return src.x * weights["a"] + weights["b"][0] * shift[0]

    made, pair = Affine(), [field(2, seed=1).requires_grad_(), field(2, seed=2).requires_grad_()]

    def run(x, first, second, gain):
        weights = {"a": first, "b": [second]}
        return made(graph=GRAPH, src={"x": x}, weights=weights, shift=(gain, "unused")).sin()

    compiled = torch.compile(run, fullgraph=True, backend="aot_eager")
    for gain in (2.0, 3.0):
        found, wanted = compiled(X, *pair, gain), run(X, *pair, gain)
        torch.testing.assert_close(found, wanted)
        slopes = (torch.autograd.grad(y.sum(), pair) for y in (found, wanted))
        torch.testing.assert_close(*slopes)
