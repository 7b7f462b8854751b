"""Several reducers at once, positions of winners, and scores of the neighbour softmax."""

import math

import pytest
import torch

import tiga as tg
from tests.folding import DST, GRAPH, ROWS, ZERO, Gated, Product, by_rows, call, draw, weighted
from tests.sending import SendEdge
from tiga import errors, knobs


def test_several_reducers_share_a_walk():
    kernel = SendEdge(tg.multi(tg.sum(), tg.mean(), tg.max(), tg.min(), tg.std(), tg.argmax()))
    m = draw(11, 2).requires_grad_()
    together = call(kernel)(m)
    alone = [call(SendEdge(r))(m) for r in kernel.reducer.parts]
    for one, other in zip(together, alone, strict=True):
        assert torch.equal(one, other)
    named = call(SendEdge(tg.multi(total=tg.sum(), peak=tg.max(), first=Product())))(m)
    assert list(named) == ["total", "peak", "first"]
    assert torch.equal(named["peak"], alone[2])
    assert torch.autograd.gradcheck(lambda m: call(kernel)(m)[:5], m)
    assert torch.autograd.gradgradcheck(lambda m: call(kernel)(m)[:5], m)


def test_multi_is_read_by_node_and_masks():
    class Spread(tg.MessagePassing):
        reducer = tg.multi(high=tg.max(), low=tg.min())

        def edge(self, src, dst, edge):
            return tg.mask(edge.m, edge.m < 1)

        def node(self, dst, aggregate):
            return aggregate["high"] - aggregate["low"]

    m = draw(11)
    want = [max(k, default=0) - min(k, default=0) for k in kept(m)]
    assert Spread()(graph=GRAPH, edge={"m": m}).tolist() == want


def kept(m):
    return [[m[e].item() for e in row if m[e] < 1] for row in ROWS]


@pytest.mark.parametrize("pick", ["argmax", "argmin"])
@pytest.mark.parametrize("shape", [(), (2,), (3, 2), (40,)])
def test_positions_are_numbers_of_edges_as_they_were_given(pick, shape):
    m = torch.round(draw(11, *shape) * 2)
    got = call(SendEdge(getattr(tg, pick)()))(m)
    assert got.dtype == torch.int64
    for row, edges in enumerate(ROWS):
        if not edges:
            assert (got[row] == -1).all()
            continue
        first = getattr(m[edges], pick)(0)
        ties = m[edges] == m[edges].gather(0, first[None])
        first = ties.int().argmax(0)
        assert torch.equal(got[row], torch.tensor(edges)[first])


def test_positions_on_a_graph_in_csr_order_and_masked():
    class Longest(tg.MessagePassing):
        reducer = tg.argmax()

        def edge(self, src, dst, edge):
            return tg.mask(edge.m, edge.m < 2)

    graph = tg.Graph.from_csr([0, 3, 3, 4], [0, 1, 0, 1], num_src=2)
    m = torch.tensor([1.0, 3.0, 1.5, 4.0])
    assert Longest()(graph=graph, edge={"m": m}).tolist() == [2, -1, -1]


def test_positions_on_the_bounded_path():
    kernel, m = Gated(), draw(11, 2)
    kernel.reducer = tg.argmax()
    want = call(SendEdge(tg.argmax()))(torch.special.i0(m))
    with knobs.scope(memory_bound=300):
        assert torch.equal(call(kernel)(m), want)


def test_outputs_of_one_edge_by_reducers_of_their_own():
    class Mixed(tg.MessagePassing):
        total, peak, attend = tg.sum(), tg.max(empty="identity"), tg.softmax()

        def edge(self, src, dst, edge):
            return {
                "plain": edge.m,
                "peak": self.peak(edge.m),
                "near": self.total(tg.mask(edge.m, edge.s > 0)),
                "attended": self.attend(edge.s, edge.m),
            }

    s, m = draw(11, seed=1), draw(11, 3)
    got = Mixed()(graph=GRAPH, edge={"s": s, "m": m})
    total = torch.zeros(6, 3).double()
    torch.testing.assert_close(got["plain"], total.index_add(0, DST, m))
    torch.testing.assert_close(got["near"], total.index_add(0, DST, m * (s > 0)[:, None]))
    torch.testing.assert_close(got["attended"], by_rows(weighted, ZERO)(s, m))
    torch.testing.assert_close(got["peak"], by_rows(lambda m: m.amax(0), ZERO - math.inf)(m))


# softmax


class Heads(tg.MessagePassing):
    reducer = tg.softmax()

    def edge(self, src, dst, edge):
        return self.reducer(edge.s, edge.m)


@pytest.mark.parametrize("scores", [(), (2,), (2, 3)])
def test_softmax_takes_scores_per_edge_per_head_or_per_element(scores):
    s, m = draw(11, *scores, seed=1).requires_grad_(), draw(11, 2, 3).requires_grad_()

    def want(s, m):
        padded = s.reshape(*s.shape, *(1,) * (3 - s.dim()))
        fold = by_rows(lambda s, m: (torch.softmax(s, 0) * m).sum(0), ZERO)
        return fold(padded, m)

    torch.testing.assert_close(call(Heads())(s, m), want(s, m))
    assert torch.autograd.gradcheck(call(Heads()), (s, m))
    assert torch.autograd.gradgradcheck(call(Heads()), (s, m))


def test_softmax_with_masks_equals_scores_of_minus_infinity():
    class Masked(tg.MessagePassing):
        reducer = tg.softmax()

        def edge(self, src, dst, edge):
            return tg.mask(self.reducer(edge.s, edge.m), edge.keep)

    keep = torch.arange(11) % 3 != 0
    s, m = draw(11, seed=1).requires_grad_(), draw(11, 3).requires_grad_()
    masked = Masked()(graph=GRAPH, edge={"s": s, "m": m, "keep": keep})
    shifted = call(Heads())(torch.where(keep, s, -math.inf), m)
    torch.testing.assert_close(masked, shifted)
    for one, other in zip(
        torch.autograd.grad(masked.square().sum(), (s, m)),
        torch.autograd.grad(shifted.square().sum(), (s, m)),
        strict=True,
    ):
        torch.testing.assert_close(one, other)


def test_scores_of_the_wrong_rank_are_refused():
    with pytest.raises(errors.InvalidValue, match=r"scores of feature shape \(2, 3\) do not fit"):
        call(Heads())(draw(11, 2, 3), draw(11, 3))
    with pytest.raises(errors.InvalidType, match=r"takes 2: return `self\.reducer"):
        call(SendEdge(tg.softmax()))(draw(11))
