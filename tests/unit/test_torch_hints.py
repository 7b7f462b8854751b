"""What is often got wrong at first inside `edge`: errors say what to write, and printing works."""

import pytest
import torch

import tiga as tg
from tests.calls import GRAPH, field, kernel
from tiga import errors

FIELDS = {"src": {"x": field(4, 2)}, "dst": {"x": field(5, 2)}}

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
}


@pytest.mark.parametrize("name", WRONG)
def test_what_to_write_instead(name):
    edge, says = WRONG[name]
    with pytest.raises(errors.TigaError, match=says):
        kernel(edge)(graph=GRAPH, **FIELDS)


def test_what_layers_of_pyg_say():
    with pytest.raises(errors.InvalidType, match=r"`aggr = 'mean'`.*`reducer = tg\.mean\(\)`"):

        class Averaged(tg.MessagePassing):
            aggr = "mean"

    class Known(tg.MessagePassing):
        aggr, reducer = "mean", tg.mean()

    class Sent(tg.MessagePassing):
        def message(self, x_j):
            return x_j

    with pytest.raises(errors.InvalidType, match=r"has no `edge`.*`src\.x` for `x_j`"):
        Sent()(graph=GRAPH, **FIELDS)


def test_fields_and_shapes_can_be_printed(capsys):
    def edge(src, dst, edge):
        print(src, edge, src.x.shape, src.x)
        return src.x

    kernel(edge)(graph=GRAPH, **FIELDS)
    told = "<fields of src: x> <fields of edge: none> [entities, 2] <traced float64[2]"
    assert capsys.readouterr().out.startswith(told)
