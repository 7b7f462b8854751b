"""Numbers are operands, tensors inputs, and the rest is in the key of a program."""

import copy
import functools
import pickle
import types

import pytest
import torch

import tiga as tg
from tests.guarded import GRAPH, SOURCES, TARGETS, Attribute, Flag, Layer, X
from tests.oracle import OracleExecutable
from tiga.frontends.torch import unit

SCALE = 2.0


@pytest.fixture(autouse=True)
def oracle(monkeypatch):
    """What is read does not depend on how programs run."""
    monkeypatch.setattr(unit, "executable", OracleExecutable)


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
