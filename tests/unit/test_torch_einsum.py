"""Equations of einsum in `edge`: axes that `...` stands for, and sizes that don't fit."""

import pytest
import torch

import tiga as tg
from tiga.errors import InvalidValue

SRC, DST = torch.tensor([0, 1, 2, 1, 0]), torch.tensor([1, 0, 2, 2, 1])
GRAPH = tg.Graph.from_coo(SRC, DST, num_src=3, num_dst=3)


def operands():
    shapes = {"x": (3, 4, 5), "y": (3, 5), "w": (5, 4, 5), "m": (5, 6), "one": (1, 6)}
    return {n: torch.randn(s, dtype=torch.float64).requires_grad_() for n, s in shapes.items()}


def call(equation, names):
    class Einsum(tg.MessagePassing):
        strict = True

        def edge(self, src, dst, edge, m, one):
            given = {"x": src.x, "y": dst.y, "w": edge.w, "m": m, "one": one}
            return torch.einsum(equation, *(given[name] for name in names))

    t = operands()
    params = {"m": t["m"], "one": t["one"]}
    out = Einsum()(graph=GRAPH, src={"x": t["x"]}, dst={"y": t["y"]}, edge={"w": t["w"]}, **params)
    per_edge = {**t, "x": t["x"][SRC], "y": t["y"][DST]}
    messages = torch.einsum(equation, *(per_edge[name] for name in names))
    want = torch.zeros(3, *messages.shape[1:], dtype=torch.float64).index_add(0, DST, messages)
    return out, want, [t[name] for name in names]


@pytest.mark.parametrize(
    ("equation", "names"),
    [
        ("...hc,cd->...hd", ["x", "m"]),
        ("...c,cd", ["x", "m"]),
        ("e...c,e...c->e...", ["x", "w"]),
        ("...h c, ... h c -> ... c h", ["x", "w"]),
        ("...hc,...c->...h", ["x", "y"]),
        ("ehc,cd->ehd", ["x", "one"]),
        ("cd,ehc,ec,ehf->efd", ["m", "x", "y", "w"]),
        ("ehc,cd,ec->ed", ["x", "one", "y"]),
    ],
)
def test_values_and_gradients(equation, names):
    out, want, fields = call(equation, names)
    torch.testing.assert_close(out, want)
    found, expected = (torch.autograd.grad(o.sin().sum(), fields) for o in (out, want))
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("equation", ["ehc,dc->ehd", "...c,...c->...c"])
def test_sizes_that_do_not_fit(equation):
    with pytest.raises(InvalidValue, match="does not fit"):
        call(equation, ["x", "m"])


def test_many_terms_are_multiplied_two_at_a_time():
    """As tensor products of equivariant networks have them: all at once they are 4608 numbers an
    edge, in pairs 512. Second derivatives as well."""

    class Product(tg.MessagePassing):
        strict = True

        def edge(self, src, dst, edge, table):
            way = torch.tanh(src.r - dst.r)
            return torch.einsum("ijk,efi,ej,ef->efk", table, src.h, way, edge.w)

    generator = torch.Generator().manual_seed(0)
    shapes = {"table": (8, 8, 8), "h": (3, 9, 8), "r": (3, 8), "w": (5, 9)}
    t = {n: torch.randn(s, dtype=torch.float64, generator=generator) for n, s in shapes.items()}
    r = t["r"].requires_grad_()
    out = Product()(graph=GRAPH, ndata={"h": t["h"], "r": r}, edge={"w": t["w"]}, table=t["table"])
    way = torch.tanh(r[SRC] - r[DST])
    sent = torch.einsum("ijk,efi,ej,ef->efk", t["table"], t["h"][SRC], way, t["w"])
    want = torch.zeros(3, 9, 8, dtype=torch.float64).index_add(0, DST, sent)
    found = []
    for value in (out, want):
        (slope,) = torch.autograd.grad(value.square().sum(), r, create_graph=True)
        found.append((value, slope, *torch.autograd.grad(slope.square().sum(), r)))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other)
