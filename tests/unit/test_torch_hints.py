"""What is often got wrong at first inside `edge`: errors say what to write, and printing works."""

import math

import numpy as np
import pytest
import torch

import tiga as tg
from tests.calls import GRAPH, SOURCES, field, kernel, summed
from tiga import errors

FIELDS = {"src": {"x": field(4, 2)}, "dst": {"x": field(5, 2)}}

NODES = torch.ones(4, 2, dtype=torch.float64)

WEIGHTED = r"tg\.softmax\(\)\(score, value\)"
WRONG = {
    "weights times values": (lambda s, d, e: tg.edge_softmax()(s.x) * d.x, WEIGHTED),
    "values times weights": (lambda s, d, e: d.x * tg.edge_softmax()(s.x), WEIGHTED),
    "a sum's negative": (lambda s, d, e: -tg.sum()(s.x), "`node` is given it"),
    "an element of a sum": (lambda s, d, e: tg.sum()(s.x)[:, 0], "return it, not compute with it"),
    "joined with a scalar": (
        lambda s, d, e: torch.cat([s.x, d.x[:, 0]], -1),
        r"shapes \[E, 2\], \[E\], whose axes differ in number.*x\.unsqueeze\(-1\)",
    ),
    "an array": (lambda s, d, e: s.x * np.ones(2), r"array of shape \[2\].*torch\.as_tensor"),
    "an array first": (lambda s, d, e: np.ones(2) * s.x, r"numpy array.*torch\.as_tensor"),
    "a function of numpy's": (lambda s, d, e: np.exp(s.x), "torch's functions instead of numpy's"),
    "one of math's": (
        lambda s, d, e: math.exp(s.x),
        "torch's functions instead of those of `math`",
    ),
    "nothing": (lambda s, d, e: s.x * None, "meets the NoneType None"),
    "two dtypes": (lambda s, d, e: s.x @ torch.ones(2, 2), "float64 and float32.*Convert one"),
    "values that are no field": (lambda s, d, e: s.x + NODES, "pass values of nodes or edges as"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_to_write_instead(name):
    edge, says = WRONG[name]
    with pytest.raises(errors.TigaError, match=says) as raised:
        kernel(edge)(graph=GRAPH, **FIELDS)
    assert "test_torch_hints.py:" in str(raised.value)


def test_what_layers_of_pyg_say():
    with pytest.raises(errors.InvalidType, match=r"`aggr = 'mean'`.*`reducer = tg\.mean\(\)`"):

        class Averaged(tg.MessagePassing):
            aggr = "mean"

    class Known(tg.MessagePassing):
        aggr, reducer = "mean", tg.mean()

    class Sent(tg.MessagePassing):
        def message(self, x_j):
            return x_j

    with pytest.raises(errors.InvalidType, match=r"^Sent has no `edge`.*`src\.x` for `x_j`"):
        Sent()(graph=GRAPH, **FIELDS)


def test_a_parameter_that_is_missing():
    class Scaled(tg.MessagePassing):
        def edge(self, src, dst, edge, scale, shift=0.0):
            return src.x * scale + shift

    with pytest.raises(errors.InvalidType, match=r"takes `scale`.*\(graph=\.\.\., scale=\.\.\.\)"):
        Scaled()(graph=GRAPH, **FIELDS)


def test_a_module_without_its_set_up():
    class Bare(tg.MessagePassing, torch.nn.Module):
        def __init__(self):
            self.gain = 2.0

    with pytest.raises(errors.InvalidState, match=r"`super\(\)\.__init__\(\)` first"):
        Bare()(graph=GRAPH, **FIELDS)


def test_a_batch_norm_in_train_mode():
    class Normed(tg.MessagePassing, torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = torch.nn.BatchNorm1d(2).double()

        def node(self, dst, aggregate):
            return self.norm(aggregate)

        def edge(self, src, dst, edge):
            return src.x

    with pytest.raises(errors.InvalidValue, match=r"apply it to what the call returns.*\.eval\(\)"):
        Normed()(graph=GRAPH, **FIELDS)


def test_one_graph_is_no_batch():
    with pytest.raises(errors.InvalidType, match=r"pass `\[graph\]`"):
        tg.Graph.batch(GRAPH)


@pytest.mark.parametrize("how", ["expand", "repeat"])
def test_a_tensor_for_every_edge(how):
    weight = torch.tensor([[2.0, 3.0]], dtype=torch.float64, requires_grad=True)

    def edge(src, dst, edge):
        count = src.x.shape[0]
        each = weight.expand(count, 2) if how == "expand" else weight.repeat(count, 1)
        return (src.x * each)[..., None] * torch.ones(1, 1, 3).double().expand(count, 2, 3)

    found = kernel(edge)(graph=GRAPH, **FIELDS)
    wanted = summed((FIELDS["src"]["x"][SOURCES] * weight)[..., None].expand(-1, 2, 3))
    torch.testing.assert_close(found, wanted)
    for one, other in zip(
        *(torch.autograd.grad(y.sum(), weight) for y in (found, wanted)), strict=True
    ):
        torch.testing.assert_close(one, other)


def test_fields_and_shapes_can_be_printed(capsys):
    def edge(src, dst, edge):
        print(src, edge, src.x.shape, src.x)
        return src.x

    kernel(edge)(graph=GRAPH, **FIELDS)
    told = "<fields of src: x> <fields of edge: none> [entities, 2] <traced float64[2]"
    assert capsys.readouterr().out.startswith(told)


def test_numbers_of_elements_make_no_tensor():
    """`embedding_bag` counts in a range; one of all made-up edges would take gigabytes."""
    bag = torch.nn.EmbeddingBag(3, 2, mode="sum")
    run = kernel(lambda s, d, e: bag(s.x.long().abs() % 3))
    with pytest.raises(errors.InvalidValue, match=r"aten\.arange\.start_step depends on"):
        run(graph=GRAPH, **FIELDS)


def test_a_lazy_module_is_to_run_before():
    lazy = torch.nn.LazyLinear(2, dtype=torch.float64)
    run = kernel(lambda s, d, e: lazy(s.x))
    with pytest.raises(errors.InvalidValue, match="has no shape yet: run the lazy module before"):
        run(graph=GRAPH, **FIELDS)
    lazy(torch.zeros(1, 2, dtype=torch.float64))
    run(graph=GRAPH, **FIELDS)


def test_what_changes_as_it_runs_goes_through_no_blocks():
    calls = []

    def edge(src, dst, edge):
        calls.append(0)
        return (src.x * len(calls)).sort(dim=-1).values

    with pytest.raises(errors.InvalidValue, match="runs again on the same edges"):
        kernel(edge)(graph=GRAPH, **FIELDS)
